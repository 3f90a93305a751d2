package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"quickdraft/internal/disk"
	"quickdraft/modelfile/repacked"
)

// cache is the cache folder. All paths are relative to it and use slashes; nothing outside can be reached, links included.
type cache struct{ *os.Root }

func (h *Hub) openCache() (*cache, error) {
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return nil, fmt.Errorf("cache folder: %w; QUICKDRAFT_HOME names another", err)
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return nil, fmt.Errorf("cache folder: %w", err)
	}
	return &cache{root}, nil
}

// readJSON decodes a small file; false if it is absent or damaged.
func (c *cache) readJSON(name string, v any) bool {
	f, err := c.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(v) == nil
}

// writeJSON replaces a small file.
func (c *cache) writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := c.WriteFile(name+".tmp", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return c.Rename(name+".tmp", name)
}

// lock takes the lock of a file, waiting while another holds it; busy is called once if it has to wait.
func (c *cache) lock(ctx context.Context, rel string, busy func()) (unlock func(), err error) {
	for told, lost := false, 0; ; {
		if err := c.MkdirAll(path.Dir(rel), 0o755); err != nil {
			return nil, fmt.Errorf("cache folder: %w", err)
		}
		unlock, ok, err := c.tryLock(rel)
		if errors.Is(err, fs.ErrNotExist) && lost < 10 { // another process removed the folder, which was empty
			lost++
			continue
		}
		if err != nil || ok {
			return unlock, err
		}
		if !told && busy != nil {
			busy()
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// removeEmpty removes the folders of a file that hold nothing any more, below the one of the catalog's models.
func (c *cache) removeEmpty(rel string) {
	for d := path.Dir(rel); d != "models" && d != "."; d = path.Dir(d) {
		if c.Remove(d) != nil {
			return // not empty
		}
	}
}

// tryLock takes the lock of a file if nobody holds it. The system releases it when its holder ends, however that happens.
func (c *cache) tryLock(rel string) (unlock func(), ok bool, err error) {
	f, err := c.OpenFile(rel+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("lock of %s: %w", rel, err)
	}
	ok, err = disk.TryLock(f)
	if err != nil || !ok {
		f.Close()
		if err != nil {
			err = fmt.Errorf("lock of %s: %w", rel, err)
		}
		return nil, false, err
	}
	// A holder before us may have removed the file that we opened: then the lock is on a file that nobody else sees.
	mine, err1 := f.Stat()
	there, err2 := c.Lstat(rel + ".lock")
	if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
		f.Close()
		return nil, false, nil
	}
	return func() {
		if runtime.GOOS == "windows" { // an open file cannot be removed there
			f.Close()
			c.Remove(rel + ".lock")
			return
		}
		c.Remove(rel + ".lock")
		f.Close()
	}, true, nil
}

// Entry is a model in the cache.
type Entry struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Size    int64     `json:"size"` // bytes
	SHA256  string    `json:"sha256,omitempty"`
	Source  string    `json:"source,omitempty"`
	Pulled  time.Time `json:"pulled,omitzero"`
	Partial bool      `json:"partial,omitempty"` // a pull that did not end; the next one continues it
}

// List returns the models in the cache, by name, unfinished ones included. The error names a cache folder that can be neither
// made nor read.
func (h *Hub) List() ([]Entry, error) {
	c, err := h.openCache()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var list []Entry
	err = filepath.WalkDir(h.Dir(), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		whole := strings.TrimSuffix(p, ".part")
		if !d.Type().IsRegular() || filepath.Ext(whole) != ".gguf" {
			return nil
		}
		e := Entry{Partial: whole != p}
		if data, err := os.ReadFile(p + ".json"); err == nil && json.Unmarshal(data, &e) != nil {
			e = Entry{Partial: whole != p}
		}
		if info, err := d.Info(); err == nil {
			e.Size = info.Size()
		}
		if rel, err := filepath.Rel(h.Dir(), whole); err == nil && e.Name == "" {
			e.Name = h.nameOf(filepath.ToSlash(rel))
		}
		e.Path = p
		list = append(list, e)
		return nil
	})
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, err
}

