package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"quickdraft/internal/disk"
)

// maxInput and maxStdin bound what is read into memory from a file or from standard input, which may have no end.
const (
	maxInput = 1 << 30
	maxStdin = 128 << 20
)

// readFile reads a file that an option names. One that cannot be opened is the caller's mistake.
func readFile(option, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var data []byte
		if data, err = readBounded(f, maxInput); err == nil {
			return data, nil
		}
	}
	return nil, cannotRead(option, path, err)
}

// cannotRead names an option and its file, and makes a usage error of what no other moment would change.
func cannotRead(option, path string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s %q: %w", option, path, withoutName(err))
	for _, cause := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.EISDIR, syscall.ENOTDIR, syscall.ENAMETOOLONG, syscall.ELOOP} {
		if errors.Is(err, cause) {
			return &usageError{err}
		}
	}
	return err
}

// withoutName takes the name of the file out of an error of package os.
func withoutName(err error) error {
	var named *fs.PathError
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

func readBounded(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("has more than %d bytes, want at most that", most)
	}
	return data, err
}

// readStdin reads standard input to its end, or until ctx ends.
func readStdin(ctx context.Context) ([]byte, error) {
	data, err := readBounded(newStdin(ctx), maxStdin)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("standard input: %w", withoutName(err))
	}
	return data, err
}

// stdin reads standard input in the background, where a reader that waits can be left behind.
type stdin struct {
	ctx    context.Context
	chunks chan []byte
	rest   []byte
	err    error // set before chunks is closed
}

func newStdin(ctx context.Context) *stdin {
	s := &stdin{ctx: ctx, chunks: make(chan []byte)}
	from := os.Stdin
	go func() {
		defer close(s.chunks)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			select {
			case s.chunks <- b[:n]:
			case <-ctx.Done():
				return
			}
			if err != nil {
				s.err = err
				return
			}
		}
	}()
	return s
}

// Read returns what has come.
func (s *stdin) Read(b []byte) (int, error) {
	for len(s.rest) == 0 {
		select {
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		case chunk, ok := <-s.chunks:
			if !ok && s.ctx.Err() != nil {
				return 0, context.Cause(s.ctx)
			}
			if !ok {
				return 0, s.err
			}
			s.rest = chunk
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// checkOutput finds out before the work whether its result can be written: what names the argument or option, inputs are files
// and folders that are read.
func checkOutput(what, path string, inputs ...string) error {
	if err := disk.Check(path, inputs...); err != nil {
		return &usageError{fmt.Errorf("%s: %w", what, err)}
	}
	return nil
}
