//go:build !amd64

package probe

func read(src *byte, nLines int) { readGo(src, nLines) }

func peak(int) int64 { return 0 }

func instructions() string { return "none" }

func matrixPeak(int) int64 { return 0 }
