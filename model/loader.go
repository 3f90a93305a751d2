package model

import (
	"fmt"
	"strings"

	"quickdraft/quant"
	"quickdraft/tensor"
)

// loader hands an architecture its tensors, checked and repacked. The first error sticks, later calls do nothing, so that
// a build function reads as the list of its weights.
type loader struct {
	cfg    *Config
	arch   architecture
	fields *fields
	src    weights
	pool   *tensor.Pool
	opts   Options
	err    error
	store  *tileStore

	mats     []*tensor.Mat
	used     map[string]bool // names in the file
	perToken int64           // bytes of weights that one token reads
	macs     int64           // multiply-adds of one token's weights, the output matrix left out
	outMACs  int64           // of one row of logits
	out      *tensor.Mat     // what output returned
	done     int64
	total    int64
}

// raw finds a tensor and checks its shape.
func (l *loader) raw(name string, rows, cols int) (rawTensor, bool) {
	if l.err != nil {
		return rawTensor{}, false
	}
	t, ok := l.src.find(name)
	if !ok {
		l.err = fmt.Errorf("%s: tensor %q: missing, or not of a supported type; %s needs it with shape (%d, %d)",
			l.src.fileOf(""), l.src.fileName(name), l.cfg.Arch, rows, cols)
		return rawTensor{}, false
	}
	l.used[t.name] = true
	if t.rows != rows || t.cols != cols {
		l.err = fmt.Errorf("%s: tensor %q: shape %s: the hyper-parameters want %d rows of %d", l.src.fileOf(t.name), t.name, t.shape, rows, cols)
		return rawTensor{}, false
	}
	return t, true
}

// mat is a matrix that every token reads.
func (l *loader) mat(name string, rows, cols int) *tensor.Mat {
	t, ok := l.raw(name, rows, cols)
	if !ok {
		return nil
	}
	return l.pack(t, nil, 1)
}

// matF32 is a small matrix that stays float32 whatever the file's type.
func (l *loader) matF32(name string, rows, cols int) *tensor.Mat {
	t, ok := l.raw(name, rows, cols)
	if !ok {
		return nil
	}
	m, err := tensor.NewMatF32(t.name, t.typ, t.rows, t.cols, t.data, nil, l.pool)
	return l.keep(t, m, err, 1)
}

// rows is the part [from, from+n) of a matrix whose rows hold several projections, (all, cols).
func (l *loader) rows(name string, from, n, all, cols int) *tensor.Mat {
	t, ok := l.raw(name, all, cols)
	if !ok {
		return nil
	}
	return l.pack(t.part(from, n), nil, 1)
}

// ropeMat is a q or k projection. Forward turns halves of a head, (i, i+Dim/2); GGUF files of some architectures hold the
// rows permuted so that neighbours (2i, 2i+1) turn, which is undone here.
func (l *loader) ropeMat(name string, heads, cols int) *tensor.Mat {
	t, ok := l.raw(name, heads*l.cfg.HeadDim, cols)
	if !ok {
		return nil
	}
	return l.pack(t, l.unpermute(), 1)
}

func (l *loader) unpermute() func(row int) int {
	if !l.arch.pairedRope || !l.fields.isGGUF {
		return nil
	}
	headDim, half := l.cfg.HeadDim, l.cfg.Rope.Dim/2
	return func(row int) int {
		head, i := row/headDim, row%headDim
		if i >= 2*half {
			return row
		}
		return head*headDim + 2*(i%half) + i/half
	}
}

// pack repacks a matrix; share is the part of it that one token reads.
func (l *loader) pack(t rawTensor, rowAt func(int) int, share float64) *tensor.Mat {
	pack := tensor.NewMat
	if l.opts.F32 {
		pack = tensor.NewMatF32
	}
	m, err := l.store.take(t)
	if m == nil && err == nil {
		if m, err = pack(t.name, t.typ, t.rows, t.cols, t.data, rowAt, l.pool); err == nil {
			l.store.put(m)
		}
	}
	return l.keep(t, m, err, share)
}

// keep takes a packed matrix over.
func (l *loader) keep(t rawTensor, m *tensor.Mat, err error, share float64) *tensor.Mat {
	if err != nil {
		l.err = fmt.Errorf("%s: %w", l.src.fileOf(t.name), err)
		return nil
	}
	l.mats = append(l.mats, m)
	l.perToken += int64(float64(len(m.Tiles)) * share)
	l.macs += int64(float64(m.Rows*m.Cols) * share)
	l.finish(t)
	return m
}

// finish gives the file's pages of a tensor back and reports progress.
func (l *loader) finish(t rawTensor) {
	l.src.release(t)
	l.done += int64(len(t.data))
	if l.opts.Progress != nil {
		l.opts.Progress(l.done, l.total)
	}
	if l.opts.Stop != nil && l.err == nil {
		l.err = l.opts.Stop()
	}
}

// embedding is the token embedding, (Vocab, Dim). Its rows say how long a logits row is; the vocabulary may be shorter.
func (l *loader) embedding() *tensor.Mat {
	const name = "token_embd.weight"
	c := l.cfg
	if t, ok := l.src.find(name); ok && l.err == nil {
		if t.rows < c.Tokens {
			l.err = fmt.Errorf("%s: tensor %q: shape %s: %d rows for a vocabulary of %d tokens", l.src.fileOf(t.name), t.name, t.shape, t.rows, c.Tokens)
		}
		c.Vocab = t.rows
	} else if l.err == nil {
		rows := "one for each token"
		if c.Tokens > 0 {
			rows = fmt.Sprint("at least ", c.Tokens)
		}
		l.err = fmt.Errorf("%s: tensor %q: missing, or not of a supported type; %s needs it with rows of %d, %s",
			l.src.fileOf(""), l.src.fileName(name), c.Arch, c.Dim, rows)
	}
	t, ok := l.raw(name, c.Vocab, c.Dim)
	if !ok {
		return nil
	}
	return l.pack(t, nil, 0) // a token reads one row
}

