package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/modelfile/gguf"
)

// smallBPE is a tokenizer.json of a byte-level BPE with all bytes, a few merges, a special and an added token.
func smallBPE(t testing.TB) []byte {
	t.Helper()
	vocab := map[string]int{}
	for b, r := range byteRunes {
		vocab[string(r)] = b
	}
	merges := []string{"h e", "l l", "he ll", "hell o", "Ġ hello", "Ã ©"}
	for _, m := range merges {
		vocab[strings.ReplaceAll(m, " ", "")] = len(vocab)
	}
	return marshal(t, map[string]any{
		"added_tokens": []any{
			map[string]any{"id": 262, "content": "<|im_end|>", "special": true},
			map[string]any{"id": 263, "content": "<think>"},
		},
		"pre_tokenizer":  map[string]any{"type": "ByteLevel", "add_prefix_space": false},
		"post_processor": nil,
		"decoder":        map[string]any{"type": "ByteLevel"},
		"model":          map[string]any{"type": "BPE", "vocab": vocab, "merges": merges},
	})
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(v))
	return bytes.TrimSpace(b.Bytes())
}

// smallSPM is the metadata of a SentencePiece BPE with byte fallback.
func smallSPM(t testing.TB, set func(w *gguf.Writer)) *gguf.File {
	t.Helper()
	tokens := []string{"<unk>", "<s>", "</s>", "<tool>"}
	types := []int32{ggufUnknown, ggufControl, ggufControl, ggufUser}
	for b := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
		types = append(types, ggufByte)
	}
	for _, p := range []string{"▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "é"} {
		tokens = append(tokens, p)
		types = append(types, ggufNormal)
	}
	scores := make([]float32, len(tokens))
	for i := range scores {
		scores[i] = -float32(i)
	}
	w := gguf.NewWriter()
	w.Set("tokenizer.ggml.model", "llama")
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.token_type", types)
	w.Set("tokenizer.ggml.scores", scores)
	w.Set("tokenizer.ggml.bos_token_id", uint32(1))
	w.Set("tokenizer.ggml.eos_token_id", uint32(2))
	if set != nil {
		set(w)
	}
	return parsed(t, w)
}

func parsed(t testing.TB, w *gguf.Writer) *gguf.File {
	t.Helper()
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	require.NoError(t, err)
	f, err := gguf.Parse("small.gguf", b.Bytes())
	require.NoError(t, err)
	return f
}

func small(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := FromJSON(smallBPE(t), nil)
	require.NoError(t, err)
	return tok
}

func TestSpecialTokens(t *testing.T) {
	tok := small(t)
	end, think := int32(262), int32(263)
	hello, ok := tok.ID("Ġhello")
	require.True(t, ok)
	require.Equal(t, []int32{hello, end}, tok.Encode(" hello<|im_end|>", EncodeOptions{ParseSpecial: true}))
	require.NotContains(t, tok.Encode(" hello<|im_end|>", EncodeOptions{}), end)
	require.Equal(t, []int32{think}, tok.Encode("<think>", EncodeOptions{}), "added tokens that are not special are always recognised")
	require.True(t, tok.IsSpecial(end))
	require.False(t, tok.IsSpecial(think))
	require.False(t, tok.IsSpecial(-1))
	require.Equal(t, []int32{end}, tok.EOGs())
	require.True(t, tok.IsEOG(end))
	require.Equal(t, " hello", tok.Decode([]int32{hello, end}, true))
	require.Equal(t, " hello<|im_end|>", tok.Decode([]int32{hello, end, 9999, -1}, false))
	require.Equal(t, "", tok.Piece(9999))
	require.Nil(t, tok.Bytes(-5))
	require.Equal(t, 264, tok.VocabSize())
}

// TestPromptBOS checks that a rendered prompt has exactly one BOS if the model wants one.
func TestPromptBOS(t *testing.T) {
	for _, c := range []struct {
		name   string
		addBOS bool
		text   string
		bos    int
	}{
		{"wanted, not in the text", true, "hello", 1},
		{"wanted, in the text", true, "<s>hello", 1},
		{"wanted, empty text", true, "", 1},
		{"not wanted", false, "hello", 0},
		{"not wanted, in the text", false, "<s>hello", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok, err := FromGGUF(smallSPM(t, func(w *gguf.Writer) { w.Set("tokenizer.ggml.add_bos_token", c.addBOS) }))
			require.NoError(t, err)
			n := 0
			for _, id := range tok.EncodePrompt(c.text) {
				if id == tok.BOS() {
					n++
				}
			}
			require.Equal(t, c.bos, n)
			require.Equal(t, c.addBOS, tok.AddsBOS())
		})
	}
}

