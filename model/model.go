// Package model turns a checkpoint into logits.
//
// Load reads a GGUF file or a safetensors folder, checks its hyper-parameters and tensors, and repacks the matrices. Each
// architecture is one file that registers itself and whose forward method reads top to bottom in execution order. Rows of
// logits are functions of weights and tokens alone: a prompt may be fed at once, in chunks, token by token, beside other
// sequences, or as a tree of guesses, and the bits stay the same.
package model

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"strings"

	"quickdraft/kvcache"
	"quickdraft/machine"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// DefaultMaxBatch is the number of tokens that one pass may hold when Options does not say.
const DefaultMaxBatch = 512

// Options say how a checkpoint is loaded.
type Options struct {
	// F32 dequantises every matrix and keeps activations and KV in float32, for comparison with other implementations.
	F32 bool
	// Pool runs the ops; nil makes one of machine.Threads() workers that Close stops.
	Pool *tensor.Pool
	// Cores, if set and Pool is not, are the CPUs that the workers of the model's own pool keep to, one each.
	Cores []int
	// MaxBatch is the largest number of tokens in one pass; 0 means DefaultMaxBatch.
	MaxBatch int
	// Progress, if set, is called after each tensor with the bytes of the file read so far and in all.
	Progress func(done, total int64)
	// TilesDir, if set, is a folder that keeps the repacked weights: they are written there by the first load and mapped by
	// the next ones. It is made when there is none.
	TilesDir string
	// Check, if set, is asked before any weight is read, with a configuration whose Vocab is not known yet; its error ends the
	// loading.
	Check func(c Config) error
	// Stop, if set, is asked after each tensor; its error ends the loading.
	Stop func() error
	// Note, if set, is called with one line when TilesDir cannot be used or a file in it is damaged.
	Note func(line string)
}

// forwarder is an architecture with its weights. forward computes the pass's logits rows and appends keys and values.
type forwarder interface {
	forward(p *pass)
}

// encoderDecoder is a forwarder whose sequences each continue an encoded input.
type encoderDecoder interface {
	encode(p *pass, seq *kvcache.Seq, tokens []int32)
	encoded(seq *kvcache.Seq) bool
	forget(seq *kvcache.Seq)
}

// architecture is what a file of this package registers.
type architecture struct {
	modelTypes []string                // model_type in config.json
	ggufName   string                  // general.architecture, where it is not the registry's key
	claims     func(f *gguf.File) bool // says that a file of ggufName is meant; nil: none is, or the key is the name
	names      hfNames                 // Hugging Face's tensor names
	pairedRope bool                    // GGUF files of this architecture hold q and k rows permuted for a rope over neighbouring pairs
	normPlus1  bool                    // Hugging Face's norms are applied as 1+w; GGUF holds the sum
	activation string                  // hidden_act that Forward computes
	contextLen int                     // context of files that do not say theirs; 0: they must
	configure  func(f *fields, c *Config)
	build      func(l *loader) forwarder
}

var architectures = map[string]architecture{}

// register adds an architecture under its GGUF name; names are unique.
func register(name string, a architecture) {
	if _, ok := architectures[name]; ok {
		panic("model: architecture " + name + " registered twice")
	}
	architectures[name] = a
}

// Architectures lists the names that Load understands, sorted.
func Architectures() []string {
	var names []string
	for name := range architectures {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Model is a loaded checkpoint. It is used by one goroutine at a time.
type Model struct {
	config      Config
	arch        forwarder
	pass        pass
	cpu         *tensor.CPU
	pool        *tensor.Pool
	ownsPool    bool
	f32         bool
	weightBytes int64
	macs        int64
	outMACs     int64
	mats        []*tensor.Mat
	output      *tensor.Mat // (Vocab, Dim)
	store       *tileStore
	fingerprint [sha256.Size]byte
	broken      error // what ended the use of the weights
}

// Load opens a GGUF file or a safetensors folder and repacks its weights.
// Errors name the file and the key, tensor or row that is wrong.
func Load(path string, o Options) (*Model, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		c, err := safetensors.OpenDir(path)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return LoadSafetensors(c, o)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return LoadGGUF(f, o)
}

// LoadGGUF is Load for an open GGUF file. The model keeps nothing of the file.
func LoadGGUF(f *gguf.File, o Options) (_ *Model, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, f.Explain)
	name, ok := f.String("general.architecture")
	if !ok {
		return nil, fmt.Errorf("%s: general.architecture: missing, or not a string", f.Path())
	}
	arch, ok := architectures[name]
	key := name
	for other, a := range architectures {
		if a.ggufName == name && a.claims(f) {
			key, arch, ok = other, a, true
		}
	}
	if !ok {
		return nil, fmt.Errorf("%s: general.architecture = %q: want one of %s", f.Path(), name, strings.Join(Architectures(), ", "))
	}
	return load(key, arch, ggufFields(f, name), &ggufWeights{file: f}, o)
}

// LoadSafetensors is Load for an open checkpoint. The model keeps nothing of it.
func LoadSafetensors(c *safetensors.Checkpoint, o Options) (_ *Model, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, c.Explain)
	f := configFields(c)
	name, arch, err := findModelType(f)
	if err != nil {
		return nil, err
	}
	if err := checkUnquantized(f); err != nil {
		return nil, err
	}
	return load(name, arch, f, &safetensorsWeights{ckpt: c, hf: arch.names}, o)
}

