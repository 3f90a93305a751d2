package model

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
)

// exactT5 is T5 by the book in float64. It tells our rounding from that of the goldens, which were computed in float32 too.
type exactT5 struct {
	c       *Config
	tensors map[string]exactMat // names are those of a GGUF file without ".weight"
}

type exactMat struct {
	v    []float64
	cols int
}

// openExactT5 reads a folder.
func openExactT5(t *testing.T, dir string) *exactT5 {
	t.Helper()
	ckpt, err := safetensors.OpenDir(dir)
	require.NoError(t, err)
	defer ckpt.Close()
	c, err := readConfig("t5", architectures["t5"], configFields(ckpt))
	require.NoError(t, err)
	e := &exactT5{c: c, tensors: map[string]exactMat{}}
	src := &safetensorsWeights{ckpt: ckpt, hf: t5Names}
	for _, name := range t5TensorNames(c) {
		x, ok := src.find(name + ".weight")
		if !ok {
			continue
		}
		m := exactMat{cols: x.cols}
		for _, v := range decoded(x) {
			m.v = append(m.v, float64(v))
		}
		e.tensors[strings.Replace(name, "ffn_only", "ffn_up", 1)] = m
	}
	return e
}

// t5TensorNames lists what a T5 may have.
func t5TensorNames(c *Config) (names []string) {
	for name := range t5Names {
		prefix, stem, layers := strings.Cut(name, ".blk.")
		if !layers {
			names = append(names, name)
			continue
		}
		for i := range max(c.EncoderLayers, c.Layers) {
			names = append(names, fmt.Sprintf("%s.blk.%d.%s", prefix, i, stem))
		}
	}
	return names
}

// randomT5 has the shape and the spreads of the goldens.
func randomT5(seed uint64, gated, untied bool) *exactT5 {
	c := &Config{
		Layers: 2, EncoderLayers: 2, Dim: 64, Heads: 4, KVHeads: 4, HeadDim: 24, FF: 112, Vocab: 512, Tokens: 512, ContextLen: 512,
		BOS: -1, EOS: []int32{1}, NormEps: 1e-6, RelBuckets: 8, RelDistance: 20, Gated: gated, Windows: make([]int, 2), Rope: Rope{Theta: 10000},
	}
	e := &exactT5{c: c, tensors: map[string]exactMat{}}
	r := rand.New(rand.NewPCG(seed, 1))
	add := func(name string, rows, cols int, mean, std float64) {
		m := exactMat{cols: cols}
		for _, v := range normal(r, rows*cols, std) {
			m.v = append(m.v, float64(float32(mean)+v))
		}
		e.tensors[name] = m
	}
	std, inner, lastGain := 0.2, c.Heads*c.HeadDim, 1.0
	if gated {
		std = 0.13
	}
	mat := func(name string, rows, cols int) { add(name, rows, cols, 0, std*math.Sqrt(64/float64(cols))) }
	add("token_embd", c.Vocab, c.Dim, 0, 0.25)
	if untied {
		add("output", c.Vocab, c.Dim, 0, 0.25)
	} else {
		lastGain = 8
	}
	attentions := map[string][]string{"enc.": {"attn_"}, "dec.": {"attn_", "cross_attn_"}}
	for _, half := range []string{"enc.", "dec."} {
		for i := range c.Layers {
			blk := fmt.Sprintf("%sblk.%d.", half, i)
			for _, part := range attentions[half] {
				add(blk+part+"norm", 1, c.Dim, 1, 0.3)
				for _, name := range []string{"q", "k", "v"} {
					mat(blk+part+name, inner, c.Dim)
				}
				mat(blk+part+"o", c.Dim, inner)
			}
			add(blk+"ffn_norm", 1, c.Dim, 1, 0.3)
			mat(blk+"ffn_up", c.FF, c.Dim)
			if gated {
				mat(blk+"ffn_gate", c.FF, c.Dim)
			}
			mat(blk+"ffn_down", c.Dim, c.FF)
		}
		add(half+"blk.0.attn_rel_b", c.RelBuckets, c.Heads, 0, 1)
		add(half+"output_norm", 1, c.Dim, lastGain, 0.3)
	}
	return e
}

