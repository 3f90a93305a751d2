package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file makes a sample.
func file(path, data string) []File { return []File{{Path: path, Data: []byte(data)}} }

// goFile makes a Go file that imports the given folders of the module.
func goFile(path string, imports ...string) []File {
	var b strings.Builder
	b.WriteString("package p\n")
	for _, i := range imports {
		fmt.Fprintf(&b, "import _ %q\n", Module+"/"+i)
	}
	return file(path, b.String())
}

// check compares the messages of findings, "line: message" each.
func check(t *testing.T, found []Finding, want ...string) {
	t.Helper()
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%d: %s", f.Line, f.Msg))
	}
	require.Equal(t, want, got)
}

func TestWholeSamples(t *testing.T) {
	code := "package p\nimport \"os\"\nfunc f(c *os.Root) {\n\tos.Rename(\"a\", \"b\")\n\tc.WriteFile(\"a\", nil, 0)\n\tos.WriteFile(\"a\", nil, 0)\n}\n"
	check(t, Whole(file("eval/a.go", code)), "4: os.Rename: files are made with internal/disk, so that none is seen half written",
		"6: os.WriteFile: files are made with internal/disk, so that none is seen half written")
	late := "package p\nfunc f(w interface{ CommitUnsynced() error }) {\n\tw.CommitUnsynced()\n}\n"
	check(t, Whole(file("kvcache/a.go", late)), "3: CommitUnsynced: only repacked weights are checked when they are read")
	check(t, Whole(file("modelfile/repacked/a.go", late)))
	for _, path := range []string{"internal/disk/a.go", "eval/a_test.go", "asm/_gen/a.go", "internal/golden/a.go"} {
		check(t, Whole(file(path, code)))
	}
}

func TestFormattedSamples(t *testing.T) {
	check(t, Formatted(file("a.go", "package p\n\nvar x = 1\n")))
	check(t, Formatted(file("a.md", "x  = 1")))
	for _, bad := range []string{"package p\n\nvar  x = 1\n", "package p\n\nvar x = 1", "package\n"} {
		check(t, Formatted(file("a.go", bad)), "0: not as gofmt writes it")
	}
}

func TestImportSamples(t *testing.T) {
	check(t, Imports(goFile("quant/a.go", "asm/vnni", "modelfile/gguf", "internal/detmath")))
	check(t, Imports(goFile("text/text.go", "text/chat", "modelfile/gguf")))
	check(t, Imports(goFile("engine/verify/a.go", "drafter", "sample")))
	check(t, Imports(goFile("quant/a_test.go", "internal/golden")))
	check(t, Imports(goFile("bench/a.go", "server", "internal/golden")))
	check(t, Imports(goFile("internal/golden/check/main.go", "internal/golden", "modelfile/gguf")))
	check(t, Imports(goFile("asm/_gen/main.go", "server")))

	check(t, Imports(goFile("quant/a.go", "asm/vnni", "tensor")), "3: quant imports tensor, which stands above it")
	check(t, Imports(goFile("quant/a_test.go", "model")), "2: quant imports model, which stands above it")
	check(t, Imports(goFile("internal/detmath/a.go", "machine")), "2: internal/detmath imports machine, which stands above it")
	check(t, Imports(goFile("engine/a.go", "hub")), "2: engine imports hub, which stands above it")
	check(t, Imports(goFile("engine/a.go", "text/chat")), "2: imports text/chat: engine never sees text")
	check(t, Imports(goFile("quant/a.go", "machine")), "2: imports machine: quant never sees a thread")
	check(t, Imports(goFile("asm/vnni/a.go", "asm/avx2")), "2: imports asm/avx2: kernels see only pointers and counts")
	check(t, Imports(goFile("cmd/quickdraft/a.go", "bench", "eval", "quantize")))
	check(t, Imports(goFile("server/a.go", "bench")), "2: imports bench: only the command line imports bench")
	check(t, Imports(goFile("quantize/a.go", "model", "text/tokenizer", "server")), "4: quantize imports server, which stands above it")
	check(t, Imports(goFile("server/a.go", "internal/golden")), "2: imports internal/golden, which is for tests")
	check(t, Imports(goFile("internal/golden/a.go", "quant")), "2: imports quant: a helper of tests imports nothing of the house")
	check(t, Imports(goFile("utils/a.go", "quant")), "2: folder utils has no place in the import order")
	check(t, Imports(goFile("server/a.go", "modelling")), "2: folder modelling has no place in the import order")
	check(t, Imports(goFile("engine/a.go", "kvcache/testdata/x")), "2: imports kvcache/testdata/x: no rule reads what lies in testdata")
	require.Len(t, Imports(file("server/a.go", "package")), 1)
}

