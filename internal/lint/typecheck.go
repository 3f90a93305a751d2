package lint

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Package is a type-checked package.
type Package struct {
	Path  string
	Fset  *token.FileSet
	Files []*ast.File
	Info  *types.Info
}

// Pass are the packages whose floating-point arithmetic must have the same bits everywhere. What a drafter computes decides
// no token.
var Pass = []string{
	Module + "/internal/detmath", Module + "/sample", Module + "/quant", Module + "/tensor", Module + "/kvcache", Module + "/model",
	Module + "/engine", Module + "/engine/verify",
}

// Load type-checks packages of the module without their tests, as built for an architecture. It reads the compiler's export
// data, which `go list -export` makes.
func Load(root, goarch string, paths ...string) ([]Package, error) {
	type listed struct{ path, export, dir, files string }
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \",\"}}"}, paths...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOARCH="+goarch, "CGO_ENABLED=0", "GOTOOLCHAIN=auto")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %v: %s", err, stderr.String())
	}
	exports := make(map[string]string)
	var wanted []listed
	for row := range strings.Lines(string(out)) {
		c := strings.Split(strings.TrimSuffix(row, "\n"), "\t")
		if len(c) != 4 {
			return nil, fmt.Errorf("go list: unexpected line %q", row)
		}
		exports[c[0]] = c[1]
		if slices.Contains(paths, c[0]) {
			wanted = append(wanted, listed{c[0], c[1], c[2], c[3]})
		}
	}
	var pkgs []Package
	for _, w := range wanted {
		sources := make(map[string][]byte)
		for name := range strings.SplitSeq(w.files, ",") {
			file := filepath.Join(w.dir, name)
			if sources[file], err = os.ReadFile(file); err != nil {
				return nil, err
			}
		}
		p, err := Check(w.path, goarch, sources, exports)
		if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// Check type-checks the sources of one package; exports maps import paths to files of export data.
func Check(path, goarch string, sources map[string][]byte, exports map[string]string) (Package, error) {
	p := Package{Path: path, Fset: token.NewFileSet(), Info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection), Instances: make(map[*ast.Ident]types.Instance),
	}}
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		tree, err := File{Path: name, Data: sources[name]}.Parse(p.Fset)
		if err != nil {
			return p, err
		}
		p.Files = append(p.Files, tree)
	}
	open := func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok || file == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(file)
	}
	config := types.Config{Importer: importer.ForCompiler(p.Fset, "gc", open), Sizes: types.SizesFor("gc", goarch)}
	_, err := config.Check(path, p.Fset, p.Files, p.Info)
	return p, err
}
