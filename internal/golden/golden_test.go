package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// outcome is a test that notes how it ended.
type outcome struct {
	testing.TB
	skipped, failed string
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(format string, args ...any) {
	o.skipped = fmt.Sprintf(format, args...)
	panic(o)
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.failed = fmt.Sprintf(format, args...)
	panic(o)
}

// run is what f returns, or how it ended the test.
func run(f func(t testing.TB, name string) string, name string) (path string, o outcome) {
	defer func() {
		if end := recover(); end != nil && end != &o {
			panic(end)
		}
	}()
	path = f(&o, name)
	return
}

func TestModel(t *testing.T) {
	t.Setenv("QUICKDRAFT_MODELS", "")
	_, o := run(Model, "smollm2")
	require.Equal(t, outcome{skipped: "needs the real model smollm2-135m.gguf: set QUICKDRAFT_MODELS to the folder that holds it"}, o)

	dir := t.TempDir()
	t.Setenv("QUICKDRAFT_MODELS", dir)
	_, o = run(Model, "smollm2")
	require.Equal(t, outcome{failed: "QUICKDRAFT_MODELS=" + dir + " has no file smollm2-135m.gguf"}, o)

	want := filepath.Join(dir, "smollm2-135m.gguf")
	require.NoError(t, os.Mkdir(want, 0o755))
	_, o = run(Model, "smollm2")
	require.NotEmpty(t, o.failed, "a folder is no file")
	require.NoError(t, os.Remove(want))
	require.NoError(t, os.WriteFile(want, nil, 0o644))
	path, o := run(Model, "smollm2")
	require.Equal(t, outcome{}, o)
	require.Equal(t, want, path)

	_, o = run(Model, "smollm")
	require.Equal(t, outcome{failed: `real model "smollm": want one of [gemma3 qwen05 qwen15 smollm2]`}, o)
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("QUICKDRAFT_GOLDEN", dir)
	_, o := run(Dir, "archs")
	require.Equal(t, outcome{failed: "QUICKDRAFT_GOLDEN=" + dir + ` has no golden set "archs"`}, o)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "archs"), 0o755))
	path, o := run(Dir, "archs")
	require.Equal(t, outcome{}, o)
	require.Equal(t, filepath.Join(dir, "archs"), path)
}

func TestCovered(t *testing.T) {
	tests, err := testsBelow(fstest.MapFS{
		"a/b/x_test.go":        {Data: []byte("package b\n\nfunc TestOne(t *testing.T) {}\n\nfunc FuzzTwo(f *testing.F) {}\n\nfunc helper() {}\n// func TestNone(")},
		"a/y.go":               {Data: []byte("\nfunc TestNone() {}\n")},
		"a/testdata/z_test.go": {Data: []byte("\nfunc TestNone(t *testing.T) {}\n")},
		"_gen/z_test.go":       {Data: []byte("\nfunc TestNone(t *testing.T) {}\n")},
		"root_test.go":         {Data: []byte("func TestRoot(t *testing.T) {}")},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a/b/TestOne": true, "a/b/FuzzTwo": true, "TestRoot": true}, tests)
	require.Empty(t, uncovered(map[string][]string{"x": {"a/b/TestOne", "a/b/FuzzTwo"}, "y": {"TestRoot"}}, tests))
	require.Equal(t, []string{"x: there is no a/b/TestTwo", "y: no test"}, uncovered(map[string][]string{"x": {"a/b/TestOne", "a/b/TestTwo"}, "y": nil}, tests))
	Covered(t, map[string][]string{"this one": {"internal/golden/TestCovered"}})
}
