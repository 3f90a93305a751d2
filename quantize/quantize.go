// Package quantize writes a GGUF model again with its matrices in another weight format.
package quantize

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"

	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// Options say how File reports what it does. Nil functions are not called.
type Options struct {
	Threads  int                     // goroutines that encode; 0: as many as run at once
	Note     func(line string)       // a matrix that takes another type than asked for
	Progress func(done, total int64) // bytes of the source read so far and in all
}

// Result sums a run up.
type Result struct {
	Tensors   int   // in the file
	Converted int   // those that changed their type
	FellBack  int   // matrices in a type of smaller blocks than asked for
	InBytes   int64 // of tensor data
	OutBytes  int64
}

// smaller is the next type to try when columns do not fill a type's blocks: of about the same bits a weight in blocks of
// 32, then two bytes a weight, which fits everything.
var smaller = map[gguf.Type]gguf.Type{
	gguf.TypeQ2_K: gguf.TypeQ4_0, gguf.TypeQ3_K: gguf.TypeQ4_0, gguf.TypeQ4_K: gguf.TypeQ5_0, gguf.TypeQ5_K: gguf.TypeQ5_1,
	gguf.TypeQ6_K: gguf.TypeQ8_0, gguf.TypeIQ4_XS: gguf.TypeIQ4_NL,
}

// routers choose experts. They are small, and a token that goes to another expert is a large error.
var routers = []string{"ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight"}

// Type is the type that a tensor takes when a file is quantized to want, and whether its columns do not fill want's
// blocks. Vectors, routers and what is not a weight stay as exact as float32.
func Type(name string, dims []int, want gguf.Type) (t gguf.Type, fellBack bool) {
	rows := 1
	for _, d := range dims[1:] {
		rows *= d
	}
	if rows == 1 || !strings.HasSuffix(name, ".weight") {
		return gguf.TypeF32, false
	}
	for _, r := range routers {
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

// File writes the model at in to out with its matrices in type t. Metadata is copied; the parts of a split model become
// one file. out appears when it is complete. Errors name the file and the tensor.
func File(in, out string, t gguf.Type, o Options) (Result, error) {
	if _, ok := quant.Get(t); !ok {
		return Result{}, fmt.Errorf("type %v: want one of %v", t, gguf.Types())
	}
	a, errIn := os.Stat(in)
	if b, err := os.Stat(out); err == nil && errIn == nil && os.SameFile(a, b) {
		return Result{}, fmt.Errorf("%s: is the model that is read, want another name for what is written", out)
	}
	f, err := gguf.Open(in)
	if err != nil {
		return Result{}, err
	}
	r := &run{file: f, Options: o, want: t}
	if r.Threads < 1 {
		r.Threads = runtime.GOMAXPROCS(0)
	}
	err = r.write(out)
	return r.Result, errors.Join(err, f.Close())
}

type run struct {
	Options
	Result
	file *gguf.File
	want gguf.Type
	done int64
}

func (r *run) write(out string) error {
	w := gguf.NewWriter()
	if err := r.metadata(w); err != nil {
		return err
	}
	for _, t := range r.file.Tensors() {
		to, fellBack := Type(t.Name, t.Dims, r.want)
		if fellBack {
			r.FellBack++
			if r.Note != nil {
				r.Note(fmt.Sprintf("%s: %d columns do not fill blocks of %v, which hold %d: %v instead", t.Name, t.Cols(), r.want,
					r.want.BlockSize(), to))
			}
		}
		r.Tensors++
		r.InBytes += int64(len(t.Data))
		r.OutBytes += int64(t.Rows()) * int64(to.RowBytes(t.Cols()))
		if to != t.Type {
			r.Converted++
		}
		w.AddTensorFunc(t.Name, to, t.Dims, func(w io.Writer) error { return r.tensor(w, t, to) })
	}
	return w.WriteFile(out)
}

// metadata copies all keys but those of a split model and says what the file holds now.
func (r *run) metadata(w *gguf.Writer) error {
	for _, key := range r.file.Keys() {
		if strings.HasPrefix(key, "split.") {
			continue
		}
		v, _ := r.file.Value(key)
		w.Set(key, v)
	}
	fileType, ok := r.want.FileType()
	if !ok {
		return fmt.Errorf("type %v: has no general.file_type", r.want)
	}
	w.Set("general.file_type", fileType)
	if r.want != gguf.TypeF32 && r.want != gguf.TypeF16 && r.want != gguf.TypeBF16 {
		w.Set("general.quantization_version", uint32(2))
	}
	return nil
}

// chunkWeights is the number of weights that a goroutine converts at a time.
const chunkWeights = 1 << 20

// tensor writes one tensor, chunks of rows at a time.
func (r *run) tensor(w io.Writer, t *gguf.Tensor, to gguf.Type) error {
	rows, cols := t.Rows(), t.Cols()
	chunk := max(1, chunkWeights/cols)
	c := &converter{t: t, to: to, cols: cols, buffers: make([]buffer, r.Threads)}
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
				return r.file.TensorError(t.Name, "%v", b.err)
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
	r.file.Release(t)
	return nil
}

// converter turns rows of one tensor into another type.
type converter struct {
	t       *gguf.Tensor
	to      gguf.Type
	cols    int
	buffers []buffer
}

type buffer struct {
	values []float32
	space  []byte
	out    []byte // what is to be written: a part of space, or of the file
	err    error
}

// convert converts n rows from the given one into b.
func (c *converter) convert(b *buffer, row, n int) {
	from, _ := quant.Get(c.t.Type)
	to, _ := quant.Get(c.to)
	rowBytes := from.RowBytes(c.cols)
	src := c.t.Data[row*rowBytes : (row+n)*rowBytes]
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
	to.Encode(b.out, values)
	// A finite value may leave the range of a smaller type: 1e30 is infinite in F16.
	if bad, ok := quant.CheckScales(c.to, b.out, c.cols); !ok {
		b.err = fmt.Errorf("row %d holds a value that is out of the range of %v", row+bad, c.to)
	}
}
