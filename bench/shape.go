package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"quickdraft/internal/disk"
	"quickdraft/machine"
	"quickdraft/model"
	"quickdraft/modelfile/gguf"
)

// Shape is the dimensions of a model whose weights are made up.
type Shape struct {
	Name                        string
	Arch                        string
	Layers, Dim, Heads, KVHeads int
	HeadDim, FF, Vocab, Context int
	RopeBase, Eps               float32
	Tied                        bool // the embedding makes the logits too
	AttnBias                    bool
}

// shapes are the models whose timing is asked for by name, as their config.json has them.
var shapes = map[string]Shape{
	"llama-3.2-1b": {
		Arch: "llama", Layers: 16, Dim: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, FF: 8192, Vocab: 128256, Context: 131072,
		RopeBase: 500000, Eps: 1e-5, Tied: true,
	},
	"llama-3.2-3b": {
		Arch: "llama", Layers: 28, Dim: 3072, Heads: 24, KVHeads: 8, HeadDim: 128, FF: 8192, Vocab: 128256, Context: 131072,
		RopeBase: 500000, Eps: 1e-5, Tied: true,
	},
	"qwen2.5-coder-7b": {
		Arch: "qwen2", Layers: 28, Dim: 3584, Heads: 28, KVHeads: 4, HeadDim: 128, FF: 18944, Vocab: 152064, Context: 32768,
		RopeBase: 1000000, Eps: 1e-6, AttnBias: true,
	},
}

// FindShape returns a shape by name; the error lists the names.
func FindShape(name string) (Shape, error) {
	s, ok := shapes[strings.ToLower(name)]
	if !ok {
		return s, fmt.Errorf("shape %q: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(shapes)), ", "))
	}
	s.Name = strings.ToLower(name)
	return s, nil
}

// Build makes a model of the shape in memory. All matrices have the type; its blocks must fill their rows.
func (s Shape) Build(t gguf.Type, o model.Options) (*model.Model, error) {
	w, size, err := s.writer(t)
	if err != nil {
		return nil, err
	}
	pages, err := machine.MapPages(int(size), true)
	if err != nil {
		return nil, fmt.Errorf("shape %s in %v: %w", s.Name, t, err)
	}
	defer pages.Free()
	n, err := w.WriteTo(&memory{rest: pages.Data})
	if err != nil {
		return nil, fmt.Errorf("shape %s in %v: %w", s.Name, t, err)
	}
	f, err := gguf.Parse(s.Name, pages.Data[:n])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o.TilesDir = ""
	return model.LoadGGUF(f, o)
}

// Write makes a GGUF file of the shape, with a vocabulary of made-up tokens, that other engines can load. When ctx
// ends before all is written there is no file.
func (s Shape) Write(ctx context.Context, path string, t gguf.Type) error {
	w, size, err := s.writer(t)
	if err != nil {
		return err
	}
	if err := disk.CheckRoom(path, size-headerRoom); err != nil {
		return err
	}
	return w.WriteFileContext(ctx, path)
}

// memory is a writer into a slice.
type memory struct{ rest []byte }

// Write copies b, or as much as there is room for.
func (m *memory) Write(b []byte) (int, error) {
	n := copy(m.rest, b)
	m.rest = m.rest[n:]
	if n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// headerRoom is enough for metadata and tensor descriptions of every shape.
const headerRoom = 64 << 20

// writer collects the file; size is at least that of the file.
func (s Shape) writer(t gguf.Type) (w *gguf.Writer, size int64, err error) {
	b := &shapeWriter{Writer: gguf.NewWriter(), typ: t, size: headerRoom, pools: map[int][]byte{}}
	s.metadata(b.Writer, t)
	b.mat("token_embd.weight", s.Vocab, s.Dim)
	b.vec("output_norm.weight", s.Dim, 1)
	if !s.Tied {
		b.mat("output.weight", s.Vocab, s.Dim)
	}
	heads, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	for i := range s.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		b.vec(blk+"attn_norm.weight", s.Dim, 1)
		b.mat(blk+"attn_q.weight", heads, s.Dim)
		b.mat(blk+"attn_k.weight", kv, s.Dim)
		b.mat(blk+"attn_v.weight", kv, s.Dim)
		if s.AttnBias {
			b.vec(blk+"attn_q.bias", heads, 0)
			b.vec(blk+"attn_k.bias", kv, 0)
			b.vec(blk+"attn_v.bias", kv, 0)
		}
		b.mat(blk+"attn_output.weight", s.Dim, heads)
		b.vec(blk+"ffn_norm.weight", s.Dim, 1)
		b.mat(blk+"ffn_gate.weight", s.FF, s.Dim)
		b.mat(blk+"ffn_up.weight", s.FF, s.Dim)
		b.mat(blk+"ffn_down.weight", s.Dim, s.FF)
	}
	return b.Writer, b.size, b.err
}

func (s Shape) metadata(w *gguf.Writer, t gguf.Type) {
	w.Set("general.architecture", s.Arch)
	w.Set("general.name", s.Name+" shape, random weights")
	if ftype, ok := t.FileType(); ok {
		w.Set("general.file_type", ftype)
	}
	w.Set("general.quantization_version", uint32(2))
	for _, kv := range []struct {
		key   string
		value int
	}{
		{"block_count", s.Layers}, {"context_length", s.Context}, {"embedding_length", s.Dim}, {"feed_forward_length", s.FF},
		{"attention.head_count", s.Heads}, {"attention.head_count_kv", s.KVHeads}, {"attention.key_length", s.HeadDim},
		{"attention.value_length", s.HeadDim}, {"rope.dimension_count", s.HeadDim}, {"vocab_size", s.Vocab},
	} {
		w.Set(s.Arch+"."+kv.key, uint32(kv.value))
	}
	w.Set(s.Arch+".rope.freq_base", s.RopeBase)
	w.Set(s.Arch+".attention.layer_norm_rms_epsilon", s.Eps)
	s.vocabulary(w)
}

// vocabulary is one of bytes, as GPT-2 writes them, one merge, tokens that no text makes, and two control tokens.
func (s Shape) vocabulary(w *gguf.Writer) {
	const normal, control = int32(1), int32(3)
	tokens := make([]string, 0, s.Vocab)
	shifted := rune(256)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xff && b != 0xad {
			tokens = append(tokens, string(b))
			continue
		}
		tokens = append(tokens, string(shifted))
		shifted++
	}
	tokens = append(tokens, "ĠĠ")
	types := make([]int32, s.Vocab)
	for i := range types {
		types[i] = normal
		if i >= len(tokens) {
			tokens = append(tokens, fmt.Sprintf("<t%d>", i))
		}
	}
	bos, eos := s.Vocab-2, s.Vocab-1
	types[bos], types[eos] = control, control
	w.Set("tokenizer.ggml.model", "gpt2")
	w.Set("tokenizer.ggml.pre", map[string]string{"llama": "llama-bpe", "qwen2": "qwen2"}[s.Arch])
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.token_type", types)
	w.Set("tokenizer.ggml.merges", []string{"Ġ Ġ"})
	w.Set("tokenizer.ggml.bos_token_id", uint32(bos))
	w.Set("tokenizer.ggml.eos_token_id", uint32(eos))
}

