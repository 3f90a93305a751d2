package model

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
)

// damages is how many changed copies of each file are loaded: QUICKDRAFT_DAMAGES, by default few enough for every run of the tests.
func damages(t *testing.T) int {
	if s := os.Getenv("QUICKDRAFT_DAMAGES"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	return 12
}

// damageBytes changes one place in the first n bytes.
func damageBytes(r *rand.Rand, data []byte, n int) []byte {
	data = slices.Clone(data)
	at := r.IntN(n)
	rest := data[at:]
	length := 1 + r.IntN(min(len(rest), 64))
	switch r.IntN(7) {
	case 0:
		rest[0] = byte(r.Uint32())
	case 1:
		rest[0] ^= 1 << r.IntN(8)
	case 2: // a number of 8 bytes, or what is left of it
		edge := []uint64{0, 1, math.MaxUint64, 1 << 63, 1 << 40, 1 << 31, 1 << 16, 4095}
		copy(rest, binary.LittleEndian.AppendUint64(nil, edge[r.IntN(len(edge))]))
	case 3: // a number of 4 bytes
		edge := []uint32{0, 1, math.MaxUint32, 1 << 31, 1 << 24, 1 << 18, 1 << 12, 1 << 10, 3}
		copy(rest, binary.LittleEndian.AppendUint32(nil, edge[r.IntN(len(edge))]))
	case 4:
		return data[:at]
	case 5:
		return slices.Delete(data, at, at+length)
	case 6:
		return slices.Insert(data, at, slices.Clone(rest[:length])...)
	}
	return data
}

// damageJSON changes one value of an object, however deep, or drops it.
func damageJSON(r *rand.Rand, object map[string]any) {
	for {
		keys := slices.Sorted(maps.Keys(object))
		key := keys[r.IntN(len(keys))]
		if inner, ok := object[key].(map[string]any); ok && len(inner) > 0 && r.IntN(4) > 0 {
			object = inner
			continue
		}
		odd := []any{
			nil, true, false, 0, 1, -1, 3, 1.5, 1e-300, 1e300, 1 << 10, 4096, 1 << 17, 1 << 18, 1 << 24, 1 << 31, uint64(math.MaxUint64), "", "x", []any{}, []any{0, 0},
			[]any{1 << 17, 1 << 17}, []any{"full_attention"}, map[string]any{}, map[string]any{"rope_type": "yarn"},
		}
		if i := r.IntN(len(odd) + 1); i < len(odd) {
			object[key] = odd[i]
		} else {
			delete(object, key)
		}
		return
	}
}

// tryDamaged loads a damaged checkpoint and runs a pass if that goes well: whatever is in it, there is no panic, an error names the
// place, and loading allocates little beside the weights.
func tryDamaged(t *testing.T, path, what string) (loaded bool) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := Load(path, Options{})
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "%s: %v", what, err)
	if err != nil {
		require.ErrorContains(t, err, path, what)
		require.Less(t, len(err.Error()), 2000, what)
		return false
	}
	defer func() { require.NoError(t, m.Close()) }()
	cache, err := m.NewCache(2)
	require.NoError(t, err, what)
	seq := cache.NewSeq()
	if m.Config().EncoderLayers > 0 {
		require.NoError(t, m.Encode(seq, []int32{0, 0, 0}), what)
	}
	_, err = m.Forward(&Batch{Tokens: []int32{0, 0, 0}, Spans: []Span{{Seq: seq, N: 3}}, Logits: []int32{2}})
	if err != nil {
		t.Logf("%s: %v", what, err)
	}
	return true
}

// TestDamagedFiles loads random damages of every architecture's GGUF file and folder.
func TestDamagedFiles(t *testing.T) {
	root, n := golden.Dir(t, "archs"), damages(t)
	loaded, refused := 0, 0
	count := func(ok bool) {
		if ok {
			loaded++
		} else {
			refused++
		}
	}
	for _, name := range append(archNames(t, root, "causal"), archNames(t, root, "t5")...) {
		dir := filepath.Join(root, name)
		path, err := export(t, dir)
		require.NoError(t, err)
		data, header := ggufBytes(t, path)
		config := golden.Read(t, filepath.Join(dir, "config.json"))
		folder := copyDir(t, dir)
		weights, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
		require.NoError(t, err)
		require.NotEmpty(t, weights)
		tensors := golden.Read(t, weights[0])
		for i := range n {
			r := rand.New(rand.NewPCG(uint64(i), uint64(len(data))))
			what := fmt.Sprintf("%s, damage %d", name, i)
			require.NoError(t, os.WriteFile(path, damageBytes(r, data, header), 0o644))
			count(tryDamaged(t, path, what+" of the GGUF file"))

			var fields map[string]any
			require.NoError(t, json.Unmarshal(config, &fields))
			damageJSON(r, fields)
			changed, err := json.Marshal(fields)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), changed, 0o644))
			count(tryDamaged(t, folder, what+" of config.json"))

			require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), config, 0o644))
			require.NoError(t, os.WriteFile(weights[0], damageBytes(r, tensors, 8+int(binary.LittleEndian.Uint64(tensors))), 0o644))
			count(tryDamaged(t, folder, what+" of "+filepath.Base(weights[0])))
			require.NoError(t, os.WriteFile(weights[0], tensors, 0o644))
		}
	}
	t.Logf("%d loaded, %d refused", loaded, refused)
	require.Positive(t, loaded)
	require.Positive(t, refused)
}

// ggufBytes reads a file; its header ends where the first tensor's data begin.
func ggufBytes(t *testing.T, path string) (data []byte, header int) {
	t.Helper()
	data = golden.Read(t, path)
	f, err := gguf.Parse(path, data)
	require.NoError(t, err)
	header = len(data)
	for _, x := range f.Tensors() {
		header -= len(x.Data)
	}
	require.Greater(t, header, 0)
	return data, header
}

// TestUnprovenSizesAreNotAllocated has small files claim much.
func TestUnprovenSizesAreNotAllocated(t *testing.T) {
	root := golden.Dir(t, "archs")
	for name, edits := range map[string]map[string]any{
		"mixtral":            {"num_local_experts": 4096, "num_hidden_layers": 1024},
		"qwen2-moe":          {"moe_intermediate_size": 1 << 18, "shared_expert_intermediate_size": 1 << 18},
		"qwen3-moe":          {"moe_intermediate_size": 1 << 18, "num_hidden_layers": 1},
		"t5-relu-tied":       {"relative_attention_max_distance": 1 << 16, "num_heads": 4096},
		"llama-untied":       {"intermediate_size": 1 << 18, "num_hidden_layers": 1024, "num_attention_heads": 4096, "num_key_value_heads": 4096},
		"gemma3-text":        {"vocab_size": 1 << 24},
		"phi3-longrope":      {"max_position_embeddings": 1 << 28},
		"t5-v1_1-gated-gelu": {"num_layers": 1024, "num_decoder_layers": 1024, "d_ff": 1 << 18},
	} {
		dir := copyDir(t, filepath.Join(root, name))
		editConfig(t, dir, func(config map[string]any) { maps.Copy(config, edits) })
		tryDamaged(t, dir, name+" with "+strings.ReplaceAll(fmt.Sprint(edits), "map", ""))
	}
}