func TestThreadsSamples(t *testing.T) {
	check(t, Threads(file("quant/a.go", "package quant\nimport \"sync\"\nfunc f() {\n\tgo f()\n}\n")),
		`2: imports "sync": quant never sees a thread`, "4: starts a goroutine: quant never sees a thread")
	check(t, Threads(file("sample/a.go", "package sample\nimport \"sync/atomic\"\n")), `2: imports "sync/atomic": sample never sees a thread`)
	check(t, Threads(file("quant/a_test.go", "package quant\nimport \"sync\"\n")))
	check(t, Threads(file("tensor/a.go", "package tensor\nimport \"sync\"\n")))
}

func TestCgoSample(t *testing.T) {
	check(t, Cgo(file("machine/a.go", "package machine\n\n// #include <stdio.h>\nimport \"C\"\n")), `4: imports "C": there is no cgo here`)
	check(t, Cgo(file("machine/a.go", "package machine\n\n//go:cgo_import_dynamic f f \"libc.so.6\"\n")), `3: //go:cgo_import_dynamic f f "libc.so.6": there is no cgo here`)
	check(t, Cgo(file("machine/a.go", "package machine\n\nimport \"os\"\n")))
}

func TestSizeSamples(t *testing.T) {
	fn := func(name string, lines int) string {
		return "func " + name + "() {\n" + strings.Repeat("\n", lines-2) + "}\n"
	}
	check(t, Sizes(file("a/a.go", "package a\n"+fn("f", 80)+fn("Forward", 120)+strings.Repeat("\n", 399))))
	check(t, Sizes(file("a/a.go", "package a\n"+fn("f", 81))), "2: f has 81 lines, at most 80 are right")
	check(t, Sizes(file("a/a_test.go", "package a\n"+fn("f", 90))), "2: f has 90 lines, at most 80 are right")
	check(t, Sizes(file("a/a.go", "package a\n\nfunc (m m) Forward() {\n"+strings.Repeat("\n", 119)+"}\n")), "3: Forward has 121 lines, at most 120 are right")
	check(t, Sizes(file("a/a.go", "package a\n"+strings.Repeat("\n", 600))), "0: has 601 lines, at most 600 are right")
	check(t, Sizes(file("a/a.go", "// Code generated by b. DO NOT EDIT.\n\npackage a\n"+strings.Repeat("\n", 600)+fn("f", 200))))
	check(t, Sizes(file("asm/_gen/a.go", "package main\n"+fn("f", 200))))
	check(t, Sizes(file("a/a.go", "package a\nvar x = 1\nvar f = func() {\n"+strings.Repeat("\n", 80)+"}\n")), "3: a function literal has 82 lines, at most 80 are right")
	check(t, Sizes(file("a/testdata/a.go", "package main\n"+fn("f", 200))))
}

func TestGeneratedSamples(t *testing.T) {
	const missing = `0: lacks the line "// Code generated by ... DO NOT EDIT."`
	check(t, Generated(file("asm/vnni/a_amd64.s", "#include \"textflag.h\"\n")), missing)
	check(t, Generated(file("asm/vnni/a.go", "package vnni\n\n// Code generated by a. DO NOT EDIT.\n")), missing)
	check(t, Generated(file("machine/a_amd64.s", "// written by hand\n")), missing)
	check(t, Generated(file("asm/vnni/a.go", "// Code generated by a. DO NOT EDIT.\n\npackage vnni\n")))
	check(t, Generated(file("asm/vnni/a_test.go", "package vnni\n")))
	check(t, Generated(file("asm/cpu/a.go", "package cpu\n")))
	const tables = "// Code generated by b. DO NOT EDIT.\n\npackage a\n"
	check(t, Generated(file("a/a.go", tables)), "0: says that it is generated, and no go:generate in its folder says by what")
	check(t, Generated([]File{{"a/a.go", []byte(tables)}, {"a/b.go", []byte("package a\n\n//go:generate go run b.go\n")}}))
}

