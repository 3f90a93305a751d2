package gguf

// fileTypes are the values of general.file_type for files whose matrices have one type, as llama.h numbers them
// (LLAMA_FTYPE_*). K-quants are the small mixes there, which start from the plain type.
var fileTypes = map[Type]uint32{
	TypeF32: 0, TypeF16: 1, TypeQ4_0: 2, TypeQ4_1: 3, TypeQ8_0: 7, TypeQ5_0: 8, TypeQ5_1: 9, TypeQ2_K: 10, TypeQ3_K: 11,
	TypeQ4_K: 14, TypeQ5_K: 16, TypeQ6_K: 18, TypeIQ4_NL: 25, TypeIQ4_XS: 30, TypeBF16: 32, TypeMXFP4: 38,
}

// FileType is the value of general.file_type for a file of matrices of this type.
func (t Type) FileType() (uint32, bool) {
	v, ok := fileTypes[t]
	return v, ok
}
