package hub

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// findPip returns the command line that starts pip here, or nil.
func findPip() []string {
	for _, name := range []string{"pip", "pip3"} {
		if p, err := exec.LookPath(name); err == nil {
			return []string{p}
		}
	}
	pythons := []string{"python3", "python"}
	if runtime.GOOS == "windows" {
		pythons = []string{"py", "python", "python3"}
	}
	for _, name := range pythons {
		p, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = exec.CommandContext(ctx, p, "-m", "pip", "--version").Run()
		cancel()
		if err == nil {
			return []string{p, "-m", "pip"}
		}
	}
	return nil
}

// fromPip lets pip download a wheel into a folder of the cache. Source archives are refused there: pip runs their code to learn their
// names. pip itself knows its index, proxy, certificates and credentials.
func (j *job) fromPip(ctx context.Context, tool []string, pkg string) (string, error) {
	work := j.part() + ".pip"
	j.c.RemoveAll(work)
	defer j.c.RemoveAll(work)
	for _, d := range []string{work, work + "/out", work + "/tmp"} {
		if err := j.c.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(j.h.dir, filepath.FromSlash(work))
	requirement := pkg
	if j.s.version != "" {
		requirement += "==" + j.s.version
	}
	args := append(tool[1:len(tool):len(tool)], "download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--ignore-requires-python",
		"--disable-pip-version-check", "--no-input", "--no-color", "--progress-bar=off", "--timeout=15", "--retries=2",
		"--dest", filepath.Join(dir, "out"), requirement)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, tool[0], args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "tmp"), "TEMP="+filepath.Join(dir, "tmp"), "TMP="+filepath.Join(dir, "tmp"), "PYTHONUNBUFFERED=1")
	cmd.WaitDelay = 5 * time.Second
	watch := &pipOutput{}
	cmd.Stdout, cmd.Stderr = watch, watch
	if err := cmd.Start(); err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	if err := j.watchPip(ctx, cancel, done, watch, dir); err != nil {
		return "", err
	}
	return j.takeArchive(work + "/out")
}

// watchPip waits for pip, reports the growth of its files and ends it when the index stays silent or nothing grows any more.
func (j *job) watchPip(ctx context.Context, cancel context.CancelCauseFunc, done <-chan error, watch *pipOutput, dir string) error {
	base := j.fileSize(j.part())
	size, moved := int64(0), time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil {
				return nil
			}
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("pip download: %s", watch.reason(err))
		case now := <-tick.C:
			if n := folderSize(dir); n != size {
				size, moved = n, now
				j.progress(base+n, j.t.size)
			}
			if most := max(folderSize(filepath.Join(dir, "tmp")), folderSize(filepath.Join(dir, "out"))); most > j.mostArchive() { // pip copies from one to the other
				cancel(fmt.Errorf("pip fetches more than the %d bytes that are expected at most", j.mostArchive()))
			}
			if asked, answered := watch.state(); !answered && !asked.IsZero() && size == 0 && now.Sub(asked) > j.h.answer {
				cancel(fmt.Errorf("%w from pip's index within %v", errNoAnswer, j.h.answer))
			}
			if now.Sub(moved) > max(j.h.stall, j.h.answer+time.Second) {
				cancel(fmt.Errorf("%w: pip wrote nothing for %v", errStalled, j.h.stall))
			}
		}
	}
}

// folderSize adds up the files below a folder.
func folderSize(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// pipOutput reads what pip says. "Collecting" is the moment at which it asks the index; the next line that is not a warning about a
// retry is the answer.
type pipOutput struct {
	mu       sync.Mutex
	text     bytes.Buffer // at most 64 KiB
	line     []byte
	asked    time.Time
	answered bool
}

func (w *pipOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text.Len()+len(p) <= 64<<10 {
		w.text.Write(p)
	}
	for _, b := range p {
		if b != '\n' {
			if len(w.line) < 4096 {
				w.line = append(w.line, b)
			}
			continue
		}
		line := strings.TrimSpace(string(w.line))
		w.line = w.line[:0]
		switch {
		case strings.HasPrefix(line, "Collecting"):
			w.asked = time.Now()
		case line == "" || w.asked.IsZero() || strings.HasPrefix(line, "WARNING"):
		default:
			w.answered = true
		}
	}
	return len(p), nil
}

func (w *pipOutput) state() (asked time.Time, answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked, w.answered
}

// reason returns the line in which pip says why it failed.
func (w *pipOutput) reason(err error) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := ""
	for sc := bufio.NewScanner(io.LimitReader(&w.text, 64<<10)); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if rest, ok := strings.CutPrefix(line, "ERROR: "); ok {
			last = rest
		}
	}
	if last == "" {
		return err.Error()
	}
	return last
}
