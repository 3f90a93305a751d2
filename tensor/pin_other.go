//go:build !linux

package tensor

// pin does nothing: only Linux is told where threads belong.
func pin(int, int) {}

// restrict does nothing either.
func restrict([]int) {}
