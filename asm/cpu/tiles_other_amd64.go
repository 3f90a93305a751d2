//go:build !linux

package cpu

// requestTiles reports whether this process may use the tile state: it is not known how to ask here.
func requestTiles() bool { return false }
