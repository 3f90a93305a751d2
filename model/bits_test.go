package model

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/tensor"
)

// tinyArchs are the architectures of tinyGGUF, each with what sets it apart.
var tinyArchs = map[string]func(f *tinyFile){
	"llama":  func(f *tinyFile) {},
	"qwen2":  func(f *tinyFile) {},
	"qwen3":  func(f *tinyFile) {},
	"gemma3": func(f *tinyFile) { f.set("gemma3.attention.sliding_window", uint32(20)) },
	// Mistral: a window on every layer.
	"llama/window": func(f *tinyFile) { f.set("llama.attention.sliding_window", uint32(9)) },
}

func tinyOf(name string) *tinyFile {
	arch := name
	if name == "llama/window" {
		arch = "llama"
	}
	f := tinyGGUF(arch)
	tinyArchs[name](f)
	return f
}

func tokensOf(seed uint64, n int) []int32 {
	r := rand.New(rand.NewPCG(seed, 1))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(tinyVocab))
	}
	return ids
}

// TestChunksGiveTheSameBits feeds one prompt at once, in pieces of 7 and token by token, with one and two threads, in the
// int8 and in the float32 path.
func TestChunksGiveTheSameBits(t *testing.T) {
	for name := range tinyArchs {
		for _, f32 := range []bool{false, true} {
			path := tinyOf(name).write(t)
			ids := tokensOf(3, 37)
			var want [][]float32
			for _, threads := range []int{1, 2} {
				pool := tensor.NewPool(threads)
				defer pool.Close()
				m := loadModel(t, path, Options{F32: f32, Pool: pool, MaxBatch: 64})
				for _, piece := range []int{len(ids), 7, 1} {
					seq := newSeq(t, m, len(ids))
					var got [][]float32
					for at := 0; at < len(ids); at += piece {
						got = append(got, feed(t, m, seq, ids[at:min(at+piece, len(ids))])...)
					}
					if want == nil {
						want = got
					}
					require.Equal(t, want, got, "%s: f32 %v, %d threads, pieces of %d", name, f32, threads, piece)
				}
			}
		}
	}
}

// TestWantedRowsOnly asks for some rows in another order.
func TestWantedRowsOnly(t *testing.T) {
	m := loadModel(t, tinyOf("qwen2").write(t), Options{MaxBatch: 32})
	ids := tokensOf(5, 12)
	all := feed(t, m, newSeq(t, m, 12), ids)
	for _, want := range [][]int32{{11}, {3, 0, 7}, nil, {4, 4}} {
		seq := newSeq(t, m, 12)
		logits, err := m.Forward(&Batch{Tokens: ids, Spans: []Span{{Seq: seq, N: 12}}, Logits: want})
		require.NoError(t, err)
		require.Equal(t, len(want), logits.Rows)
		require.Equal(t, len(want), m.Hidden().Rows)
		for i, row := range want {
			require.Equal(t, all[row], logits.Row(i), "row %d", row)
		}
	}
}

// TestNeighboursDoNotMatter puts several sequences at different positions in one pass.
func TestNeighboursDoNotMatter(t *testing.T) {
	for name := range tinyArchs {
		m := loadModel(t, tinyOf(name).write(t), Options{MaxBatch: 64})
		prompts := [][]int32{tokensOf(1, 30), tokensOf(2, 5), tokensOf(3, 17)}
		tails := []int{1, 5, 3} // tokens of the common pass
		var want [][]float32
		for i, p := range prompts {
			all := feed(t, m, newSeq(t, m, len(p)), p)
			want = append(want, all[len(p)-tails[i]:]...)
		}
		c, err := m.NewCache(16)
		require.NoError(t, err)
		b := &Batch{}
		for i, p := range prompts {
			seq := c.NewSeq()
			if head := p[:len(p)-tails[i]]; len(head) > 0 {
				feed(t, m, seq, head)
			}
			b.Spans = append(b.Spans, Span{Seq: seq, N: tails[i]})
			for _, id := range p[len(p)-tails[i]:] {
				b.Logits = append(b.Logits, int32(len(b.Tokens)))
				b.Tokens = append(b.Tokens, id)
			}
		}
		logits, err := m.Forward(b)
		require.NoError(t, err)
		require.Equal(t, want, rows(logits), name)
	}
}

// TestTreeEqualsChains runs a tree of guesses and each of its paths as a chain.
func TestTreeEqualsChains(t *testing.T) {
	parents := []int32{-1, 0, 0, 1, 2, 3, -1, 6, 2}
	for name := range tinyArchs {
		m := loadModel(t, tinyOf(name).write(t), Options{MaxBatch: 64})
		prompt, ids := tokensOf(8, 29), tokensOf(9, len(parents))
		seq := newSeq(t, m, len(prompt)+len(ids))
		feed(t, m, seq, prompt)
		b := &Batch{Tokens: ids, Spans: []Span{{Seq: seq, N: len(ids), Parents: parents}}, Logits: []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}}
		tree, err := m.Forward(b)
		require.NoError(t, err)
		got := rows(tree)
		for node := range parents {
			var path []int32
			for n := int32(node); n >= 0; n = parents[n] {
				path = append([]int32{ids[n]}, path...)
			}
			chain := newSeq(t, m, len(prompt)+len(path))
			feed(t, m, chain, prompt)
			require.Equal(t, last(feed(t, m, chain, path)), got[node], "%s: node %d", name, node)
		}
	}
}

// TestRejectedGuessesLeaveNoTrace runs guesses, commits some, and goes on.
func TestRejectedGuessesLeaveNoTrace(t *testing.T) {
	for name := range tinyArchs {
		m := loadModel(t, tinyOf(name).write(t), Options{MaxBatch: 64})
		ids := tokensOf(4, 40)
		want := feed(t, m, newSeq(t, m, len(ids)), ids)
		seq := newSeq(t, m, len(ids)+16)
		for at := 0; at < len(ids); at += 2 {
			guess := append([]int32{ids[at], ids[at+1]}, tokensOf(uint64(at), 5)...)
			logits, err := m.Forward(&Batch{Tokens: guess, Spans: []Span{{Seq: seq, N: len(guess)}}, Logits: []int32{0, 1}})
			require.NoError(t, err)
			require.Equal(t, want[at:at+2], rows(logits), "%s: position %d", name, at)
			seq.Commit(2)
		}
	}
}

func TestForwardAllocatesNothing(t *testing.T) {
	for name := range tinyArchs {
		pool := tensor.NewPool(2)
		defer pool.Close()
		m := loadModel(t, tinyOf(name).write(t), Options{Pool: pool, MaxBatch: 16})
		seq := newSeq(t, m, 64)
		b := &Batch{Tokens: tokensOf(1, 5), Spans: []Span{{Seq: seq, N: 5}}, Logits: []int32{0, 4}}
		run := func() {
			if _, err := m.Forward(b); err != nil {
				t.Error(err)
			}
		}
		run()
		require.Zero(t, testing.AllocsPerRun(20, run), name)
	}
}
