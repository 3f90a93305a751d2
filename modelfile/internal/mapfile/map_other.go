//go:build !(linux || darwin || freebsd || netbsd || openbsd || windows)

package mapfile

import (
	"io"
	"os"
)

// mapBytes reads the file: this system has no mapping that the standard packages reach.
func mapBytes(f *os.File, size int) ([]byte, bool, error) {
	data := make([]byte, size)
	_, err := io.ReadFull(f, data)
	return data, false, err
}

func unmapBytes([]byte) error { return nil }

func releasePages([]byte) {}