func TestPortableSamples(t *testing.T) {
	check(t, Portable(file("a/a.s", "TEXT\n")), "0: is built for every processor: its name ends in no architecture and it has no build line")
	check(t, Portable(file("a/a.s", "//go:build linux\n")), `0: "//go:build linux" holds without amd64`)
	check(t, Portable(file("a/a.s", "//go:build amd64 || arm64\n")), `0: "//go:build amd64 || arm64" holds without amd64`)
	check(t, Portable(file("a/a.s", "//go:build amd64 && !purego\n")))
	check(t, Portable(file("a/a_amd64.s", "TEXT\n")))
	check(t, Portable(file("a/a_arm64.s", "TEXT\n")))
}

func TestForeignSamples(t *testing.T) {
	check(t, Foreign(file("hub/a.go", "x\nhttps://py"+"pi.org/simple\n")), `2: names the host of a package registry: "py`+`pi.org"`)
	check(t, Foreign(file("a.sh", "GOPROXY=https://proxy.golang"+".org\n")), `1: names the host of a package registry: "proxy.golang`+`.org"`)
	check(t, Foreign(file("README.md", "cd /wo"+"rk/main\n")), `1: names a path of one machine: "/wo`+`rk/main"`)
	check(t, Foreign(file("a.go", `p := "/ro`+`ot/go"`)), `1: names a path of one machine: "\"/ro`+`ot/"`)
	check(t, Foreign(file("a.go", "https://example.com/work/a /network/b ./work/c\n")))
	check(t, Foreign(file("go.sum", "proxy.golang"+".org\n")))
	check(t, Foreign(file("a.bin", "\x00/ro"+"ot/\n")))
}

func TestVaryingSamples(t *testing.T) {
	other := func(name string) string {
		return fmt.Sprintf("3: math.%s has other bits on other processors: use internal/detmath", name)
	}
	one := func(path, spec, use string) []Finding {
		return Varying(file(path, "package p\nimport "+spec+"\nvar x = "+use+"\n"))
	}
	check(t, one("sample/a.go", `"math"`, "math.Exp(1) + math.Sqrt(2) + math.Pi + math.MaxInt8 + math.Max(1, 2)"), other("Exp"))
	check(t, one("model/rope/a.go", `m "math"`, "m.Pow(1, 2)"), other("Pow"))
	check(t, one("engine/verify/a.go", `"math"`, "math.J0"), other("J0")) // a value, and a function that is seldom used
	check(t, one("tensor/a.go", `. "math"`, "Exp(1)"), "2: imports math without its name, which hides what is used of it")
	check(t, one("tensor/a.go", `"math/cmplx"`, "cmplx.Abs(1)"), "2: math/cmplx has other bits on other processors")
	check(t, one("sample/a.go", `"math/rand/v2"`, "rand.NormFloat64()"), "3: NormFloat64 uses math.Exp, which has other bits on other processors")
	check(t, Varying(file("quant/a.go", "package p\nimport \"math\"\nimport m \"math\"\nvar x = math.Log(2)\nvar y = m.Cos(2)\n")),
		"4: math.Log has other bits on other processors: use internal/detmath", "5: math.Cos has other bits on other processors: use internal/detmath")
	check(t, Varying(file("quant/a.go", "package p\n//go:linkname exp math.archExp\nfunc exp(x float64) float64\n")),
		"2: go:linkname reaches around the rules for imports and arithmetic")
	check(t, one("sample/a_test.go", `"math"`, "math.Exp(1)"))
	check(t, one("machine/a.go", `"math"`, "math.Exp(1)"))
}

