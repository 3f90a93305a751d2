//go:build !amd64

package sample

// assembly lists the sets of this architecture: there is none.
func assembly() []*kernelSet { return nil }