// shapeWriter adds tensors of made-up values.
type shapeWriter struct {
	*gguf.Writer
	typ   gguf.Type
	size  int64
	pools map[int][]byte // encoded weights by columns
	err   error
}

// poolRows is the number of different rows that a matrix is made of, turned by another amount each time they repeat.
// Timing does not depend on values, and 2000 MB of them take a while to make.
const poolRows = 251

// mat adds a matrix of normal weights that keep the size of what they multiply.
func (b *shapeWriter) mat(name string, rows, cols int) {
	if b.err != nil {
		return
	}
	pool, ok := b.pools[cols]
	if !ok {
		if pool, b.err = randomBlocks(b.typ, poolRows*cols, 1/math.Sqrt(float64(cols)), uint64(cols)); b.err != nil {
			b.err = fmt.Errorf("tensor %q: rows of %d weights: want a multiple of the %d of a block of %v", name, cols, b.typ.BlockSize(), b.typ)
			return
		}
		b.pools[cols] = pool
	}
	rowBytes := len(pool) / poolRows
	b.size += int64(rows*rowBytes) + 64
	b.AddTensorFunc(name, b.typ, []int{cols, rows}, func(w io.Writer) error {
		for row := 0; row < rows; {
			from := row / poolRows % poolRows
			n := min(poolRows-from, rows-row)
			if _, err := w.Write(pool[from*rowBytes : (from+n)*rowBytes]); err != nil {
				return err
			}
			row += n
		}
		return nil
	})
}

// vec adds a vector of one value.
func (b *shapeWriter) vec(name string, n int, value float32) {
	data := make([]byte, 0, 4*n)
	for range n {
		bits := math.Float32bits(value)
		data = append(data, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	b.size += int64(len(data)) + 64
	b.AddTensor(name, gguf.TypeF32, []int{n}, data)
}
