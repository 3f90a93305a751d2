package model

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/tensor"
)

// turned is what a rope makes of a head of ones at a position.
func turned(r *tensor.Rope, pos int32) []float32 {
	pool := tensor.NewPool(1)
	defer pool.Close()
	x := tensor.NewF32(1, r.RotDim)
	for i := range x.Data {
		x.Data[i] = 1
	}
	tensor.NewCPU(pool, 1, r.RotDim).Rope(x, r.RotDim, []int32{pos}, r)
	return x.Data
}

// requireFarOut compares heads at far positions with the rule in float64: theta^(-2i/dim) / divisors[i].
func requireFarOut(t *testing.T, name string, m *Model, theta float64, divisors []float32) {
	table := m.arch.(*llama).rope
	n := len(divisors)
	require.Equal(t, 2*n, table.RotDim)
	for _, pos := range []int32{0, 10, 2000, 6000, 20000} {
		got := turned(&table, pos)
		for i, d := range divisors {
			angle := float64(pos) * math.Pow(theta, -float64(i)/float64(n)) / float64(d)
			sin, cos := math.Sincos(angle)
			off := 4e-7*angle + 1e-6 // frequencies are float32, as everywhere
			require.InDelta(t, cos-sin, got[i], 2*off, "%s: position %d, frequency %d", name, pos, i)
			require.InDelta(t, cos+sin, got[i+n], 2*off, "%s: position %d, frequency %d", name, pos, i)
		}
	}
}

// TestRopeFarOut has the stretch of Llama 3 from metadata, in all spellings of config.json, or from rope_freqs.weight, which wins
// over any metadata beside it.
func TestRopeFarOut(t *testing.T) {
	const theta = 500000
	r := Rope{Kind: "llama3", Dim: tinyHeadDim, Theta: theta, Factor: 32, OrigLen: 8192, LowFreq: 1, HighFreq: 4}
	divisors := llama3Divisors(&r)
	metadata := func(f *tinyFile) {
		f.set("llama.rope.freq_base", float32(theta))
		f.set("llama.rope.scaling.type", "llama3")
		f.set("llama.rope.scaling.factor", float32(32))
		f.set("llama.rope.scaling.original_context_length", uint32(8192))
		f.set("llama.rope.scaling.low_freq_factor", float32(1))
		f.set("llama.rope.scaling.high_freq_factor", float32(4))
	}
	tensorOf := func(values ...float32) func(f *tinyFile) {
		return func(f *tinyFile) {
			f.set("llama.rope.freq_base", float32(theta))
			f.tensors = append(f.tensors, tinyTensor{"rope_freqs.weight", gguf.TypeF32, []int{len(values)}, floats(values...)})
		}
	}
	ones := make([]float32, tinyHeadDim/2)
	for i := range ones {
		ones[i] = 1
	}
	for name, c := range map[string]struct {
		changes  []func(f *tinyFile)
		divisors []float32
	}{
		"metadata":                {[]func(f *tinyFile){metadata}, divisors},
		"tensor":                  {[]func(f *tinyFile){tensorOf(divisors...)}, divisors},
		"tensor and metadata":     {[]func(f *tinyFile){metadata, tensorOf(divisors...)}, divisors},
		"tensor against metadata": {[]func(f *tinyFile){metadata, tensorOf(ones...)}, ones},
		"tensor against another stretch": {[]func(f *tinyFile){func(f *tinyFile) {
			f.set("llama.rope.scaling.type", "linear")
			f.set("llama.rope.scaling.factor", float32(8))
		}, tensorOf(divisors...)}, divisors},
	} {
		f := tinyGGUF("llama", gguf.TypeF32)
		for _, change := range c.changes {
			change(f)
		}
		requireFarOut(t, name, loadModel(t, f.write(t), Options{MaxBatch: 1}), theta, c.divisors)
	}
	r.Dim = 16
	for _, name := range []string{"rope_scaling.type", "rope_scaling.rope_type", "rope_parameters.rope_type"} {
		object, key, _ := strings.Cut(name, ".")
		dir := copyDir(t, filepath.Join(golden.Dir(t, "archs"), "llama3-rope"))
		editConfig(t, dir, func(c map[string]any) {
			delete(c, "rope_scaling")
			delete(c, "rope_theta")
			c["max_position_embeddings"] = 131072
			scaling := map[string]any{key: "llama3", "factor": 32, "original_max_position_embeddings": 8192, "low_freq_factor": 1, "high_freq_factor": 4}
			if c[object] = scaling; object == "rope_parameters" {
				scaling["rope_theta"] = theta
			} else {
				c["rope_theta"] = theta
			}
		})
		requireFarOut(t, name, loadModel(t, dir, Options{MaxBatch: 1}), theta, llama3Divisors(&r))
	}
}

// TestYarnWithoutRounding compares with what transformers 4.57.6 computes from the same rope_scaling with truncate false and true.
func TestYarnWithoutRounding(t *testing.T) {
	dir := filepath.Join(golden.Dir(t, "archs"), "llama3-rope")
	for truncate, want := range map[bool][]float32{
		false: {1, 0.2430078, 0.03399167, 0.007905695, 0.0025, 0.00079056947, 0.00025, 7.905695e-05},
		true:  {1, 0.23717082, 0.049999997, 0.007905695, 0.0025, 0.00079056947, 0.00025, 7.905695e-05},
	} {
		dir := copyDir(t, dir)
		editConfig(t, dir, func(c map[string]any) {
			c["rope_scaling"] = map[string]any{
				"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "beta_fast": 3, "beta_slow": 0.4, "truncate": truncate,
			}
		})
		rope := loadModel(t, dir, Options{MaxBatch: 1}).config.Rope
		got := rope.table()
		require.InDelta(t, 1.138629436111989, got.Scale, 1e-6)
		require.Len(t, got.InvFreq, len(want))
		for i, x := range want {
			require.InEpsilon(t, x, got.InvFreq[i], 1e-6, "truncate %v: frequency %d", truncate, i)
		}
		_, err := export(t, dir)
		if truncate {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "GGUF cannot say so")
		}
	}
}
