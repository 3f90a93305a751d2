// Package golden finds the conformance data and the real models that tests compare with.
//
// The data lives outside the repository: QUICKDRAFT_GOLDEN names its folder, and without it ../shared/golden beside the
// checkout is used. Real models lie in the folder that QUICKDRAFT_MODELS names, as `quickdraft list --dir` prints it. A test whose
// data is absent is skipped with a message, unless the variable says that it is there.
package golden

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Root returns the folder of the conformance data and whether it exists.
func Root() (string, bool) {
	root := os.Getenv("QUICKDRAFT_GOLDEN")
	if root == "" {
		_, file, _, _ := runtime.Caller(0)
		root = filepath.Join(filepath.Dir(file), "..", "..", "..", "shared", "golden")
	}
	info, err := os.Stat(root)
	return root, err == nil && info.IsDir()
}

// Dir returns the folder of one set ("archs", "quants", "tokenizers", ...). It skips the test when it is absent, and fails it
// when QUICKDRAFT_GOLDEN says that it is there.
func Dir(t testing.TB, set string) string {
	t.Helper()
	root, ok := Root()
	dir := filepath.Join(root, set)
	if info, err := os.Stat(dir); !ok || err != nil || !info.IsDir() {
		if os.Getenv("QUICKDRAFT_GOLDEN") != "" {
			t.Fatalf("QUICKDRAFT_GOLDEN=%s has no golden set %q", root, set)
		}
		t.Skipf("golden set %q not found under %s: set QUICKDRAFT_GOLDEN to the folder that holds it", set, root)
	}
	return dir
}

// models are the real models of the set "real" and the files that hold them in the model cache.
var models = map[string]string{
	"smollm2": "smollm2-135m.gguf",
	"gemma3":  "gemma3-270m.gguf",
	"qwen05":  "qwen2.5-coder-0.5b.gguf",
	"qwen15":  "qwen2.5-coder-1.5b.gguf",
}

// Models lists the names that Model knows, sorted.
func Models() []string { return slices.Sorted(maps.Keys(models)) }

// Model returns the file of a real model. It skips the test when QUICKDRAFT_MODELS names no folder, and fails it when the
// folder lacks the file.
func Model(t testing.TB, name string) string {
	t.Helper()
	file, ok := models[name]
	if !ok {
		t.Fatalf("real model %q: want one of %v", name, Models())
	}
	dir := os.Getenv("QUICKDRAFT_MODELS")
	if dir == "" {
		t.Skipf("needs the real model %s: set QUICKDRAFT_MODELS to the folder that holds it", file)
	}
	path := filepath.Join(dir, file)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		t.Fatalf("QUICKDRAFT_MODELS=%s has no file %s", dir, file)
	}
	return path
}

// Count reports how many cases of a set ran: in the test's log, and as a line "set n" appended to the file that
// QUICKDRAFT_GOLDEN_LOG names, which .ci/run compares with the set's own count.
func Count(t testing.TB, set string, n int) {
	t.Helper()
	t.Logf("golden %s: %d cases", set, n)
	if path := os.Getenv("QUICKDRAFT_GOLDEN_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := fmt.Fprintf(f, "%s %d\n", set, n); err != nil {
			t.Fatal(err)
		}
	}
	if n == 0 {
		t.Errorf("golden %s: no case ran", set)
	}
}

// Read returns the content of a file, unpacked when its name ends in .gz.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		r = z
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return data
}

// ReadJSON decodes a JSON file (.json or .json.gz) into v.
func ReadJSON(t testing.TB, path string, v any) {
	t.Helper()
	if err := json.Unmarshal(Read(t, path), v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}
