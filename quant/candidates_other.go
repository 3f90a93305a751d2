//go:build !amd64

package quant

// kernels returns the assembly implementations: there are none for this architecture.
func kernels(*Format, int) []Candidate { return nil }

// quantizeKernels returns the assembly implementations of QuantizeRow: there are none for this architecture.
func quantizeKernels() []Quantizer { return nil }
