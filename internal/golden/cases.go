package golden

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// testFunction finds the tests and fuzz targets of a file.
var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)

// Covered looks up the tests of cases, each named by its folder and function as in "text/chat/TestHostile": one that goes away,
// or a case without any, fails t.
func Covered(t testing.TB, cases map[string][]string) {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	tests, err := testsBelow(os.DirFS(filepath.Join(filepath.Dir(file), "..", "..")))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range uncovered(cases, tests) {
		t.Error(line)
	}
}

// uncovered says of each case what it lacks.
func uncovered(cases map[string][]string, tests map[string]bool) (lines []string) {
	for _, what := range slices.Sorted(maps.Keys(cases)) {
		if len(cases[what]) == 0 {
			lines = append(lines, what+": no test")
		}
		for _, name := range cases[what] {
			if !tests[name] {
				lines = append(lines, what+": there is no "+name)
			}
		}
	}
	return lines
}

// testsBelow finds the tests of a module, but for those in folders that the go command passes over.
func testsBelow(root fs.FS) (map[string]bool, error) {
	tests := map[string]bool{}
	return tests, fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && file != "." && (name == "testdata" || strings.ContainsAny(name[:1], "._")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		data, err := fs.ReadFile(root, file)
		for _, m := range testFunction.FindAllSubmatch(data, -1) {
			tests[path.Join(path.Dir(file), string(m[1]))] = true
		}
		return err
	})
}