// write makes a GGUF file.
func (e *exactT5) write(t *testing.T) string {
	t.Helper()
	w := gguf.NewWriter()
	convertConfig(w, "t5", e.c)
	w.Set("t5.block_count", uint32(e.c.EncoderLayers))
	w.Set("t5.decoder_block_count", uint32(e.c.Layers))
	w.Set("t5.attention.relative_buckets_count", uint32(e.c.RelBuckets))
	w.Set("t5.attention.relative_max_distance", uint32(e.c.RelDistance))
	for _, name := range slices.Sorted(maps.Keys(e.tensors)) {
		m := e.tensors[name]
		data := make([]float32, len(m.v))
		for i, v := range m.v {
			data[i] = float32(v)
		}
		dims := []int{m.cols}
		if rows := len(data) / m.cols; rows > 1 {
			dims = append(dims, rows)
		}
		w.AddTensor(name+".weight", gguf.TypeF32, dims, floats(data...))
	}
	path := filepath.Join(t.TempDir(), "t5.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

// tolerance is how far float32 may be from the exact logits of a text: as far as they move, at most, in five models whose every
// weight is wrong by up to a millionth of itself, 2e-5 to 6e-3. Of 504 texts of 168 random models like those of the goldens our
// error against float64 reached 0.68 of it, that of transformers 0.45 and the distance between the two 0.45, up to 6e-4: what a
// T5's goldens differ by is as much their rounding as ours, for scores that are not scaled make the model itself sensitive.
// (transformers in double precision is no reference: its norm and its softmax stay float32. With these in double precision too,
// it has the logits of exactT5 to 2e-11.)
func (e *exactT5) tolerance(exact [][]float64, input, text []int32) (far float64) {
	for seed := range uint64(5) {
		far = max(far, farthest(exact, e.moved(seed).logits(input, text)))
	}
	return far
}

// moved is the same model with every weight wrong.
func (e *exactT5) moved(seed uint64) *exactT5 {
	r := rand.New(rand.NewPCG(seed, 20))
	to := &exactT5{c: e.c, tensors: map[string]exactMat{}}
	for _, name := range slices.Sorted(maps.Keys(e.tensors)) {
		m := exactMat{cols: e.tensors[name].cols}
		for _, v := range e.tensors[name].v {
			m.v = append(m.v, v*(1+0x1p-20*(2*r.Float64()-1)))
		}
		to.tensors[name] = m
	}
	return to
}

// farthest is the largest difference.
func farthest[T float32 | float64](exact [][]float64, got [][]T) (d float64) {
	for i, row := range exact {
		for j, v := range row {
			d = max(d, math.Abs(v-float64(got[i][j])))
		}
	}
	return d
}

// logits are those of each token of a decoder's text, (tokens, vocab).
func (e *exactT5) logits(input, text []int32) [][]float64 {
	enc := e.embed(input)
	for i := range e.c.EncoderLayers {
		blk := fmt.Sprintf("enc.blk.%d.", i)
		h := e.norm(enc, blk+"attn_norm")
		e.attend(enc, h, h, blk+"attn_", "enc.blk.0.attn_rel_b", false)
		e.feedForward(enc, blk)
	}
	enc = e.norm(enc, "enc.output_norm")
	x := e.embed(text)
	for i := range e.c.Layers {
		blk := fmt.Sprintf("dec.blk.%d.", i)
		h := e.norm(x, blk+"attn_norm")
		e.attend(x, h, h, blk+"attn_", "dec.blk.0.attn_rel_b", true)
		e.attend(x, e.norm(x, blk+"cross_attn_norm"), enc, blk+"cross_attn_", "", false)
		e.feedForward(x, blk)
	}
	x = e.norm(x, "dec.output_norm")
	if _, untied := e.tensors["output"]; untied {
		return e.mul(x, "output")
	}
	x = e.mul(x, "token_embd")
	for _, row := range x {
		for i := range row {
			row[i] /= math.Sqrt(float64(e.c.Dim))
		}
	}
	return x
}

func (e *exactT5) embed(ids []int32) (x [][]float64) {
	for _, id := range ids {
		x = append(x, append([]float64(nil), e.tensors["token_embd"].v[int(id)*e.c.Dim:][:e.c.Dim]...))
	}
	return x
}

func (e *exactT5) norm(x [][]float64, name string) (y [][]float64) {
	for _, row := range x {
		sum := 0.0
		for _, v := range row {
			sum += v * v
		}
		out := make([]float64, len(row))
		for i, v := range row {
			out[i] = v / math.Sqrt(sum/float64(len(row))+float64(e.c.NormEps)) * e.tensors[name].v[i]
		}
		y = append(y, out)
	}
	return y
}

func (e *exactT5) mul(x [][]float64, name string) (y [][]float64) {
	m := e.tensors[name]
	for _, row := range x {
		out := make([]float64, len(m.v)/m.cols)
		for r := range out {
			out[r] = dot64(row, m.v[r*m.cols:])
		}
		y = append(y, out)
	}
	return y
}

// dot64 multiplies a with the beginning of b.
func dot64(a, b []float64) (sum float64) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// attend adds to x what its rows h read from the rows of over.
func (e *exactT5) attend(x, h, over [][]float64, prefix, bias string, causal bool) {
	q, k, v := e.mul(h, prefix+"q"), e.mul(over, prefix+"k"), e.mul(over, prefix+"v")
	out := make([][]float64, len(q))
	for i := range q {
		out[i] = make([]float64, len(q[i]))
		keys := len(k)
		if causal {
			keys = i + 1
		}
		for head := range e.c.Heads {
			lo, hi := head*e.c.HeadDim, (head+1)*e.c.HeadDim
			scores, top, sum := make([]float64, keys), math.Inf(-1), 0.0
			for j := range scores {
				scores[j] = dot64(q[i][lo:hi], k[j][lo:hi])
				if bias != "" {
					scores[j] += e.tensors[bias].v[t5Bucket(j-i, e.c, !causal)*e.c.Heads+head]
				}
				top = max(top, scores[j])
			}
			for j, s := range scores {
				scores[j] = math.Exp(s - top)
				sum += scores[j]
			}
			for j, s := range scores {
				for d := lo; d < hi; d++ {
					out[i][d] += s / sum * v[j][d]
				}
			}
		}
	}
	addTo(x, e.mul(out, prefix+"o"))
}

// t5Bucket is _relative_position_bucket of transformers, whose logarithms are float32.
func t5Bucket(distance int, c *Config, bothWays bool) (bucket int) {
	buckets := c.RelBuckets
	if bothWays {
		if buckets /= 2; distance > 0 {
			bucket = buckets
		}
		distance = max(distance, -distance)
	} else {
		distance = max(-distance, 0)
	}
	exact := buckets / 2
	if distance < exact {
		return bucket + distance
	}
	part := float32(math.Log(float64(float32(distance)/float32(exact)))) / float32(math.Log(float64(c.RelDistance)/float64(exact)))
	return bucket + min(exact+int(part*float32(buckets-exact)), buckets-1)
}

func (e *exactT5) feedForward(x [][]float64, blk string) {
	h := e.norm(x, blk+"ffn_norm")
	up := e.mul(h, blk+"ffn_up")
	if _, gated := e.tensors[blk+"ffn_gate"]; gated {
		gate := e.mul(h, blk+"ffn_gate")
		// wi_0 goes through the activation, wi_1 is the other factor
		for i, row := range gate {
			for j, g := range row {
				up[i][j] *= 0.5 * g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g)))
			}
		}
	} else {
		for _, row := range up {
			for j, v := range row {
				row[j] = max(v, 0)
			}
		}
	}
	addTo(x, e.mul(up, blk+"ffn_down"))
}

func addTo(x, y [][]float64) {
	for i, row := range y {
		for j, v := range row {
			x[i][j] += v
		}
	}
}
