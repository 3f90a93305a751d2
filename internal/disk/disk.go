// Package disk makes files that appear under their names whole or not at all, locks files, and says what a disk has room for.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// File is a file that is being made under a temporary name beside the one that it will have. Writers of disjoint ranges may
// call WriteAt at once; everything else is for one goroutine.
type File struct {
	name  string      // as the caller wrote it, for errors
	path  string      // where the file goes: name, its link followed
	mode  fs.FileMode // of the file that is replaced; 0: there is none, the umask decides
	tmp   handle
	sys   system
	ended bool
}

// handle is the temporary file.
type handle interface {
	Name() string
	Write(b []byte) (int, error)
	WriteAt(b []byte, off int64) (int, error)
	Chmod(mode fs.FileMode) error
	Sync() error
	Close() error
}

// system is what a File asks of the operating system. Tests record the calls and make them fail.
type system interface {
	create(dir, base string) (handle, error) // a new file that only this process uses
	rename(from, to string) error
	remove(name string) error
	syncDir(dir string) error
}

// Create begins the file that Commit puts at path, and removes what killed processes left of earlier attempts at it. A link at
// path stays and its target is replaced. The error names path.
func Create(path string) (*File, error) { return create(path, osFiles{}) }

func create(path string, sys system) (*File, error) {
	target, mode, err := follow(path)
	if err != nil {
		return nil, err
	}
	f := &File{name: path, path: target, mode: mode, sys: sys}
	if f.tmp, err = sys.create(filepath.Dir(target), filepath.Base(target)); err != nil {
		return nil, f.named(err)
	}
	if !remember(f) {
		return nil, errors.Join(fmt.Errorf("%s: this process ends", path), f.Abort())
	}
	return f, nil
}

// follow returns where a file at path goes and the mode of the one that is there, or why none can be written there.
func follow(path string) (target string, mode fs.FileMode, err error) {
	if path == "" {
		return "", 0, errors.New(`"": want the name of a file to write`)
	}
	if os.IsPathSeparator(path[len(path)-1]) {
		return "", 0, fmt.Errorf("%s: is the name of a folder, want the name of a file to write", path)
	}
	target = path
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if target, err = filepath.EvalSymlinks(path); errors.Is(err, fs.ErrNotExist) {
			target, err = followDangling(path)
		}
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w", path, bare(err))
		}
		info, err = os.Lstat(target)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return target, 0, nil
	case err != nil:
		return "", 0, fmt.Errorf("%s: %w", path, bare(err))
	case info.IsDir():
		return "", 0, fmt.Errorf("%s: is a folder, want the name of a file to write", path)
	case !info.Mode().IsRegular():
		return "", 0, fmt.Errorf("%s: is a device, pipe or socket, want the name of a file to write", path)
	}
	return target, info.Mode().Perm(), nil
}

// followDangling returns what a link that leads nowhere names; a link there is replaced like a file.
func followDangling(path string) (string, error) {
	to, err := os.Readlink(path)
	if err == nil && !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	return to, err
}

// Write appends b. Its errors, like WriteAt's, name no file.
func (f *File) Write(b []byte) (int, error) {
	n, err := f.tmp.Write(b)
	return n, bare(err)
}

// WriteAt writes b at off.
func (f *File) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.tmp.WriteAt(b, off)
	return n, bare(err)
}

// Commit brings the file to the disk and gives it its name. After an error there is no file but the one that was there before,
// unless the error is about the folder. The error names path.
func (f *File) Commit() error { return f.commit(true) }

// CommitUnsynced is Commit for a file that says itself when a power failure damaged it: it does not wait for the disk.
func (f *File) CommitUnsynced() error { return f.commit(false) }

func (f *File) commit(sync bool) error {
	if f.ended {
		return fmt.Errorf("%s: committed or aborted before", f.name)
	}
	if err := f.finish(sync); err != nil {
		return errors.Join(f.named(err), f.Abort())
	}
	f.ended = true
	forget(f)
	if !sync {
		return nil
	}
	if err := f.sys.syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("%s: is written, but its folder may lose it in a power failure: %w", f.name, bare(err))
	}
	return nil
}

