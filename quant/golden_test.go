package quant

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
)

// goldenFile is one data file of the manifest.
type goldenFile struct {
	File   string `json:"file"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256_uncompressed"`
	Rows   int    `json:"rows"`
}

// goldenCase is one entry of any of the manifest's groups.
type goldenCase struct {
	Type      string      `json:"type"`
	TypeID    gguf.Type   `json:"type_id"`
	Q         goldenFile  `json:"q"`
	Deq       *goldenFile `json:"deq"`
	DeqSHA256 string      `json:"deq_full_sha256"`
	RMSE      float64     `json:"rmse_rel_ordinary_rows"`
}

type goldenManifest struct {
	Matrix struct {
		goldenFile
		Cols int `json:"cols"`
	} `json:"matrix"`
	Quantized     map[string]goldenCase `json:"quantized"`
	Real          map[string]goldenCase `json:"real"`
	Random        map[string]goldenCase `json:"random_blocks"`
	GGMLQuantized map[string]goldenCase `json:"ggml_quantized"`
}

func readFloats(t *testing.T, path string) []float32 {
	data := golden.Read(t, path)
	out := make([]float32, len(data)/4)
	decodeF32(out, data)
	return out
}

func floatBytes(x []float32) []byte {
	out := make([]byte, 4*len(x))
	encodeF32(out, x)
	return out
}

// requireSameBits compares all values, and on a difference names the first.
func requireSameBits(t require.TestingT, want, got []float32, what string) {
	require.Len(t, got, len(want), what)
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			require.Failf(t, "bits differ", "%s: value %d: want %v (%#x), got %v (%#x)", what, i,
				want[i], math.Float32bits(want[i]), got[i], math.Float32bits(got[i]))
		}
	}
}

// checkDecode decodes a case's blocks both from the file layout and from tiles, against its values.
func checkDecode(t *testing.T, dir, name string, c goldenCase) {
	f, ok := Get(c.TypeID)
	require.True(t, ok, name)
	q := golden.Read(t, filepath.Join(dir, c.Q.File))
	require.Len(t, q, c.Q.Bytes, name)
	out := make([]float32, len(q)/f.BlockBytes*f.BlockSize)
	f.Decode(out, q)
	if c.Deq != nil {
		want := readFloats(t, filepath.Join(dir, c.Deq.File))
		requireSameBits(t, want, out[:len(want)], name)
	}
	if c.DeqSHA256 != "" {
		sum := sha256.Sum256(floatBytes(out))
		require.Equal(t, c.DeqSHA256, hex.EncodeToString(sum[:]), name)
	}
}

// TestGoldenQuants runs the whole set: blocks to values for every group, values to the reference's bytes where the format
// defines them, and the error of our own quantisers against the reference's.
func TestGoldenQuants(t *testing.T) {
	dir := golden.Dir(t, "quants")
	var m goldenManifest
	golden.ReadJSON(t, filepath.Join(dir, "manifest.json"), &m)
	count := 0
	for group, cases := range map[string]map[string]goldenCase{
		"quantized": m.Quantized, "real": m.Real, "random": m.Random, "ggml": m.GGMLQuantized,
	} {
		for name, c := range cases {
			if _, ok := Get(c.TypeID); !ok || name == "_matrix" {
				continue
			}
			t.Run(group+"/"+name, func(t *testing.T) { checkDecode(t, dir, name, c) })
			count++
		}
	}
	src := readFloats(t, filepath.Join(dir, m.Matrix.File))
	for name, c := range m.Quantized {
		f, ok := Get(c.TypeID)
		if !ok {
			continue
		}
		t.Run("encode/"+name, func(t *testing.T) {
			want := golden.Read(t, filepath.Join(dir, c.Q.File))
			got := make([]byte, len(want))
			f.Encode(got, src)
			for i := range want {
				require.Equal(t, want[i], got[i], "block %d byte %d, row %d", i/f.BlockBytes, i%f.BlockBytes, i/f.RowBytes(m.Matrix.Cols))
			}
		})
	}
	sub := readFloats(t, filepath.Join(dir, "ggml.src.f32.gz"))
	for name, c := range m.GGMLQuantized {
		f, ok := Get(c.TypeID)
		if !ok || name == "_matrix" {
			continue
		}
		t.Run("error/"+name, func(t *testing.T) {
			got := relativeError(f, sub, 18*m.Matrix.Cols)
			t.Logf("%s: relative error %.5f, reference %.5f", name, got, c.RMSE)
			require.Less(t, got, c.RMSE)
		})
	}
	golden.Count(t, "quants", count)
}

// relativeError quantises x and returns the root of the squared error over the squared values, from value first on.
func relativeError(f *Format, x []float32, first int) float64 {
	q := make([]byte, f.RowBytes(len(x)))
	f.Encode(q, x)
	out := make([]float32, len(x))
	f.Decode(out, q)
	var diff, norm float64
	for i := first; i < len(x); i++ {
		e := float64(out[i]) - float64(x[i])
		diff += e * e
		norm += float64(x[i]) * float64(x[i])
	}
	return math.Sqrt(diff / norm)
}