func TestSPM(t *testing.T) {
	tok, err := FromGGUF(smallSPM(t, nil))
	require.NoError(t, err)
	require.Equal(t, int32(2), tok.EOS())
	require.Equal(t, []string{"▁hello"}, pieces(tok, tok.Encode("hello", EncodeOptions{})))
	require.Equal(t, []string{"▁", "<0xC3>", "<0xBC>", "é", "<0xFF>"}, pieces(tok, tok.Encode("üé\xff", EncodeOptions{})))
	require.Equal(t, "hello", tok.Decode(tok.Encode("hello", EncodeOptions{}), false))
	require.Equal(t, []byte{0xFF}, tok.Bytes(tok.Encode("\xff", EncodeOptions{})[1]))
	plain, err := FromGGUF(smallSPM(t, func(w *gguf.Writer) { w.Set("tokenizer.ggml.add_space_prefix", false) }))
	require.NoError(t, err)
	require.Equal(t, []string{"hello", "▁hello"}, pieces(plain, plain.Encode("hello hello", EncodeOptions{})))
}

// TestLongWords compares the heap, which long words take, with the scan that short words take.
func TestLongWords(t *testing.T) {
	tok := small(t)
	m := tok.model.(*bpe)
	s := tok.acquire()
	for _, word := range []string{strings.Repeat("hello", 40), strings.Repeat("hel", 70), strings.Repeat("é", 150), strings.Repeat("lhlel", 55)} {
		m.byteSymbols(s, word)
		require.Greater(t, len(s.syms), scanSyms)
		m.mergeByHeap(s)
		heap := append([]int32(nil), s.syms...)
		m.byteSymbols(s, word)
		m.mergeByScan(s)
		require.Equal(t, s.syms, heap, "word %q", word)
	}
}

// TestHeapMergesLikeTheScan merges words of a few symbols by random merges, many of the same rank. Where all pairs can be
// merged, the heap fills up with entries of pairs that are no more.
func TestHeapMergesLikeTheScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ids = 12
		m := &bpe{merges: newTable(ids * ids)}
		share := rapid.SampledFrom([]int{1, 2, 10}).Draw(t, "share")
		for left := range int32(ids) {
			for right := range int32(ids) {
				if rapid.IntRange(0, share-1).Draw(t, "merges") == 0 {
					m.addMerge(left, right, rapid.Int32Range(0, ids-1).Draw(t, "both"), rapid.IntRange(0, 20).Draw(t, "rank"))
				}
			}
		}
		word := rapid.SliceOfN(rapid.Int32Range(0, ids-1), 2, 400).Draw(t, "word")
		var scan, heap scratch
		scan.syms, heap.syms = slices.Clone(word), slices.Clone(word)
		m.mergeByScan(&scan)
		m.mergeByHeap(&heap)
		require.Equal(t, scan.syms, heap.syms)
	})
}

// TestMemoryOfOneLongWord bounds what a word of megabytes takes, whatever its letters: 13 bytes for each while they are
// merged, and its ids.
func TestMemoryOfOneLongWord(t *testing.T) {
	tok := small(t)
	const n = 4 << 20
	for _, unit := range []string{"hello", "hell", "x", "ab", "llhe"} {
		word := strings.Repeat(unit, n/len(unit))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ids := tok.Encode(word, EncodeOptions{})
		runtime.ReadMemStats(&after)
		require.Less(t, float64(after.TotalAlloc-before.TotalAlloc), 22.0*n, unit)
		require.Equal(t, len(word), len(joined(tok, ids)), unit)
	}
}

// TestCacheIsBounded encodes more different words than the cache holds.
func TestCacheIsBounded(t *testing.T) {
	tok := small(t)
	var text strings.Builder
	for i := range 3 * maxCacheWords {
		text.WriteString(" h")
		for ; i > 0; i /= 26 {
			text.WriteByte(byte('a' + i%26))
		}
	}
	ids := tok.Encode(text.String(), EncodeOptions{})
	require.Equal(t, text.String(), tok.Decode(ids, false))
	require.Equal(t, ids, tok.Encode(text.String(), EncodeOptions{}))
	require.Len(t, tok.free, 1)
	require.LessOrEqual(t, len(tok.free[0].words), maxCacheWords)
	require.LessOrEqual(t, len(tok.free[0].known), maxCacheIDs)
}

// TestConcurrentUse encodes in several goroutines at once; run with -race.
func TestConcurrentUse(t *testing.T) {
	tok := small(t)
	text := strings.Repeat("hello hell é <think> 123 ", 20)
	want := tok.Encode(text, EncodeOptions{})
	done := make(chan []int32)
	for range 8 {
		go func() {
			var ids []int32
			for range 50 {
				ids = tok.Encode(text, EncodeOptions{})
			}
			done <- ids
		}()
	}
	for range 8 {
		require.Equal(t, want, <-done)
	}
}
