package gguf

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeParts writes a model of count parts with one tensor each into dir; change may spoil part i before it is written.
func writeParts(t *testing.T, dir string, count int, change func(i int, w *Writer)) string {
	t.Helper()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, count)) }
	for i := range count {
		w := NewWriter()
		if i == 0 {
			w.Set("general.architecture", "llama")
		}
		w.Set("split.no", uint16(i))
		w.Set("split.count", uint16(count))
		w.Set("split.tensors.count", int32(count))
		w.AddTensor(fmt.Sprintf("t%d", i), TypeF32, []int{2}, ramp(8))
		if change != nil {
			change(i, w)
		}
		require.NoError(t, w.WriteFile(path(i)))
	}
	return path(0)
}

func TestSplitFilesAreJoined(t *testing.T) {
	first := writeParts(t, t.TempDir(), 3, nil)
	f, err := Open(first)
	require.NoError(t, err)
	defer f.Close()
	require.Len(t, f.Tensors(), 3)
	for i, tensor := range f.Tensors() {
		require.Equal(t, fmt.Sprintf("t%d", i), tensor.Name)
		require.Equal(t, ramp(8), tensor.Data)
		f.Release(tensor)
	}
	arch, _ := f.String("general.architecture")
	require.Equal(t, "llama", arch)
	require.ErrorContains(t, f.TensorError("t2", "is odd"), "m-00003-of-00003.gguf: tensor \"t2\"")
}

func TestVocabularyOfSplitFiles(t *testing.T) {
	first := writeParts(t, t.TempDir(), 2, func(i int, w *Writer) {
		w.Set("split.tensors.count", int32(3))
		if i == 0 {
			w.Set("tokenizer.ggml.tokens", []string{"a", "b", "c"})
			return
		}
		w.AddTensor("token_embd.weight", TypeF32, []int{1, 2}, ramp(8))
	})
	_, err := Open(first)
	require.ErrorContains(t, err, "holds 3 tokens, more than the 2 rows")
}

func TestSplitFilesThatDoNotFit(t *testing.T) {
	set := func(part int, key string, value any) func(int, *Writer) {
		return func(i int, w *Writer) {
			if i == part {
				w.Set(key, value)
			}
		}
	}
	for _, c := range []struct {
		name, reason string
		change       func(i int, w *Writer)
	}{
		{"other number", `00002-of-00003.gguf: key "split.no": at byte 44: 2 is missing or not that of this part, want 1`, set(1, "split.no", uint16(2))},
		{"other count", `00002-of-00003.gguf: key "split.count": at byte`, set(1, "split.count", uint16(2))},
		{"too many parts", "60000 is not an integer from 0 to 1024", set(0, "split.count", uint16(60000))},
		{"count is text", `"3" is not an integer`, set(0, "split.count", "3")},
		{"fewer than the name says", "must end in -00001-of-00002.gguf", set(0, "split.count", uint16(2))},
		{"first is second", "must end in -00002-of-00003.gguf", set(0, "split.no", uint16(1))},
		{"tensors missing", "9 tensors are claimed, but the parts hold 3", set(0, "split.tensors.count", int32(9))},
		{"tensor twice", `00002-of-00003.gguf: tensor "t0": at byte`, func(i int, w *Writer) {
			if i == 1 {
				w.AddTensor("t0", TypeF32, []int{2}, ramp(8))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(writeParts(t, t.TempDir(), 3, c.change))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.ErrorContains(t, err, c.reason)
		})
	}
	t.Run("part missing", func(t *testing.T) {
		dir := t.TempDir()
		first := writeParts(t, dir, 3, nil)
		require.NoError(t, os.Remove(filepath.Join(dir, "m-00003-of-00003.gguf")))
		_, err := Open(first)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorContains(t, err, "part 3 of 3")
	})
	t.Run("part broken", func(t *testing.T) {
		dir := t.TempDir()
		first := writeParts(t, dir, 3, nil)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "m-00002-of-00003.gguf"), []byte("GGUF"), 0o600))
		_, err := Open(first)
		require.ErrorContains(t, err, "m-00002-of-00003.gguf: at byte 4")
	})
	t.Run("not the first", func(t *testing.T) {
		dir := t.TempDir()
		writeParts(t, dir, 3, nil)
		_, err := Open(filepath.Join(dir, "m-00002-of-00003.gguf"))
		require.ErrorContains(t, err, "1 is not the first part, 0: open "+filepath.Join(dir, "m-00001-of-00003.gguf"))
	})
	t.Run("renamed", func(t *testing.T) {
		first := writeParts(t, t.TempDir(), 2, nil)
		other := filepath.Join(filepath.Dir(first), "other.gguf")
		require.NoError(t, os.Rename(first, other))
		_, err := Open(other)
		require.ErrorContains(t, err, "must end in -00001-of-00002.gguf")
	})
}
