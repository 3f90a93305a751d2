package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// file builds a safetensors file.
func file(header string, dataBytes int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range dataBytes {
		b = append(b, byte(i))
	}
	return b
}

// parseTensors returns the tensors of a file and leaves the buffers out.
func parseTensors(name string, data []byte) ([]*Tensor, error) {
	entries, err := parseFile(name, data)
	if err != nil {
		return nil, err
	}
	var tensors []*Tensor
	for i := range entries {
		if entries[i].weights {
			tensors = append(tensors, &entries[i].Tensor)
		}
	}
	return tensors, nil
}

const twoTensors = `{"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},` +
	`"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}}  `

func TestTensorsAreFound(t *testing.T) {
	data := file(`{"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},`+
		`"one":{"dtype":"F16","shape":[],"data_offsets":[32,34]},"ids":{"dtype":"I64","shape":[1,2],"data_offsets":[34,50]}}`, 50)
	tensors, err := parseTensors("m.safetensors", data)
	require.NoError(t, err)
	require.Len(t, tensors, 3, "the integer buffer is left out")
	body := data[len(data)-50:]
	for i, want := range []Tensor{
		{Name: "b", DType: "F32", Shape: []int{2, 3}, Data: body[8:32], file: "m.safetensors"},
		{Name: "a", DType: "BF16", Shape: []int{4}, Data: body[:8], file: "m.safetensors"},
		{Name: "one", DType: "F16", Data: body[32:34], file: "m.safetensors"},
	} {
		require.Equal(t, want, *tensors[i])
	}
	require.Equal(t, [3]int{2, 1, 1}, [3]int{tensors[0].Rows(), tensors[1].Rows(), tensors[2].Rows()})
	require.Equal(t, [3]int{3, 4, 1}, [3]int{tensors[0].Cols(), tensors[1].Cols(), tensors[2].Cols()})
}

// one is a file of one tensor "w" with the given fields.
func one(fields string, dataBytes int) []byte { return file(`{"w":{`+fields+`}}`, dataBytes) }