// fusing runs the rule over one file of package p.
func fusing(t *testing.T, body string) []Finding {
	t.Helper()
	p, err := Check("p", "amd64", map[string][]byte{"p/p.go": []byte("package p\n" + body)}, nil)
	require.NoError(t, err)
	return Fusing([]Package{p}, ".")
}

func TestFusingSamples(t *testing.T) {
	for name, body := range map[string]string{
		"sum":             "func f(x, y, z float32) float32 { return x*y + z }",
		"difference":      "func f(x, y, z float64) float64 { return z - x*y }",
		"parentheses":     "func f(x, y, z float64) float64 { return ((x*y)) + z }",
		"negated":         "func f(x, y, z float64) float64 { return -(x*y) + z }",
		"variable":        "func f(x, y, z float32) float32 { t := x * y; return t + z }",
		"var":             "func f(x, y, z float32) float32 { var t = x * y; return t + z }",
		"assigned":        "func f(x, y, z float32) float32 { var t float32; t = x * y; return t + z }",
		"through two":     "func f(x, y, z float32) float32 { t := x * y; u := t; return z - u }",
		"multiplied":      "func f(x, y, z float32) float32 { x *= y; return x + z }",
		"added":           "func f(x, y, z float32) float32 { z += x * y; return z }",
		"subtracted":      "func f(x, y, z float32) float32 { z -= x * y; return z }",
		"element":         "func f(x, y []float32, z float32) float32 { return z + x[0]*y[0] }",
		"closure":         "func f(x, y, z float32) func() float32 { return func() float32 { return x*y + z } }",
		"named type":      "type real float64\nfunc f(x, y, z real) real { return x*y + z }",
		"type parameter":  "func f[T float32 | float64](x, y, z T) T { return x*y + z }",
		"result":          "func mul(x, y float32) float32 { return x * y }\nfunc f(x, y, z float32) float32 { return mul(x, y) + z }",
		"argument":        "func add(x, y float32) float32 { return x + y }\nfunc f(x, y, z float32) float32 { return add(x*y, z) }",
		"plus":            "func f(x, y, z float32) float32 { return +(x * y) + z }",
		"power of two":    "func f(x, z float32) float32 { return x/4 + z }",
		"divided":         "func f(x, z float32) float32 { x /= 2; return x + z }",
		"field":           "type p struct{ a float32 }\nfunc f(x, y, z float32) float32 { v := p{x * y}; return v.a + z }",
		"named field":     "type p struct{ a, b float32 }\nfunc f(x, y, z float32) float32 { v := p{b: x * y}; return v.b + z }",
		"assigned field":  "type p struct{ a float32 }\nfunc f(v *p, x, y, z float32) float32 { v.a = x * y; return z + v.a }",
		"generic field":   "type p[T float32] struct{ a T }\nfunc f(x, y, z float32) float32 { v := p[float32]{x * y}; return v.a + z }",
		"two results":     "func mul(x, y float32) (float32, float32) { return x, x * y }\nfunc f(x, y, z float32) float32 { _, t := mul(x, y); return t + z }",
		"named result":    "func mul(x, y float32) (r float32) { r = x * y; return }\nfunc f(x, y, z float32) float32 { return mul(x, y) + z }",
		"result handed":   "func id(x float32) float32 { return x }\nfunc f(x, y, z float32) float32 { return id(x*y) + z }",
		"generic result":  "func mul[T, U float32](x, y T, u U) T { return x * y }\nfunc f(x, y, z float32) float32 { return mul[float32, float32](x, y, z) + z }",
		"generic method":  "type n[T float32] struct{}\nfunc (n[T]) mul(x, y T) T { return x * y }\nfunc f(x, y, z float32) float32 { return n[float32]{}.mul(x, y) + z }",
		"function value":  "func mul(x, y float32) float32 { return x * y }\nfunc f(x, y, z float32) float32 { g := mul; return g(x, y) + z }",
		"method value":    "type n float32\nfunc (n n) mul(y n) n { return n * y }\nfunc f(x, y, z n) n { g := x.mul; return g(y) + z }",
		"literal result":  "func f(x, y, z float32) float32 { mul := func(a, b float32) float32 { return a * b }; return mul(x, y) + z }",
		"literal called":  "func f(x, y, z float32) float32 { return func() float32 { return x * y }() + z }",
		"literal sum":     "func f(x, y, z float32) float32 { add := func(a, b float32) float32 { return a + b }; return add(x*y, z) }",
		"receiver":        "type n float32\nfunc (n n) add(y n) n { return n + y }\nfunc f(x, y, z n) n { return (x * y).add(z) }",
		"method on":       "type n struct{}\nfunc (n) add(x, y float32) float32 { return x + y }\nfunc f(x, y, z float32) float32 { return n{}.add(z, x*y) }",
		"other name":      "func add(x, y float32) float32 { t := x; return t + y }\nfunc f(x, y, z float32) float32 { return add(x*y, z) }",
		"complex":         "func f(x, y complex64) complex64 { return x * y }",
		"variable in add": "func add(x, y float32) float32 { return x + y }\nfunc f(x, y, z float32) float32 { t := x * y; return add(z, t) }",
	} {
		require.Len(t, fusing(t, body), 1, name)
	}
	for name, body := range map[string]string{
		"converted":          "func f(x, y, z float32) float32 { return float32(x*y) + z }",
		"converted variable": "func f(x, y, z float64) float64 { t := float64(x * y); return t + z }",
		"named conversion":   "type real float64\nfunc f(x, y, z real) real { return real(x*y) + z }",
		"integers":           "func f(x, y, z int) int { return x*y + z }",
		"constants":          "const c = 2.0 * 3.0\nfunc f(z float64) float64 { return 2.0*3.0 + c + z }",
		"quotient":           "func f(x, y, z float64) float64 { return x/y + z }",
		"sum times":          "func f(x, y, z float64) float64 { return (x + y) * z }",
		"divided":            "func f(x, y, z float64) float64 { return x/3 + z }",
		"literal apart":      "func f(x, y, z float32) (float32, func() float32) { return z, func() float32 { return x * y } }\nfunc g() float32 { r, _ := f(1, 2, 3); return r + 1 }",
		"other field":        "type p struct{ a, b float32 }\nfunc f(x, y, z float32) float32 { v := p{a: x * y, b: z}; return v.b + z }",
		"copied to memory":   "func f(d []float32, x, y, z float32) { d[0] = x; d[1] = y + z }",
		"compared":           "func f(x, y, z float64) bool { return x*y < z }",
		"converted result":   "func mul(x, y float32) float32 { return float32(x * y) }\nfunc f(x, y, z float32) float32 { return mul(x, y) + z }",
	} {
		require.Empty(t, fusing(t, body), name)
	}
}

