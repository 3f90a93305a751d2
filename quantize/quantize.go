// Package quantize writes a model, a GGUF file or a safetensors folder, as GGUF with its matrices in other weight formats:
// one for all, or a mix that spends bits where errors count most, rounded with or without importances of the columns.
package quantize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"quickdraft/eval"
	"quickdraft/internal/disk"
	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// Options say how File reports what it does. Nil functions are not called.
type Options struct {
	Threads  int                     // goroutines that encode; 0: as many as run at once
	Note     func(line string)       // matrices that take another type than asked for: a line for each pair of types
	Progress func(done, total int64) // bytes of the source read so far and in all
	// Importance, if set, says which columns' errors count more, for the types that can make a difference.
	Importance *eval.Importance
}

// Result sums a run up.
type Result struct {
	Tensors   int   // in the file
	Converted int   // those that changed their type
	FellBack  int   // matrices in a type of smaller blocks than asked for
	Weighted  int   // matrices that were rounded by importances
	InBytes   int64 // of tensor data
	OutBytes  int64
}

// smaller is the next type to try when columns do not fill a type's blocks: of about the same bits a weight in blocks of
// 32, then two bytes a weight, which fits everything.
var smaller = map[gguf.Type]gguf.Type{
	gguf.TypeQ2_K: gguf.TypeIQ4_NL, gguf.TypeQ3_K: gguf.TypeIQ4_NL, gguf.TypeQ4_K: gguf.TypeQ5_0, gguf.TypeQ5_K: gguf.TypeQ5_1,
	gguf.TypeQ6_K: gguf.TypeQ8_0, gguf.TypeIQ4_XS: gguf.TypeIQ4_NL,
}

