package quantize

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

// layersOf lists the layers of a tensor by their types, "Q6_K: 0 1 2".
func layersOf(target Target, m matrix, part string) string {
	by := map[gguf.Type][]string{}
	var order []gguf.Type
	for i := range m.layers {
		m.parse(fmt.Sprintf("blk.%d.%s.weight", i, part))
		t := target.typeOf(&m)
		if by[t] == nil {
			order = append(order, t)
		}
		by[t] = append(by[t], fmt.Sprint(i))
	}
	slices.Sort(order)
	var all []string
	for _, t := range order {
		if len(by[t]) == m.layers {
			return t.String()
		}
		all = append(all, fmt.Sprintf("%v: %s", t, strings.Join(by[t], " ")))
	}
	return strings.Join(all, ", ")
}

// TestMixes checks a model of 24 layers whose key-value heads serve two query heads each.
func TestMixes(t *testing.T) {
	const more = "0 1 2 5 8 11 14 17 20 21 22 23"
	const rest = "3 4 6 7 9 10 12 13 15 16 18 19"
	for name, want := range map[string]map[string]string{
		"Q2_K":   {"attn_v": "Q3_K", "ffn_down": "Q3_K", "attn_output": "Q3_K", "attn_q": "Q2_K", "ffn_up": "Q2_K", "attn_qkv": "Q2_K"},
		"Q2_K_S": {"attn_v": "Q2_K", "ffn_down": "Q2_K: 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23, Q4_K: 0 1 2", "attn_q": "Q2_K"},
		"Q3_K_S": {"attn_v": "Q3_K", "ffn_down": "Q3_K", "attn_output": "Q3_K"},
		"Q3_K_M": {
			"attn_v":      "Q4_K: 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23, Q5_K: 0 1",
			"ffn_down":    "Q4_K: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23, Q5_K: 0",
			"attn_output": "Q4_K", "ffn_gate": "Q3_K", "attn_k": "Q3_K", "attn_qkv": "Q4_K",
		},
		"Q3_K_L": {"attn_v": "Q5_K", "ffn_down": "Q5_K", "attn_output": "Q5_K", "attn_qkv": "Q4_K", "attn_k": "Q3_K"},
		"Q4_K_S": {
			"attn_v":      "Q4_K: 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23, Q5_K: 0 1 2 3",
			"ffn_down":    "Q4_K: 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23, Q5_K: 0 1 2",
			"attn_output": "Q4_K",
		},
		"Q4_K_M": {
			"attn_v": "Q4_K: " + rest + ", Q6_K: " + more, "ffn_down": "Q4_K: " + rest + ", Q6_K: " + more,
			"ffn_down_exps": "Q4_K: " + rest + ", Q6_K: " + more, "attn_output": "Q4_K", "attn_qkv": "Q5_K", "ffn_up": "Q4_K",
		},
		"Q5_K_S": {"attn_v": "Q5_K", "ffn_down": "Q5_K", "attn_qkv": "Q5_K"},
		"Q5_K_M": {"attn_v": "Q5_K: " + rest + ", Q6_K: " + more, "ffn_down": "Q5_K: " + rest + ", Q6_K: " + more, "attn_qkv": "Q6_K"},
		"Q4_K":   {"attn_v": "Q4_K", "ffn_down": "Q4_K", "attn_qkv": "Q4_K"},
	} {
		target, err := ParseTarget(strings.ToLower(name), false)
		require.NoError(t, err)
		for part, types := range want {
			require.Equal(t, types, layersOf(target, matrix{layers: 24, shared: 2}, part), "%s %s", name, part)
		}
	}
	q2, _ := ParseTarget("Q2_K", false)
	require.Equal(t, "Q4_K", layersOf(q2, matrix{layers: 24, shared: 4}, "attn_v"))
	for name, want := range map[string][3]string{ // of eight experts: k and v, output, experts
		"Q2_K": {"Q8_0", "Q5_K", "Q3_K"}, "Q3_K_S": {"Q8_0", "Q5_K", "Q3_K"}, "Q5_K_S": {"Q8_0", "Q5_K", "Q5_K"},
	} {
		target, _ := ParseTarget(name, false)
		m := matrix{layers: 4, shared: 4, experts: 8}
		require.Equal(t, want, [3]string{layersOf(target, m, "attn_v"), layersOf(target, m, "attn_output"), layersOf(target, m, "ffn_down_exps")}, name)
	}
}

func TestParseTarget(t *testing.T) {
	ids := map[uint32]string{}
	for _, m := range mixes {
		require.Empty(t, ids[m.fileType])
		ids[m.fileType] = m.Name
		pure, err := ParseTarget(m.Name, true)
		require.NoError(t, err)
		require.Nil(t, pure.rule)
		require.Equal(t, m.Base.String(), pure.Name)
	}
	plain, err := ParseTarget("iq4_xs", false)
	require.NoError(t, err)
	require.Equal(t, gguf.TypeIQ4_XS, plain.Base)
	_, err = ParseTarget("q4_k_x", false)
	require.ErrorContains(t, err, `tensor type "q4_k_x" is unknown`)
	require.ErrorContains(t, err, "and the mixes Q2_K_S, Q3_K_S, Q3_K_M")
	named := regexp.MustCompile(`[A-Z][A-Z0-9_]+`).FindAllString(err.Error(), -1)
	slices.Sort(named)
	require.Equal(t, slices.Compact(slices.Clone(named)), named, "each once")
	for _, m := range mixes {
		require.Contains(t, named, m.Name)
	}
}

// TestOutputMatrix keeps more bits for the matrix that makes the logits, which is the embedding where there is no other.
func TestOutputMatrix(t *testing.T) {
	target, err := ParseTarget("Q4_K_M", false)
	require.NoError(t, err)
	for _, tc := range []struct {
		hasOutput bool
		name      string
		cols      int
		want      gguf.Type
	}{
		{false, "token_embd.weight", 512, gguf.TypeQ6_K},
		{true, "token_embd.weight", 512, gguf.TypeQ4_K},
		{true, "output.weight", 512, gguf.TypeQ6_K},
		{true, "output.weight", 96, gguf.TypeQ8_0},
		{true, "token_embd.weight", 96, gguf.TypeQ5_0},
	} {
		r := &run{source: &source{hasOutput: tc.hasOutput, shape: matrix{layers: 2}}, target: target}
		x := &sourceTensor{}
		x.Name, x.Dims = tc.name, []int{tc.cols, 100}
		require.Equal(t, tc.want, r.choose(x), "%+v", tc)
	}
}