func TestFusedSamples(t *testing.T) {
	const listing = "f STEXT size=1\n\t0x0004 00004 (/m/quant/a.go:2)\tFMADDS\tF0, F1, F2, F3\n" +
		"\t0x0008 00008 (/m/quant/a.go:2)\tFMADDS\tF0, F1, F2, F3\n\t0x000c 00012 (/m/quant/a.go:3)\tFMADDD\tF0, F1, F2, F3\n" +
		"\t0x0010 00016 (/m/quant/a.go:1)\tVFNMSUB231SS\tX0, X1, X2\n\t0x0010 00016 (/m/quant/a.go:1)\tVMULSS\tX0, X1, X2\n"
	read := func(string) ([]byte, error) { return []byte("a\nb = x*y + z\nc = math.FMA(x, y, z)\n"), nil }
	found, err := fusedIn(listing, "/m", read)
	require.NoError(t, err)
	check(t, found, "2: the compiler makes a FMADDS here: write float32(...) or float64(...) around the product",
		"1: the compiler makes a VFNMSUB231SS here: write float32(...) or float64(...) around the product")
	require.Equal(t, "quant/a.go", found[0].File)
	_, err = Fused(Root(), nil, Module+"/nothing")
	require.ErrorContains(t, err, "go build")
}

// TestTree reads a folder without git and skips what is hidden.
func TestTree(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a.go", "b/c.go", ".d/e.go"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte("package a\n"), 0o644))
	}
	files, err := Tree(root)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
	}
	require.ElementsMatch(t, []string{"a.go", "b/c.go"}, names)
}