// nameOf guesses the name of a file without notes beside it.
func (h *Hub) nameOf(rel string) string {
	for _, m := range h.catalog {
		if m.file() == rel {
			return m.Name
		}
	}
	if rest, ok := strings.CutPrefix(rel, "hf/"); ok {
		return "hf:" + rest
	}
	return rel
}

// Info is what is known about a name.
type Info struct {
	Entry            // empty Path: not in the cache
	About   string   `json:"about,omitempty"`
	License string   `json:"license,omitempty"`
	Sources []string `json:"sources,omitempty"` // in the order in which they are tried
}

// Show returns what is known about a name, in the cache or not.
func (h *Hub) Show(name string) (Info, error) {
	t, err := h.parseName(name)
	if err != nil {
		return Info{}, err
	}
	info := Info{Entry: Entry{Name: t.name, Size: t.size, SHA256: t.sha256}}
	if m, ok := find(h.catalog, name); ok {
		info.About, info.License = m.About, m.License
	}
	if list, err := h.usable(t); err == nil {
		for _, s := range list {
			info.Sources = append(info.Sources, s.name)
		}
	}
	p, ok := h.cached(t)
	if !ok {
		if t.local != "" {
			return Info{}, missing(t.local)
		}
		return info, nil
	}
	if st, err := os.Stat(p); err == nil {
		info.Size = st.Size()
	}
	if t.local == "" {
		if c, err := h.openCache(); err == nil {
			defer c.Close()
			var e Entry
			if c.readJSON(t.rel+".json", &e) {
				info.SHA256, info.Source, info.Pulled = e.SHA256, e.Source, e.Pulled
			}
		}
	}
	info.Path = p
	return info, nil
}

// endings are those of all that may lie in the cache under a model's name, what killed processes left included.
var endings = []string{"", ".json", ".json.tmp", ".part", ".part.json", ".part.json.tmp", ".part.archive", ".part.archive.json", ".part.archive.json.tmp", ".part.pip"}

// Remove deletes a model from the cache, finished or not, and its repacked weights.
func (h *Hub) Remove(name string) error {
	t, err := h.parseName(name)
	if err != nil {
		return err
	}
	if t.local != "" {
		return fmt.Errorf("model %s is a file of yours: only models in the cache can be removed", t.local)
	}
	c, err := h.openCache()
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Lstat(path.Dir(t.rel)); err != nil {
		return fmt.Errorf("model %s is not in the cache %s", t.name, h.Dir())
	}
	unlock, ok, err := c.tryLock(t.rel)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("model %s is being pulled by another process", t.name)
	}
	tiles, noTiles := repacked.FileName(filepath.Join(h.dir, filepath.FromSlash(t.rel))) // while the file is there
	found := false
	for _, ending := range endings {
		_, err := c.Lstat(t.rel + ending)
		if err == nil {
			err = c.RemoveAll(t.rel + ending)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			unlock()
			return fmt.Errorf("model %s: %w", t.name, err)
		}
		found = found || err == nil && !strings.HasSuffix(strings.TrimSuffix(ending, ".tmp"), ".json")
	}
	if noTiles == nil {
		c.Remove(path.Join(repackedFolder, tiles)) // most models have none, and one left behind is only a file
	}
	unlock()
	c.removeEmpty(t.rel)
	if !found {
		return fmt.Errorf("model %s is not in the cache %s", t.name, h.Dir())
	}
	return nil
}

// RemoveRepacked deletes the repacked weights of all models and returns the bytes that they took. The next start of a model
// makes its own again.
func (h *Hub) RemoveRepacked() (freed int64, err error) {
	c, err := h.openCache()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	entries, err := fs.ReadDir(c.FS(), repackedFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var errs []error
	for _, e := range entries {
		info, statErr := e.Info()
		if ext := path.Ext(e.Name()); ext != ".tiles" && ext != ".tmp" || statErr != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := c.Remove(path.Join(repackedFolder, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("repacked weights: %w", err))
			continue
		}
		freed += info.Size()
	}
	return freed, errors.Join(append(errs, err)...)
}
