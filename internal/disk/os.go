package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// osFiles is the system itself.
type osFiles struct{}

// create makes the temporary file of a name and locks it: a lock ends with its process, so that what killed ones left behind
// is known by being free.
func (osFiles) create(dir, base string) (handle, error) {
	prefix, suffix := temporary(base)
	removeAbandoned(dir, prefix, suffix)
	for tries := 0; ; tries++ {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s%016x%s", prefix, rand.Uint64(), suffix)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) && tries < 100 {
			continue
		}
		if err != nil {
			return nil, err
		}
		if runtime.GOOS != "windows" { // where a lock keeps its own process from writing, and an open file cannot be removed anyway
			_, _ = TryLock(f) // without locks age decides
		}
		return f, nil
	}
}

func (osFiles) rename(from, to string) error { return os.Rename(from, to) }

func (osFiles) remove(name string) error { return os.Remove(name) }

// syncDir makes a rename last, where folders can be synced.
func (osFiles) syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) { // a folder that may be written and not read
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}

// Ages from which a temporary file that nobody holds a lock on is abandoned: time to take the lock after making the file, and
// time after which no writer pauses where there are no locks.
const (
	unlockedAge = 10 * time.Second
	lockless    = time.Hour
)

// removeAbandoned removes what killed processes left of a file.
func removeAbandoned(dir, prefix, suffix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // creating the file says what is wrong
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && abandoned(filepath.Join(dir, e.Name()), time.Since(info.ModTime())) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func abandoned(path string, age time.Duration) bool {
	if age < unlockedAge {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	free, err := TryLock(f)
	if err != nil {
		return age > lockless
	}
	return free
}
