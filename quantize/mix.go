package quantize

import (
	"fmt"
	"strconv"
	"strings"

	"quickdraft/modelfile/gguf"
)

// Target is what a model is quantized to: one type for all matrices, or a mix that gives more bits to those whose errors
// count most.
type Target struct {
	Name     string // "Q8_0", or of a mix "Q4_K_M"
	Base     gguf.Type
	fileType uint32
	rule     func(m *matrix) gguf.Type // nil: Base for all
}

// matrix is what rules decide by.
type matrix struct {
	part     string // the name without layer number and ".weight": "ffn_down", "attn_v", "token_embd"
	layer    int    // -1 outside of the layers
	layers   int
	shared   int // query heads that share a key-value head
	experts  int
	isOutput bool // makes the logits
}

// mixes are those of llama.cpp, by the numbers that it gives to general.file_type. All keep the output matrix in Q6_K: an
// error there goes straight into the logits. Values of attention are next: few weights, shared between heads.
var mixes = []Target{
	{"Q2_K_S", gguf.TypeQ2_K, 21, ruleQ2KS},
	{"Q3_K_S", gguf.TypeQ3_K, 11, ruleQ3KS},
	{"Q3_K_M", gguf.TypeQ3_K, 12, ruleQ3KM},
	{"Q3_K_L", gguf.TypeQ3_K, 13, ruleQ3KL},
	{"Q4_K_S", gguf.TypeQ4_K, 14, ruleQ4KS},
	{"Q4_K_M", gguf.TypeQ4_K, 15, ruleQ4KM},
	{"Q5_K_S", gguf.TypeQ5_K, 16, ruleQ5KS},
	{"Q5_K_M", gguf.TypeQ5_K, 17, ruleQ5KM},
	{"Q2_K", gguf.TypeQ2_K, 10, ruleQ2K},
}

// ParseTarget finds a mix, or else a type, by its name in any case. Pure asks for one type for all matrices: of a mix the
// one that most have.
func ParseTarget(name string, pure bool) (Target, error) {
	for _, m := range mixes {
		if !strings.EqualFold(m.Name, name) {
			continue
		}
		if pure {
			return Plain(m.Base)
		}
		return m, nil
	}
	t, err := gguf.ParseType(name)
	if err != nil {
		var names []string
		for _, m := range mixes {
			if _, err := gguf.ParseType(m.Name); err != nil { // Q2_K is both
				names = append(names, m.Name)
			}
		}
		return Target{}, fmt.Errorf("%w; and the mixes %s", err, strings.Join(names, ", "))
	}
	return Plain(t)
}

// Plain is the target of one type for all matrices.
func Plain(t gguf.Type) (Target, error) {
	fileType, ok := t.FileType()
	if !ok {
		return Target{}, fmt.Errorf("type %v: want one of %v", t, gguf.Types())
	}
	return Target{Name: t.String(), Base: t, fileType: fileType}, nil
}

// moreBits picks the layers whose errors count more: the first and the last eighth, and every third between.
func (m *matrix) moreBits() bool {
	eighth := m.layers / 8
	return m.layer < eighth || m.layer >= 7*m.layers/8 || (m.layer-eighth)%3 == 2
}

// firstOf reports whether the layer is in the first n-th of all.
func (m *matrix) firstOf(n int) bool { return m.layer < m.layers/n }

// is reports whether the matrix has one of the names; experts' matrices end in "_exps", those of shared ones in "_shexp".
func (m *matrix) is(parts ...string) bool {
	for _, p := range parts {
		if m.part == p {
			return true
		}
	}
	return false
}

func (m *matrix) down() bool { return m.is("ffn_down", "ffn_down_exps", "ffn_down_shexp") }

// common decides what all mixes do alike; false leaves it to the mix.
func (m *matrix) common() (gguf.Type, bool) {
	switch {
	case m.isOutput:
		return gguf.TypeQ6_K, true
	case m.experts == 8 && m.is("attn_k", "attn_v"): // a hundredth of the weights of such models
		return gguf.TypeQ8_0, true
	}
	return 0, false
}

func ruleQ2K(m *matrix) gguf.Type {
	switch {
	case m.is("attn_v") && m.shared >= 4:
		return gguf.TypeQ4_K
	case m.is("attn_output") && m.experts == 8:
		return gguf.TypeQ5_K
	case m.is("attn_v", "attn_output") || m.down():
		return gguf.TypeQ3_K
	}
	return gguf.TypeQ2_K
}

func ruleQ2KS(m *matrix) gguf.Type {
	if m.is("attn_v") && m.shared >= 4 || m.down() && m.firstOf(8) {
		return gguf.TypeQ4_K
	}
	return gguf.TypeQ2_K
}

func ruleQ3KS(m *matrix) gguf.Type {
	if m.is("attn_output") && m.experts == 8 {
		return gguf.TypeQ5_K
	}
	return gguf.TypeQ3_K
}

func ruleQ3KM(m *matrix) gguf.Type {
	switch {
	case m.is("attn_v") && m.layer < 2, m.down() && m.firstOf(16), m.is("attn_output") && m.experts == 8:
		return gguf.TypeQ5_K
	case m.is("attn_v", "attn_output", "attn_qkv") || m.down():
		return gguf.TypeQ4_K
	}
	return gguf.TypeQ3_K
}

func ruleQ3KL(m *matrix) gguf.Type {
	switch {
	case m.is("attn_v", "attn_output") || m.down():
		return gguf.TypeQ5_K
	case m.is("attn_qkv"):
		return gguf.TypeQ4_K
	}
	return gguf.TypeQ3_K
}

func ruleQ4KS(m *matrix) gguf.Type {
	if m.is("attn_v") && m.layer < 4 || m.down() && m.firstOf(8) || m.is("attn_output") && m.experts == 8 {
		return gguf.TypeQ5_K
	}
	return gguf.TypeQ4_K
}

func ruleQ4KM(m *matrix) gguf.Type {
	switch {
	case (m.is("attn_v") || m.down()) && m.moreBits():
		return gguf.TypeQ6_K
	case m.is("attn_qkv"), m.is("attn_output") && m.experts == 8:
		return gguf.TypeQ5_K
	}
	return gguf.TypeQ4_K
}

func ruleQ5KS(*matrix) gguf.Type { return gguf.TypeQ5_K }

func ruleQ5KM(m *matrix) gguf.Type {
	if (m.is("attn_v") || m.down()) && m.moreBits() || m.is("attn_qkv") {
		return gguf.TypeQ6_K
	}
	return gguf.TypeQ5_K
}

// typeOf is the type that a matrix of a model takes, before its columns are looked at.
func (t Target) typeOf(m *matrix) gguf.Type {
	if t.rule == nil {
		return t.Base
	}
	if typ, ok := m.common(); ok {
		return typ
	}
	return t.rule(m)
}

// parse splits a tensor's name into layer and part.
func (m *matrix) parse(name string) {
	m.part, m.layer = strings.TrimSuffix(name, ".weight"), -1
	half := strings.TrimPrefix(strings.TrimPrefix(m.part, "enc."), "dec.") // of an encoder-decoder
	rest, ok := strings.CutPrefix(half, "blk.")
	if !ok {
		return
	}
	number, part, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(number); err == nil {
		m.layer, m.part = n, part
	}
}
