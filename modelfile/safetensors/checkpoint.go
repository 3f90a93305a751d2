// Package safetensors reads Hugging Face model folders: config.json and the weights in one safetensors file or in shards
// with an index. Files are mapped; tensor data is never copied.
package safetensors

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"quickdraft/machine"
	"quickdraft/modelfile/internal/mapfile"
)

// Checkpoint is an opened model folder. All methods but Close may be called from several goroutines at once. Tensor data
// may not be used after Close.
type Checkpoint struct {
	dir        string
	config     *Object
	generation *Object // nil when there is no generation_config.json
	tensors    []*Tensor
	byName     map[string]*Tensor
	maps       []*mapfile.File
}

const (
	configName     = "config.json"
	generationName = "generation_config.json"
	singleName     = "model.safetensors"
	indexName      = "model.safetensors.index.json"
	maxShards      = 1024
)

// OpenDir opens a model folder: config.json, generation_config.json if there is one, and model.safetensors or else
// model.safetensors.index.json with its shards.
//
// Besides what makes a file unreadable, OpenDir refuses a vocab_size above the rows of the embedding and begin- and
// end-of-sequence ids outside the vocabulary. Its errors are *Error, or *fs.PathError for what the system refuses.
func OpenDir(dir string) (*Checkpoint, error) {
	c := &Checkpoint{dir: dir, byName: map[string]*Tensor{}}
	if err := c.open(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Checkpoint) open() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, c.Explain)
	if c.config, err = readJSON(filepath.Join(c.dir, configName)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: holds no %s, want the folder of a checkpoint: %w", c.dir, configName, fs.ErrNotExist)
	} else if err != nil {
		return err
	}
	c.generation, err = readJSON(filepath.Join(c.dir, generationName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := c.openWeights(); err != nil {
		return err
	}
	return c.checkVocabulary()
}

func (c *Checkpoint) openWeights() error {
	single, index := filepath.Join(c.dir, singleName), filepath.Join(c.dir, indexName)
	if _, err := os.Stat(single); err == nil || !errors.Is(err, fs.ErrNotExist) {
		_, err := c.openFile(single, func(string) bool { return true })
		return err
	}
	if _, err := os.Stat(index); err != nil {
		return fmt.Errorf("%s: has neither %s nor %s: %w", c.dir, singleName, indexName, err)
	}
	return c.openShards(index)
}

// openFile maps one file and takes over those of its tensors that are wanted. It returns the names of all it holds.
func (c *Checkpoint) openFile(path string, want func(name string) bool) (map[string]bool, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	c.maps = append(c.maps, m)
	entries, err := parseFile(path, m.Data)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(entries))
	for i := range entries {
		t := &entries[i].Tensor
		names[t.Name] = true
		if entries[i].weights && want(t.Name) {
			c.tensors = append(c.tensors, t)
			c.byName[t.Name] = t
		}
	}
	return names, nil
}

// openShards reads an index, {"weight_map": {tensor name: file name}}, and opens the files it names.
func (c *Checkpoint) openShards(path string) error {
	index, err := readJSON(path)
	if err != nil {
		return err
	}
	weightMap, ok, err := index.Object("weight_map")
	if err != nil {
		return err
	}
	if !ok || weightMap.Len() == 0 {
		return index.Errorf("weight_map", "is missing or empty, want the file of each tensor")
	}
	names := map[string][]string{} // by shard
	for _, m := range weightMap.members {
		file, ok := m.value.(string)
		if !ok || !plainName(file) {
			return weightMap.Errorf(m.key, "is not a file of this folder, want a name like model-00001-of-00002.safetensors")
		}
		names[file] = append(names[file], m.key)
	}
	if len(names) > maxShards {
		return index.Errorf("weight_map", "names %d files, want at most %d", len(names), maxShards)
	}
	for _, file := range slices.Sorted(maps.Keys(names)) {
		if err := c.openShard(weightMap, file, names[file]); err != nil {
			return err
		}
	}
	return nil
}

// openShard opens one file and takes over the tensors that the index says are in it.
func (c *Checkpoint) openShard(weightMap *Object, file string, names []string) error {
	want := func(name string) bool {
		at, _ := weightMap.Get(name)
		return at == file
	}
	have, err := c.openFile(filepath.Join(c.dir, file), want)
	if err != nil {
		return fmt.Errorf("%s: %w", weightMap.File(), err)
	}
	for _, name := range names {
		if !have[name] {
			return weightMap.Errorf(name, "does not hold this tensor")
		}
	}
	return nil
}

// plainName reports whether a shard's name stays in its folder on every system.
func plainName(name string) bool {
	return strings.HasSuffix(name, ".safetensors") && !strings.ContainsAny(name, "/\\:\x00") && filepath.IsLocal(name)
}

// Dir returns the path that was opened.
func (c *Checkpoint) Dir() string { return c.dir }

// Config returns config.json.
func (c *Checkpoint) Config() *Object { return c.config }

// Generation returns generation_config.json, nil when the folder has none.
func (c *Checkpoint) Generation() *Object { return c.generation }

// Tensor returns a tensor by name.
func (c *Checkpoint) Tensor(name string) (*Tensor, bool) {
	t, ok := c.byName[name]
	return t, ok
}

// Tensors returns all tensors in file order, shards in order of their names.
func (c *Checkpoint) Tensors() []*Tensor { return slices.Clone(c.tensors) }

// Release tells the system that the pages of a tensor are not needed soon, so that they stop counting as this process's
// memory. Its Data stays valid and is read from the file again when used. It does nothing where that is not supported.
func (c *Checkpoint) Release(t *Tensor) {
	if len(c.maps) > 0 && c.byName[t.Name] == t {
		c.maps[0].Release(t.Data) // any of them: the pages are found by address
	}
}

// Fingerprint identifies the state of the opened files by their names, sizes, times, headers and samples of their tensor data,
// and config.json by its bytes.
func (c *Checkpoint) Fingerprint() (sum [sha256.Size]byte, err error) {
	config, err := readFile(filepath.Join(c.dir, configName)) // no mapping, which a file that shrinks would end with a fault
	if err != nil {
		return sum, err
	}
	if len(config.Data) > maxJSONBytes {
		return sum, &Error{File: config.Path, Offset: -1, Reason: fmt.Sprintf("has grown to more than %d bytes", maxJSONBytes)}
	}
	files, headBytes := []*mapfile.File{config}, []int{len(config.Data)}
	for _, m := range c.maps {
		header := binary.LittleEndian.Uint64(m.Data) // within the file, or parseFile had refused it
		files, headBytes = append(files, m), append(headBytes, lengthBytes+int(header))
	}
	return mapfile.Fingerprint(files, headBytes), nil
}

// Explain returns a *machine.ChangedError when a file of tensors is mapped at addr, where a read failed, and nil otherwise.
func (c *Checkpoint) Explain(addr uintptr) error { return mapfile.Explain(c.maps, addr) }

// Close unmaps the files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, m := range c.maps {
		errs = append(errs, m.Close())
	}
	c.maps, c.tensors, c.byName = nil, nil, nil
	return errors.Join(errs...)
}
