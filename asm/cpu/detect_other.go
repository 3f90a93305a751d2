//go:build !amd64

package cpu

// detect returns the bit set of present levels: kernels exist for amd64 only.
func detect() uint8 { return 1 << Go }

func requestTiles() bool { return false }
