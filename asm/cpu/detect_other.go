//go:build !amd64

package cpu

import "runtime"

// detect returns the bit set of present levels: kernels exist for amd64 only.
func detect() uint8 { return 1 << Go }

func requestTiles() bool { return false }

func missing() string { return "kernels exist for amd64 only and this is " + runtime.GOARCH }
