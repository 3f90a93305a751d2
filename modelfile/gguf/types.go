package gguf

import (
	"fmt"
	"strings"
)

// Type is the storage format of a tensor, with the id that files carry.
type Type uint32

// The tensor types this package reads and writes. Ids are those of the format; the gaps are types it withdrew or that
// nothing here computes with.
const (
	TypeF32    Type = 0
	TypeF16    Type = 1
	TypeQ4_0   Type = 2
	TypeQ4_1   Type = 3
	TypeQ5_0   Type = 6
	TypeQ5_1   Type = 7
	TypeQ8_0   Type = 8
	TypeQ2_K   Type = 10
	TypeQ3_K   Type = 11
	TypeQ4_K   Type = 12
	TypeQ5_K   Type = 13
	TypeQ6_K   Type = 14
	TypeIQ4_NL Type = 20
	TypeIQ4_XS Type = 23
	TypeBF16   Type = 30
	TypeMXFP4  Type = 39
)

// typeInfo is a type's name and the shape of one block: weights in it and bytes it takes.
type typeInfo struct {
	name       string
	blockSize  int
	blockBytes int
	supported  bool
}

// types is indexed by id. Entries without supported are named so that an error can say what the file holds.
var types = [...]typeInfo{
	TypeF32:    {"F32", 1, 4, true},
	TypeF16:    {"F16", 1, 2, true},
	TypeQ4_0:   {"Q4_0", 32, 2 + 16, true},
	TypeQ4_1:   {"Q4_1", 32, 2 + 2 + 16, true},
	TypeQ5_0:   {"Q5_0", 32, 2 + 4 + 16, true},
	TypeQ5_1:   {"Q5_1", 32, 2 + 2 + 4 + 16, true},
	TypeQ8_0:   {"Q8_0", 32, 2 + 32, true},
	9:          {name: "Q8_1"},
	TypeQ2_K:   {"Q2_K", 256, 16 + 64 + 2 + 2, true},
	TypeQ3_K:   {"Q3_K", 256, 32 + 64 + 12 + 2, true},
	TypeQ4_K:   {"Q4_K", 256, 2 + 2 + 12 + 128, true},
	TypeQ5_K:   {"Q5_K", 256, 2 + 2 + 12 + 32 + 128, true},
	TypeQ6_K:   {"Q6_K", 256, 128 + 64 + 16 + 2, true},
	15:         {name: "Q8_K"},
	16:         {name: "IQ2_XXS"},
	17:         {name: "IQ2_XS"},
	18:         {name: "IQ3_XXS"},
	19:         {name: "IQ1_S"},
	TypeIQ4_NL: {"IQ4_NL", 32, 2 + 16, true},
	21:         {name: "IQ3_S"},
	22:         {name: "IQ2_S"},
	TypeIQ4_XS: {"IQ4_XS", 256, 2 + 2 + 4 + 128, true},
	24:         {name: "I8"},
	25:         {name: "I16"},
	26:         {name: "I32"},
	27:         {name: "I64"},
	28:         {name: "F64"},
	29:         {name: "IQ1_M"},
	TypeBF16:   {"BF16", 1, 2, true},
	34:         {name: "TQ1_0"},
	35:         {name: "TQ2_0"},
	TypeMXFP4:  {"MXFP4", 32, 1 + 16, true},
}

// Known reports whether the type can be read and written.
func (t Type) Known() bool { return int64(t) < int64(len(types)) && types[t].supported }

// String returns the type's usual name ("Q4_K"), or "type 255" for an id without one.
func (t Type) String() string {
	if int64(t) < int64(len(types)) && types[t].name != "" {
		return types[t].name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// BlockSize returns how many weights of a row share one block; 0 for a type that is not Known.
func (t Type) BlockSize() int {
	if !t.Known() {
		return 0
	}
	return types[t].blockSize
}

// BlockBytes returns how many bytes one block takes; 0 for a type that is not Known.
func (t Type) BlockBytes() int {
	if !t.Known() {
		return 0
	}
	return types[t].blockBytes
}

// RowBytes returns the bytes of a row of cols weights; cols is a multiple of BlockSize.
func (t Type) RowBytes(cols int) int {
	if !t.Known() {
		return 0
	}
	return cols / types[t].blockSize * types[t].blockBytes
}

// Types returns the known types in order of id.
func Types() []Type {
	var all []Type
	for id, info := range types {
		if info.supported {
			all = append(all, Type(id))
		}
	}
	return all
}

// ParseType finds a known type by its name, in any case: "q4_k" or "Q4_K".
func ParseType(name string) (Type, error) {
	for id, info := range types {
		if info.supported && strings.EqualFold(info.name, name) {
			return Type(id), nil
		}
	}
	return 0, fmt.Errorf("tensor type %q is unknown, want one of %s", name, typeNames())
}

func typeNames() string {
	var names []string
	for _, t := range Types() {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}