// checkUnquantized refuses a config.json whose weights are codes of a quantiser.
func checkUnquantized(f *fields) error {
	for _, key := range []string{"quantization_config", "compression_config"} {
		if f.has("", key) {
			method := f.text("", key+".quant_method", "unknown")
			f.fail("%s: %s: quant_method = %q: quantised checkpoints are not supported: want weights of F32, F16 or BF16, or a GGUF file",
				f.file, key, method)
		}
	}
	return f.err
}

// findModelType is the architecture of a config.json.
func findModelType(f *fields) (name string, arch architecture, err error) {
	modelType := f.needText("", "model_type")
	if f.err != nil {
		return "", arch, f.err
	}
	var known []string
	for _, name := range Architectures() {
		for _, t := range architectures[name].modelTypes {
			if t == modelType {
				return name, architectures[name], nil
			}
			known = append(known, t)
		}
	}
	return "", arch, fmt.Errorf("%s: model_type = %q: want one of %s", f.label("", "model_type"), modelType, strings.Join(known, ", "))
}

func newPool(cores []int) *tensor.Pool {
	n := machine.Threads()
	if cores != nil {
		n = min(n, len(cores))
	}
	return tensor.NewPoolOn(n, cores)
}

func load(name string, arch architecture, f *fields, w weights, o Options) (*Model, error) {
	m := &Model{pool: o.Pool, f32: o.F32}
	if err := m.load(name, arch, f, w, o); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Model) load(name string, arch architecture, f *fields, w weights, o Options) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, func(addr uintptr) error { return cmp.Or(w.explain(addr), m.store.explain(addr)) })
	if o.MaxBatch == 0 {
		o.MaxBatch = DefaultMaxBatch
	}
	if o.MaxBatch < 1 || o.MaxBatch > 1<<16 {
		return fmt.Errorf("MaxBatch = %d: want 1 to %d", o.MaxBatch, 1<<16)
	}
	cfg, err := readConfig(name, arch, f)
	if err == nil && o.Check != nil {
		err = o.Check(*cfg)
	}
	if err != nil {
		return err
	}
	if m.pool == nil {
		m.pool, m.ownsPool = newPool(o.Cores), true
	}
	if sum, ok := w.fingerprint(); ok {
		m.fingerprint = sha256.Sum256(fmt.Appendf(sum[:], "layout %d, f32 %v", quant.LayoutVersion, o.F32))
	}
	m.store = openStore(&o, w)
	l := m.build(cfg, f, w, o)
	if m.store.finish(l.err) {
		m.freeMats()
		l = m.build(cfg, f, w, o)
		m.store.finish(l.err)
	}
	if l.err != nil {
		return l.err
	}
	m.config, m.weightBytes, m.macs, m.outMACs = *cfg, l.perToken, l.macs, l.outMACs
	return m.newPass(o.MaxBatch)
}

// changed is the error of a read of weights that failed at addr, nil when they are not mapped there. The model has no use then.
func (m *Model) changed(addr uintptr) error {
	if err := m.store.explain(addr); err != nil {
		m.broken = err
	}
	return m.broken
}

// build has the architecture take its weights.
func (m *Model) build(cfg *Config, f *fields, w weights, o Options) *loader {
	arch := architectures[cfg.Arch]
	l := &loader{
		cfg: cfg, arch: arch, fields: f, src: w, pool: m.pool, opts: o, store: m.store,
		used: map[string]bool{}, total: w.bytes(),
	}
	defer func() { m.mats, m.output = l.mats, l.out }() // also of a build that ends in a fault, to be freed
	m.arch = arch.build(l)
	if l.err == nil {
		l.checkUnused()
	}
	return l
}

func (m *Model) freeMats() {
	for _, w := range m.mats {
		w.Free()
	}
	m.mats = nil
}

// Config is what the checkpoint says about itself.
func (m *Model) Config() Config { return m.config }

// WeightBytes is how many bytes of packed weights a pass over one token reads.
func (m *Model) WeightBytes() int64 { return m.weightBytes }

// MACs is how many multiply-adds with weights a token takes, and how many each row of logits takes on top.
func (m *Model) MACs() (token, logits int64) { return m.macs, m.outMACs }

// Pool is the worker pool that the model's ops run on.
func (m *Model) Pool() *tensor.Pool { return m.pool }

// MaxBatch is the largest number of tokens that Forward accepts.
func (m *Model) MaxBatch() int { return m.pass.max }

// NewCache makes a KV cache of this model's shape with the given number of 16-token blocks.
func (m *Model) NewCache(blocks int) (*kvcache.Cache, error) {
	return kvcache.New(m.CacheConfig(blocks))
}

// CacheConfig is the shape of NewCache's cache, for callers that change more than its size.
func (m *Model) CacheConfig(blocks int) kvcache.Config {
	c := &m.config
	return kvcache.Config{
		Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Windows: c.Windows, Blocks: blocks, F32: m.f32,
	}
}

// Fingerprint identifies the files that the model was loaded from and the arithmetic it computes with; zeros for a
// checkpoint in memory. Keys and values that were saved under another fingerprint are those of another model.
func (m *Model) Fingerprint() [sha256.Size]byte { return m.fingerprint }

// Close frees the weights and stops the pool that Load made. The model must not be used afterwards.
func (m *Model) Close() error {
	m.freeMats()
	m.store.close()
	if m.pass.arena != nil {
		m.pass.arena.Free()
		m.pass.arena = nil
	}
	if m.ownsPool {
		m.pool.Close()
		m.ownsPool = false
	}
	return nil
}