var hostileFiles = []struct {
	name        string
	data        []byte
	tensor, key string
	reason      string
}{
	{"empty", nil, "", "", "at byte 0: 0 bytes are too few"},
	{"7 bytes", make([]byte, 7), "", "", "at byte 0: 7 bytes are too few"},
	{"length 0", make([]byte, 8), "", "", `at byte 8: the header does not start with "{"`},
	{"length 2^64-1", append(bytes.Repeat([]byte{255}, 8), "{}"...), "", "", "18446744073709551615 is the header's length, but only 2 bytes"},
	{"length 2^40", append([]byte{0, 0, 0, 0, 0, 1, 0, 0}, "{}"...), "", "", "1099511627776 is the header's length"},
	{"length 6 MiB + 1", file("{"+strings.Repeat(" ", maxJSONBytes-1)+"}", 0), "", "", "6291457 is the header's length, want at most 6291456"},
	{"header cut", file(`{"w":`, 0), "", "", "at byte 13: the JSON ends where a value is wanted"},
	{"space before", file(` {}`, 0), "", "", "at byte 8: the header does not start"},
	{"array", file(`[]`, 0), "", "", "at byte 8: the header does not start"},
	{"not UTF-8", file("{\"\xff\":1}", 0), "", "", "at byte 10: is not valid UTF-8"},
	{"duplicate tensor", file(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "", "w", "the key is there twice"},
	{"not an object", file(`{"w":3}`, 0), "", "w", "3 is not the description of a tensor"},
	{"metadata array", file(`{"__metadata__":[1],"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), "", "__metadata__", "[1] is not an object of strings"},
	{"metadata null", file(`{"__metadata__":null}`, 0), "", "__metadata__", "null is not an object of strings"},
	{"metadata number", file(`{"__metadata__":{"n":1}}`, 0), "", "__metadata__.n", "1 is not a string"},
	{"no name", file(`{"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), "", "", "is not the description of a tensor"},
	{"no dtype", one(`"shape":[1],"data_offsets":[0,4]`, 4), "w", "dtype", "is missing, want F32, F16 or BF16"},
	{"null dtype", one(`"dtype":null,"shape":[1],"data_offsets":[0,4]`, 4), "w", "dtype", "null is not a type that can be read, want F32"},
	{"null shape", one(`"dtype":"F32","shape":null,"data_offsets":[0,4]`, 4), "w", "shape", "null is not a shape"},
	{"unknown dtype", one(`"dtype":"F33","shape":[1],"data_offsets":[0,4]`, 4), "w", "dtype", `"F33" is not a type`},
	{"dtype number", one(`"dtype":0,"shape":[1],"data_offsets":[0,4]`, 4), "w", "dtype", `0 is not a type`},
	{"F64", one(`"dtype":"F64","shape":[1],"data_offsets":[0,8]`, 8), "w", "dtype", `"F64" is not a type`},
	{"F8", one(`"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]`, 1), "w", "dtype", `"F8_E4M3" is not a type`},
	{"no shape", one(`"dtype":"F32","data_offsets":[0,4]`, 4), "w", "shape", "is missing, want up to 8 dimensions"},
	{"dimension 0", one(`"dtype":"F32","shape":[2,0],"data_offsets":[0,0]`, 0), "w", "shape", "[2 0] is not a shape"},
	{"dimension -1", one(`"dtype":"F32","shape":[-1],"data_offsets":[0,4]`, 4), "w", "shape", "[-1] is not a shape"},
	{"dimension 1.0", one(`"dtype":"F32","shape":[1.0],"data_offsets":[0,4]`, 4), "w", "shape", "[1] is not a shape"},
	{"dimension 2^64-1", one(`"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]`, 4), "w", "shape", "is not a shape"},
	{"product 2^64", one(`"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]`, 0), "w", "shape", "is not a shape"},
	{"product 2^62", one(`"dtype":"F32","shape":[2147483648,2147483648],"data_offsets":[0,4]`, 4), "w", "data_offsets", "span 4 bytes, but F32 [2147483648 2147483648] has 4611686018427387904 numbers of 4 bytes"},
	{"9 dimensions", one(`"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]`, 4), "w", "shape", "an array of 9 is not a shape"},
	{"no offsets", one(`"dtype":"F32","shape":[1]`, 4), "w", "data_offsets", "want [start, end] with start <= end <= 4"},
	{"one offset", one(`"dtype":"F32","shape":[1],"data_offsets":[0]`, 4), "w", "data_offsets", "[0] are not two offsets"},
	{"offsets of text", one(`"dtype":"F32","shape":[1],"data_offsets":["0","4"]`, 4), "w", "data_offsets", "are not two offsets"},
	{"end before start", one(`"dtype":"F32","shape":[1],"data_offsets":[4,0]`, 4), "w", "data_offsets", "[4 0] are not two offsets"},
	{"start negative", one(`"dtype":"F32","shape":[1],"data_offsets":[-4,0]`, 4), "w", "data_offsets", "[-4 0] are not two offsets"},
	{"past the end", one(`"dtype":"F32","shape":[2],"data_offsets":[0,8]`, 7), "w", "data_offsets", "[0 8] are not two offsets, want [start, end] with start <= end <= 7"},
	{"too short", one(`"dtype":"F32","shape":[2],"data_offsets":[0,4]`, 4), "w", "data_offsets", "span 4 bytes, but F32 [2] has 2 numbers of 4 bytes"},
	{"buffer too short", one(`"dtype":"I64","shape":[2],"data_offsets":[0,8]`, 8), "w", "data_offsets", "span 8 bytes, but I64 [2] has 2 numbers of 8 bytes"},
	{"overlap", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "w", "data_offsets", "4 as start overlaps the tensor before it, which ends at 8"},
	{"gap", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12), "w", "data_offsets", "8 as start leaves a gap after the tensor before it, which ends at 4"},
	{"rest", one(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`, 5), "", "", "5 bytes of data are there, but the tensors end at 4"},
}

func TestHostileFilesAreRefused(t *testing.T) {
	for _, c := range hostileFiles {
		t.Run(c.name, func(t *testing.T) {
			tensors, err := parseTensors("m.safetensors", c.data)
			require.Nil(t, tensors)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.ErrorContains(t, err, c.reason)
			require.Equal(t, "m.safetensors", e.File)
			require.Equal(t, c.tensor, e.Tensor)
			require.Equal(t, c.key, e.Key)
		})
	}
}

func TestTruncationAtAnyByteIsRefused(t *testing.T) {
	whole := file(twoTensors, 32)
	_, err := parseTensors("m.safetensors", whole)
	require.NoError(t, err)
	for n := range whole {
		_, err := parseTensors("m.safetensors", whole[:n:n])
		var e *Error
		require.ErrorAs(t, err, &e, "%d bytes", n)
	}
}

func TestChangedBytesNeverPanic(t *testing.T) {
	whole := file(twoTensors, 32)
	read, refused := 0, 0
	for i := range whole {
		for x := range 256 {
			data := bytes.Clone(whole)
			data[i] = byte(x)
			tensors, err := parseTensors("m.safetensors", data)
			if err == nil {
				useAll(tensors)
				read++
				continue
			}
			var e *Error
			require.ErrorAs(t, err, &e, "byte %d is %d", i, x)
			require.Equal(t, "m.safetensors", e.File)
			refused++
		}
	}
	require.GreaterOrEqual(t, read, 32*256, "the data may be anything")
	require.Greater(t, refused, 8*200, "the header's length may not")
}

func useAll(tensors []*Tensor) {
	for _, t := range tensors {
		if t.Rows()*t.Cols()*weightBytes[t.DType] != len(t.Data) {
			panic("tensor " + t.Name + " has the wrong size")
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(twoTensors, 32))
	for _, c := range hostileFiles {
		if len(c.data) < 1000 {
			f.Add(c.data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := parseTensors("fuzz.safetensors", data)
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.File != "fuzz.safetensors" || e.Reason == "" || e.Offset > int64(len(data))) {
			t.Fatalf("error without file, place or reason: %#v", err)
		}
		useAll(tensors)
	})
}

// folder writes a model folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// embed is a weight file whose only tensor is an embedding of rows rows.
func embed(rows int) string {
	return string(file(fmt.Sprintf(`{"model.embed_tokens.weight":{"dtype":"F32","shape":[%d,2],"data_offsets":[0,%d]}}`, rows, 8*rows), 8*rows))
}

func TestOpenSingleFile(t *testing.T) {
	dir := folder(t, map[string]string{
		"config.json":                  `{"model_type":"llama","vocab_size":3,"eos_token_id":[1,2],"bos_token_id":null}`,
		"generation_config.json":       `{"eos_token_id":2}`,
		"model.safetensors":            embed(4),
		"model.safetensors.index.json": `not read beside the single file`,
	})
	c, err := OpenDir(dir)
	require.NoError(t, err)
	require.Equal(t, dir, c.Dir())
	kind, _, _ := c.Config().String("model_type")
	require.Equal(t, "llama", kind)
	require.NotNil(t, c.Generation())
	require.Len(t, c.Tensors(), 1)
	w, ok := c.Tensor("model.embed_tokens.weight")
	require.True(t, ok)
	want := bytes.Clone(w.Data)
	c.Release(w)
	require.Equal(t, want, w.Data)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close(), "a second time")
}

func tensorFile(name string) string {
	return string(file(`{"`+name+`":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"extra.`+name+`":{"dtype":"I8","shape":[1],"data_offsets":[4,5]}}`, 5))
}

func TestOpenShards(t *testing.T) {
	dir := folder(t, map[string]string{
		"config.json": `{}`,
		"model.safetensors.index.json": `{"metadata":{},"weight_map":{"b":"model-00002-of-00002.safetensors","a":"model-00001-of-00002.safetensors",
			"extra.a":"model-00001-of-00002.safetensors"}}`,
		"model-00001-of-00002.safetensors": tensorFile("a"),
		"model-00002-of-00002.safetensors": tensorFile("b"),
	})
	c, err := OpenDir(dir)
	require.NoError(t, err)
	defer c.Close()
	require.Nil(t, c.Generation())
	require.Len(t, c.Tensors(), 2)
	require.Equal(t, "a", c.Tensors()[0].Name)
	_, ok := c.Tensor("b")
	require.True(t, ok)
	_, ok = c.Tensor("extra.a")
	require.False(t, ok)
}

func TestOpenDirRefuses(t *testing.T) {
	index := func(weightMap string) map[string]string {
		return map[string]string{"config.json": `{}`, "model.safetensors.index.json": `{"weight_map":` + weightMap + `}`, "a.safetensors": tensorFile("a")}
	}
	with := func(config string) map[string]string {
		return map[string]string{"config.json": config, "model.safetensors": embed(4)}
	}
	for _, c := range []struct {
		name, reason string
		files        map[string]string
	}{
		{"config broken", `config.json: at byte 5: want a JSON value`, with(`{"a":` + "\x01}")},
		{"config list", "config.json: at byte 0: the JSON is not an object", with(`[]`)},
		{"weights broken", "model.safetensors: at byte 0: 2 bytes are too few", map[string]string{"config.json": `{}`, "model.safetensors": "{}"}},
		{"generation broken", "generation_config.json: at byte 1", map[string]string{"config.json": `{}`, "generation_config.json": "{", "model.safetensors": embed(4)}},
		{"no weight map", `key "weight_map": is missing or empty`, map[string]string{"config.json": `{}`, "model.safetensors.index.json": `{}`}},
		{"weight map empty", `is missing or empty`, index(`{}`)},
		{"weight map text", `key "weight_map": "x" is not an object`, index(`"x"`)},
		{"tensor not in its file", `key "weight_map.b": "a.safetensors" does not hold this tensor`, index(`{"a":"a.safetensors","b":"a.safetensors"}`)},
		{"file number", `key "weight_map.a": 3 is not a file of this folder`, index(`{"a":3}`)},
		{"file above", `"../a.safetensors" is not a file of this folder`, index(`{"a":"../a.safetensors"}`)},
		{"file elsewhere", `"/etc/a.safetensors" is not`, index(`{"a":"/etc/a.safetensors"}`)},
		{"file with drive", `"c:a.safetensors" is not`, index(`{"a":"c:a.safetensors"}`)},
		{"file with backslash", `is not a file of this folder`, index(`{"a":"..\\a.safetensors"}`)},
		{"file with NUL", `"a\x00.safetensors" is not`, index(`{"a":"a\u0000.safetensors"}`)},
		{"file of another kind", `"config.json" is not`, index(`{"a":"config.json"}`)},
		{"more tokens than rows", `config.json: key "vocab_size": 5 tokens are more than the rows of tensor "model.embed_tokens.weight": 4`, with(`{"vocab_size":5}`)},
		{"vocabulary 0", `key "vocab_size": 0 is not a number of tokens`, with(`{"vocab_size":0}`)},
		{"vocabulary text", `key "vocab_size": "4" is not an integer`, with(`{"vocab_size":"4"}`)},
		{"end id outside", `key "eos_token_id": 3 names token 3, which is not in the vocabulary, want 0 to 2`, with(`{"vocab_size":3,"eos_token_id":3}`)},
		{"end id of several", `key "eos_token_id": [1 9] names token 9`, with(`{"vocab_size":3,"eos_token_id":[1,9]}`)},
		{"end id negative", `names token -1`, with(`{"eos_token_id":-1}`)},
		{"end id outside rows", `names token 4, which is not in the vocabulary, want 0 to 3`, with(`{"eos_token_id":4}`)},
		{"begin id outside", `key "bos_token_id": 3 names`, with(`{"vocab_size":3,"bos_token_id":3}`)},
		{"end id in a part", `key "text_config.eos_token_id": 7 names`, with(`{"text_config":{"vocab_size":3,"eos_token_id":7}}`)},
		{"end id for generation", `generation_config.json: key "eos_token_id": 4 names`,
			map[string]string{"config.json": `{}`, "generation_config.json": `{"eos_token_id":4}`, "model.safetensors": embed(4)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			opened, err := OpenDir(folder(t, c.files))
			require.Nil(t, opened)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.ErrorContains(t, err, c.reason)
		})
	}
	for name, files := range map[string]map[string]string{
		"no config":  {"model.safetensors": embed(4)},
		"no weights": {"config.json": `{}`},
		"no shard":   {"config.json": `{}`, "model.safetensors.index.json": `{"weight_map":{"a":"a.safetensors"}}`},
	} {
		_, err := OpenDir(folder(t, files))
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	_, err := OpenDir(folder(t, map[string]string{"config.json": `{}`}))
	require.ErrorContains(t, err, "has neither model.safetensors nor model.safetensors.index.json")
}

// TestFingerprintReadsTheConfig of the moment: all its bytes count, and one that has become too large is not read to its end.
func TestFingerprintReadsTheConfig(t *testing.T) {
	dir := folder(t, map[string]string{"config.json": `{"vocab_size":4}`, "model.safetensors": embed(4)})
	c, err := OpenDir(dir)
	require.NoError(t, err)
	defer c.Close()
	before, err := c.Fingerprint()
	require.NoError(t, err)
	config := filepath.Join(dir, "config.json")
	info, err := os.Stat(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, []byte(`{"vocab_size":3}`), 0o600))
	require.NoError(t, os.Chtimes(config, info.ModTime(), info.ModTime()))
	after, err := c.Fingerprint()
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	require.NoError(t, os.Truncate(config, maxJSONBytes+1))
	_, err = c.Fingerprint()
	require.ErrorContains(t, err, "config.json: has grown to more than 6291456 bytes")
	require.NoError(t, os.Remove(config))
	_, err = c.Fingerprint()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestGoldenCheckpointsOpen(t *testing.T) {
	dir := golden.Dir(t, "archs")
	configs, err := filepath.Glob(filepath.Join(dir, "*", "config.json"))
	require.NoError(t, err)
	require.NotEmpty(t, configs)
	for _, config := range configs {
		c, err := OpenDir(filepath.Dir(config))
		require.NoError(t, err)
		vocab, ok, err := c.Config().Int("vocab_size")
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, vocab, c.embedding().Rows(), config)
		require.NotEmpty(t, c.Tensors())
		useAll(c.Tensors())
		require.NoError(t, c.Close())
	}
}
