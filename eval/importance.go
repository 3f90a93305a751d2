package eval

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"quickdraft/model"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

// Importance says how much the columns of matrices matter: an error in a weight reaches the output times the activation
// of its column, so that its square counts in proportion to the activation's mean square.
type Importance struct {
	Datasets []string // files whose text was read
	Windows  int
	Context  int // tokens of a window
	names    []string
	columns  map[string]*columns
}

// columns are the sums of one tensor.
type columns struct {
	cols   int
	sums   []float64 // (parts, cols): squared activations
	counts []float64 // (parts): tokens; experts see different ones
}

func newImportance() *Importance { return &Importance{columns: map[string]*columns{}} }

// seen reports whether any token came by.
func (c *columns) seen() bool {
	return slices.ContainsFunc(c.counts, func(n float64) bool { return n > 0 })
}

// add makes room for a tensor's parts; a known tensor keeps what it has.
func (im *Importance) add(name string, cols, parts int) *columns {
	if c, ok := im.columns[name]; ok {
		return c
	}
	c := &columns{cols: cols, sums: make([]float64, parts*cols), counts: make([]float64, parts)}
	im.names = append(im.names, name)
	im.columns[name] = c
	return c
}

// Names are the tensors in the order in which the model has them.
func (im *Importance) Names() []string { return slices.Clone(im.names) }

// Columns returns the mean squared activations of a tensor's columns, (parts, cols): one part, or one for each expert.
// A part is nil where no token came by; all is nil where none came by any, or the tensor is not known with that many columns.
func (im *Importance) Columns(name string, cols int) [][]float32 {
	c, ok := im.columns[name]
	if !ok || c.cols != cols || !c.seen() {
		return nil
	}
	parts := make([][]float32, len(c.counts))
	for p, n := range c.counts {
		if n == 0 {
			continue
		}
		parts[p] = make([]float32, cols)
		for i, sum := range c.sums[p*cols : (p+1)*cols] {
			parts[p][i] = float32(sum / n)
		}
	}
	return parts
}

// part is the place where a matrix's activations are summed.
type part struct {
	*columns
	index int
}

func (p part) see(x tensor.F32) {
	sums := p.sums[p.index*p.cols:][:p.cols]
	for i := range x.Rows {
		for k, v := range x.Row(i)[:p.cols] {
			sums[k] += float64(float64(v) * float64(v))
		}
	}
	p.counts[p.index] += float64(x.Rows)
}

// parts finds the place of every matrix: experts have one each, the other parts of a tensor share one.
func (im *Importance) parts(m *model.Model) map[*tensor.Mat]part {
	total := map[string]int{}
	for _, w := range m.Mats() {
		if isExpert(w.Name) {
			total[w.Name]++
		}
	}
	places, next := map[*tensor.Mat]part{}, map[string]int{}
	for _, w := range m.Mats() {
		c := im.add(w.Name, w.Cols, max(total[w.Name], 1))
		places[w] = part{c, next[w.Name]}
		if total[w.Name] > 0 {
			next[w.Name]++
		}
	}
	return places
}

// isExpert reports whether a tensor holds the matrices of several experts.
func isExpert(name string) bool {
	return strings.HasSuffix(strings.TrimSuffix(name, ".weight"), "_exps")
}

// Collect reads the text as Measure does and sums the squared activations of all matrices. It returns the perplexity too:
// one that is far off says that text and model do not fit.
func Collect(ctx context.Context, m *model.Model, ids []int32, dataset string, o Options) (*Importance, *Perplexity, error) {
	im := newImportance()
	places := im.parts(m)
	m.Watch(&tensor.Watch{MatMul: func(w *tensor.Mat, x tensor.F32) {
		if p, ok := places[w]; ok {
			p.see(x)
		}
	}})
	defer m.Watch(nil)
	p, err := Measure(ctx, m, ids, o)
	if err != nil {
		return nil, nil, err
	}
	im.Datasets, im.Windows, im.Context = []string{filepath.Base(dataset)}, p.Windows, p.Context
	return im, p, nil
}

// Keys and suffixes of importance files, those of llama.cpp's: for each tensor its name with ".in_sum2", (parts, cols),
// and with ".counts", (parts, 1).
const (
	importanceType = "imatrix"
	keyDatasets    = "imatrix.datasets"
	keyWindows     = "imatrix.chunk_count"
	keyContext     = "imatrix.chunk_size"
	sumsSuffix     = ".in_sum2"
	countsSuffix   = ".counts"
)

// WriteFile writes the sums to a GGUF file. Tensors that no token has seen are left out.
func (im *Importance) WriteFile(path string) error {
	w := gguf.NewWriter()
	w.Set("general.type", importanceType)
	w.Set(keyDatasets, im.Datasets)
	w.Set(keyWindows, uint32(im.Windows))
	w.Set(keyContext, uint32(im.Context))
	for _, name := range im.names {
		c := im.columns[name]
		if !c.seen() {
			continue
		}
		w.AddTensor(name+sumsSuffix, gguf.TypeF32, []int{c.cols, len(c.counts)}, floatBytes(c.sums))
		w.AddTensor(name+countsSuffix, gguf.TypeF32, []int{1, len(c.counts)}, floatBytes(c.counts))
	}
	return w.WriteFile(path)
}

// ReadImportance reads a file of WriteFile or of llama.cpp. Errors name the file and the tensor.
func ReadImportance(path string) (*Importance, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if kind, _ := f.String("general.type"); kind != importanceType {
		return nil, f.KeyError("general.type", "want %q: the file holds no importances", importanceType)
	}
	im := newImportance()
	im.Datasets = f.Strings(keyDatasets)
	windows, _ := f.Uint(keyWindows)
	size, _ := f.Uint(keyContext)
	im.Windows, im.Context = int(min(windows, math.MaxInt32)), int(min(size, math.MaxInt32))
	for _, sums := range f.Tensors() {
		name, ok := strings.CutSuffix(sums.Name, sumsSuffix)
		if !ok {
			continue
		}
		counts, ok := f.Tensor(name + countsSuffix)
		if !ok || sums.Type != gguf.TypeF32 || counts.Type != gguf.TypeF32 || counts.Cols() != 1 || counts.Rows() != sums.Rows() {
			return nil, f.TensorError(sums.Name, "want F32 with as many rows as %q has", name+countsSuffix)
		}
		c := im.add(name, sums.Cols(), sums.Rows())
		if !fromBytes(c.sums, sums.Data) || !fromBytes(c.counts, counts.Data) {
			return nil, f.TensorError(sums.Name, "holds a sum or a count that is negative or not a number")
		}
	}
	if len(im.names) == 0 {
		return nil, fmt.Errorf("%s: holds no tensor with sums: want names that end in %q", path, sumsSuffix)
	}
	return im, nil
}