// exact are small matrices: routers, where a token that goes to another expert is a large error, and T5's position biases,
// which add to all scores of a head.
var exact = []string{"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "attn_rel_b.weight"}

// Type is the type that a tensor takes when a file is quantized to want, and whether its columns do not fill want's
// blocks. Vectors, routers, position biases and what is not a weight stay as exact as float32.
func Type(name string, dims []int, want gguf.Type) (t gguf.Type, fellBack bool) {
	rows := 1
	for _, d := range dims[1:] {
		rows *= d
	}
	if rows == 1 || !strings.HasSuffix(name, ".weight") {
		return gguf.TypeF32, false
	}
	for _, r := range exact {
		if strings.HasSuffix(name, r) {
			return gguf.TypeF32, false
		}
	}
	t = want
	for dims[0]%t.BlockSize() != 0 {
		next, ok := smaller[t]
		if !ok {
			next = gguf.TypeF16
		}
		t, fellBack = next, true
	}
	return t, fellBack
}

// File writes the model at in, a GGUF file or a safetensors folder, to out with its matrices in the target's types.
// Metadata is copied, or made from the folder's configuration and tokenizer; the parts of a split model become one file. out
// appears when it is complete; before anything is computed it is known that it can be written and that there is room. Nothing
// is left when ctx ends before. Errors name the file and the tensor.
func File(ctx context.Context, in, out string, t Target, o Options) (Result, error) {
	src, err := open(in)
	if err != nil {
		return Result{}, err
	}
	if err := disk.Check(out, src.files...); err != nil {
		return Result{}, errors.Join(err, src.close())
	}
	r := &run{source: src, Options: o, target: t}
	if r.Threads < 1 {
		r.Threads = runtime.GOMAXPROCS(0)
	}
	err = r.write(ctx, out)
	return r.Result, errors.Join(err, src.close())
}

type run struct {
	Options
	Result
	*source
	target  Target
	instead []instead
	done    int64
}

// instead counts the matrices whose columns do not fill the blocks of the type that they were to have.
type instead struct {
	want, to gguf.Type
	n        int
	first    *sourceTensor
}

// note says it of them all in one line, for a model may have hundreds.
func (s *instead) note() string {
	one := fmt.Sprintf("%s (%d columns)", s.first.Name, s.first.cols())
	if s.n > 1 {
		one = fmt.Sprintf("%d matrices, %s first", s.n, one)
	}
	return fmt.Sprintf("%s: columns do not fill blocks of %v, which hold %d: %v instead", one, s.want, s.want.BlockSize(), s.to)
}

func (r *run) write(ctx context.Context, out string) error {
	w := gguf.NewWriter()
	r.metadata(w)
	for i := range r.tensors {
		t := &r.tensors[i]
		to := r.choose(t)
		weights, err := r.weights(t, to)
		if err != nil {
			return err
		}
		r.Tensors++
		r.InBytes += t.bytes()
		r.OutBytes += int64(t.rows()) * int64(to.RowBytes(t.cols()))
		if to != t.Type {
			r.Converted++
		}
		w.AddTensorFunc(t.Name, to, t.Dims, func(w io.Writer) error { return r.tensor(w, t, to, weights) })
	}
	if r.Importance != nil && r.Weighted == 0 {
		return fmt.Errorf("importances of %d tensors: none fits a matrix of %s that is converted to a type that takes them", len(r.Importance.Names()), r.path)
	}
	if err := disk.CheckRoom(out, r.OutBytes); err != nil {
		return err
	}
	for i := 0; r.Note != nil && i < len(r.instead); i++ {
		r.Note(r.instead[i].note())
	}
	return w.WriteFileContext(ctx, out)
}

// choose settles the type of a tensor and counts it when its columns ask for another than the target's.
func (r *run) choose(t *sourceTensor) gguf.Type {
	want := r.want(t)
	to, fellBack := Type(t.Name, t.Dims, want)
	if !fellBack {
		return to
	}
	r.FellBack++
	i := slices.IndexFunc(r.instead, func(s instead) bool { return s.want == want && s.to == to })
	if i < 0 {
		i = len(r.instead)
		r.instead = append(r.instead, instead{want: want, to: to, first: t})
	}
	r.instead[i].n++
	return to
}

// want is the type that the target gives a tensor.
func (r *run) want(t *sourceTensor) gguf.Type {
	m := r.shape
	m.parse(t.Name)
	m.isOutput = t.Name == "output.weight" || t.Name == "token_embd.weight" && !r.hasOutput
	return r.target.typeOf(&m)
}

// weights returns the importances of a tensor's columns, of all its rows or of each expert's. Nil: there are none, or the
// type has no use for them.
func (r *run) weights(t *sourceTensor, to gguf.Type) ([][]float32, error) {
	format, _ := quant.Get(to)
	if r.Importance == nil || to == t.Type || format.EncodeWeighted == nil {
		return nil, nil
	}
	parts := r.Importance.Columns(t.Name, t.cols())
	if parts == nil {
		for _, name := range t.Sources {
			parts = append(parts, r.Importance.Columns(name, t.cols())...)
		}
	}
	if parts == nil {
		return nil, nil
	}
	if t.rows()%len(parts) != 0 {
		return nil, fmt.Errorf("%s: tensor %q: importances of %d parts for %d rows", r.path, t.Name, len(parts), t.rows())
	}
	r.Weighted++
	return parts, nil
}

// metadata says what the file holds now.
func (r *run) metadata(w *gguf.Writer) {
	r.source.metadata(w)
	w.Set("general.file_type", r.target.fileType)
	if base := r.target.Base; base != gguf.TypeF32 && base != gguf.TypeF16 && base != gguf.TypeBF16 {
		w.Set("general.quantization_version", uint32(2))
	}
	if im := r.Importance; im != nil {
		w.Set("quantize.imatrix.dataset", strings.Join(im.Datasets, ", "))
		w.Set("quantize.imatrix.entries_count", uint32(len(im.Names())))
		w.Set("quantize.imatrix.chunks_count", uint32(im.Windows))
	}
}

// chunkWeights is the number of weights that a goroutine converts at a time.
const chunkWeights = 1 << 20

// tensor writes one tensor, chunks of rows at a time.
func (r *run) tensor(w io.Writer, t *sourceTensor, to gguf.Type, weights [][]float32) error {
	rows, cols := t.rows(), t.cols()
	chunk := max(1, chunkWeights/cols)
	c := &converter{t: t, to: to, cols: cols, weights: weights, buffers: make([]buffer, r.Threads)}
	for row := 0; row < rows; {
		var wg sync.WaitGroup
		first := row
		used := 0
		for ; used < r.Threads && row < rows; used++ {
			b, n := &c.buffers[used], min(chunk, rows-row)
			from := row
			wg.Go(func() { c.convert(b, from, n) })
			row += n
		}
		wg.Wait()
		for i := range used {
			b := &c.buffers[i]
			if b.err != nil {
				return fmt.Errorf("%s: tensor %q: %w", r.path, t.Name, b.err)
			}
			if _, err := w.Write(b.out); err != nil {
				return err
			}
		}
		r.done += int64(row-first) * int64(t.Type.RowBytes(cols))
		if r.Progress != nil {
			r.Progress(r.done, r.InBytes)
		}
	}
	t.Release()
	return nil
}

// converter turns rows of one tensor into another type.
type converter struct {
	t       *sourceTensor
	to      gguf.Type
	cols    int
	weights [][]float32 // importances of the columns; see run.weights
	buffers []buffer
}

type buffer struct {
	values []float32
	raw    []byte // rows that do not follow one another in the file
	space  []byte
	out    []byte // what is to be written: a part of space, or as the file has it
	err    error
}

// convert converts n rows from the given one into b.
func (c *converter) convert(b *buffer, row, n int) {
	from, _ := quant.Get(c.t.Type)
	to, _ := quant.Get(c.to)
	src := c.t.Rows(&b.raw, row, n)
	if bad, ok := quant.CheckScales(c.t.Type, src, c.cols); !ok {
		b.err = fmt.Errorf("row %d holds a value or a scale that is not a finite number", row+bad)
		return
	}
	if c.t.Type == c.to {
		b.out = src
		return
	}
	if b.space == nil {
		b.values, b.space = make([]float32, n*c.cols), make([]byte, n*to.RowBytes(c.cols))
	}
	values := b.values[:n*c.cols]
	b.out = b.space[:n*to.RowBytes(c.cols)]
	from.Decode(values, src)
	c.encode(to, b.out, values, row)
	// A finite value may leave the range of a smaller type: 1e30 is infinite in F16.
	if bad, ok := quant.CheckScales(c.to, b.out, c.cols); !ok {
		b.err = fmt.Errorf("row %d holds a value that is out of the range of %v", row+bad, c.to)
	}
}

// encode encodes rows from the given one, with the importances of their columns where there are some.
func (c *converter) encode(to *quant.Format, dst []byte, values []float32, row int) {
	if c.weights == nil {
		to.Encode(dst, values)
		return
	}
	perPart, rowBytes := c.t.rows()/len(c.weights), to.RowBytes(c.cols)
	for i := range len(values) / c.cols {
		to.EncodeWeighted(dst[i*rowBytes:][:rowBytes], values[i*c.cols:][:c.cols], c.weights[(row+i)/perPart])
	}
}