func (f *File) finish(sync bool) error {
	if f.mode != 0 {
		if err := f.tmp.Chmod(f.mode); err != nil {
			return err
		}
	}
	if sync {
		if err := f.tmp.Sync(); err != nil {
			return err
		}
	}
	if err := f.tmp.Close(); err != nil {
		return err
	}
	return f.sys.rename(f.tmp.Name(), f.path)
}

// Abort removes what was written; after Commit or Abort it does nothing.
func (f *File) Abort() error {
	if f.ended {
		return nil
	}
	f.ended = true
	forget(f)
	err := f.tmp.Close()
	if errors.Is(err, fs.ErrClosed) {
		err = nil
	}
	if gone := f.sys.remove(f.tmp.Name()); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return f.named(err)
}

// named puts the caller's name of the file in the place of the temporary one.
func (f *File) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", f.name, bare(err))
}

// bare takes the name out of an error of package os.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// Check returns an error when no file can be written at path: it is a folder or a device, its folder is missing or cannot be
// written to, or it is one of the inputs or lies in one that is a folder. The error names path.
func Check(path string, inputs ...string) error {
	target, _, err := follow(path)
	if err != nil {
		return err
	}
	for _, in := range inputs {
		if isPartOf(target, in) {
			return fmt.Errorf("%s: is read too (%s), want another name for what is written", path, in)
		}
	}
	dir := filepath.Dir(target)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: there is no folder %s to write it to", path, dir)
	case err != nil:
		return fmt.Errorf("%s: %w", path, bare(err))
	case !info.IsDir():
		return fmt.Errorf("%s: %s is no folder", path, dir)
	}
	probe, err := Create(path)
	if err != nil {
		return err
	}
	return probe.Abort()
}

// isPartOf reports whether a file that exists is in, or lies in the folder in.
func isPartOf(path, in string) bool {
	file, err := os.Stat(path)
	if err != nil {
		return false
	}
	info, err := os.Stat(in)
	if err != nil {
		return false
	}
	if !info.IsDir() {
		return os.SameFile(file, info)
	}
	entries, _ := os.ReadDir(in)
	for _, e := range entries {
		if other, err := os.Stat(filepath.Join(in, e.Name())); err == nil && os.SameFile(file, other) {
			return true
		}
	}
	return false
}

// live are the files that are being made.
var live struct {
	sync.Mutex
	files map[*File]bool
	over  bool
}

func remember(f *File) bool {
	live.Lock()
	defer live.Unlock()
	if live.files == nil {
		live.files = map[*File]bool{}
	}
	live.files[f] = true
	return !live.over
}

func forget(f *File) {
	live.Lock()
	defer live.Unlock()
	delete(live.files, f)
}

// AbandonAll removes all files that are being made, whoever writes to them; none can be begun or committed afterwards. It is
// for a process that is about to end without waiting for its goroutines.
func AbandonAll() {
	live.Lock()
	defer live.Unlock()
	live.over = true
	for f := range live.files {
		_ = f.sys.remove(f.tmp.Name())
	}
}

// maxBase bounds how much of a name a temporary one repeats, so that it is not too long where the name is not.
const maxBase = 100

// temporary is the beginning of the temporary names of a file, and what they end in.
func temporary(base string) (prefix, suffix string) {
	if len(base) > maxBase {
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	return "." + base + ".", ".tmp"
}

// CheckRoom returns an error when a file of size bytes does not fit on the disk of path, or is longer than this process may
// make files. The error names path.
func CheckRoom(path string, size int64) error {
	target, _, err := follow(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(target)
	if free, ok := Free(dir); ok && size > free {
		return fmt.Errorf("%s: takes %d bytes, but the disk of %s has %d left", path, size, dir, free)
	}
	if limit := fileLimit(); size > limit {
		return fmt.Errorf("%s: takes %d bytes, but this process may make files of at most %d (ulimit -f)", path, size, limit)
	}
	return nil
}