// output is the matrix that makes logits, (Vocab, Dim): the file's own, or the embedding again when it has none. A
// config.json that ties them decides even when the file holds both.
func (l *loader) output(embed *tensor.Mat) *tensor.Mat {
	l.out = l.outputOf(embed)
	return l.out
}

func (l *loader) outputOf(embed *tensor.Mat) *tensor.Mat {
	const name = "output.weight"
	l.outMACs = int64(l.cfg.Vocab) * int64(l.cfg.Dim)
	t, ok := l.src.find(name)
	if ok && !(l.cfg.TiedOutput && !l.fields.isGGUF) {
		l.macs -= l.outMACs
		return l.mat(name, l.cfg.Vocab, l.cfg.Dim)
	}
	l.used[t.name] = true
	if l.err != nil {
		return nil
	}
	if !l.fields.isGGUF && !l.cfg.TiedOutput {
		l.raw(name, l.cfg.Vocab, l.cfg.Dim) // reports it as missing
		return nil
	}
	l.perToken += int64(len(embed.Tiles))
	return embed
}

// vec is a vector of n float32.
func (l *loader) vec(name string, n int) []float32 {
	t, ok := l.raw(name, 1, n)
	if !ok {
		return nil
	}
	return l.decode(t)
}

// values is a small matrix as float32, (rows, cols).
func (l *loader) values(name string, rows, cols int) []float32 {
	t, ok := l.raw(name, rows, cols)
	if !ok {
		return nil
	}
	return l.decode(t)
}

func (l *loader) decode(t rawTensor) []float32 {
	format, ok := quant.Get(t.typ)
	if !ok {
		l.err = fmt.Errorf("%s: tensor %q: type %s is not supported", l.src.fileOf(t.name), t.name, t.typ)
		return nil
	}
	if row, ok := quant.CheckScales(t.typ, t.data, t.cols); !ok {
		l.err = fmt.Errorf("%s: tensor %q: row %d holds a NaN or infinite value", l.src.fileOf(t.name), t.name, row)
		return nil
	}
	v := make([]float32, t.rows*t.cols)
	format.Decode(v, t.data)
	l.finish(t)
	return v
}

// norm is the weight of an RMS norm, as a factor.
func (l *loader) norm(name string, n int) []float32 {
	w := l.vec(name, n)
	if l.arch.normPlus1 && !l.fields.isGGUF {
		for i := range w {
			w[i]++
		}
	}
	return w
}

// bias is a vector that may be absent (nil) unless it is needed.
func (l *loader) bias(name string, n int, need bool) []float32 {
	if !need && !l.has(name) {
		return nil
	}
	return l.vec(name, n)
}

// ropeBias is the bias of a ropeMat.
func (l *loader) ropeBias(name string, heads int, need bool) []float32 {
	b := l.bias(name, heads*l.cfg.HeadDim, need)
	rowAt := l.unpermute()
	if b == nil || rowAt == nil {
		return b
	}
	out := make([]float32, len(b))
	for i := range out {
		out[i] = b[rowAt(i)]
	}
	return out
}

// ropeTable makes a rope; a rope_freqs tensor in the file replaces the scaling that the metadata asks for.
func (l *loader) ropeTable(r Rope) tensor.Rope {
	const name = "rope_freqs.weight"
	if l.has(name) {
		r.Divisors = l.divisors(name, r.Dim/2)
	}
	if l.err != nil {
		return tensor.Rope{}
	}
	return r.table()
}

// divisors are factors that rope frequencies are divided by.
func (l *loader) divisors(name string, n int) []float32 {
	v := l.vec(name, n)
	for i, d := range v {
		if !(d > 0) && l.err == nil {
			l.err = fmt.Errorf("%s: tensor %q: value %d is %g: want a divisor above 0", l.src.fileOf(l.src.fileName(name)), name, i, d)
		}
	}
	return v
}

// has says whether the file holds a tensor.
func (l *loader) has(name string) bool {
	_, ok := l.src.find(name)
	return ok
}

// ignored are tensors inside a layer that older checkpoints hold and nothing reads.
var ignored = []string{".rotary_emb.inv_freq", ".attn.masked_bias", ".attn.bias", ".attn_rot_embd.weight"}

// checkUnused refuses a file with tensors in a layer that Forward would leave out: it would compute something else.
func (l *loader) checkUnused() {
next:
	for _, name := range l.src.names() {
		layer, inLayer := layerOf(name)
		if l.used[name] || !inLayer || layer >= l.cfg.Layers {
			continue
		}
		for _, suffix := range ignored {
			if strings.HasSuffix(name, suffix) {
				continue next
			}
		}
		l.err = fmt.Errorf("%s: tensor %q: %s as implemented here has no such tensor", l.src.fileOf(name), name, l.cfg.Arch)
		return
	}
}

// layerOf is the number after "blk." or "model.layers." in a tensor's name.
func layerOf(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		rest, ok = strings.CutPrefix(name, "model.layers.")
	}
	var n int
	if _, err := fmt.Sscanf(rest, "%d.", &n); !ok || err != nil {
		return 0, false
	}
	return n, true
}
