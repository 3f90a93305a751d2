package lint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// report fails with all findings, so that one run shows them all.
func report(t *testing.T, found []Finding) {
	t.Helper()
	for _, f := range found {
		t.Errorf("%v", f)
	}
}

func tree(t *testing.T) []File {
	t.Helper()
	files, err := Tree(Root())
	require.NoError(t, err)
	require.Greater(t, len(files), 50)
	return files
}

func TestImportOrder(t *testing.T)    { report(t, Imports(tree(t))) }
func TestNoCgo(t *testing.T)          { report(t, Cgo(tree(t))) }
func TestSizes(t *testing.T)          { report(t, Sizes(tree(t))) }
func TestGeneratedFiles(t *testing.T) { report(t, Generated(tree(t))) }
func TestPortable(t *testing.T)       { report(t, Portable(tree(t))) }
func TestNothingForeign(t *testing.T) { report(t, Foreign(tree(t))) }
func TestNoThreads(t *testing.T)      { report(t, Threads(tree(t))) }
func TestVaryingMath(t *testing.T)    { report(t, Varying(tree(t))) }
func TestWholeFiles(t *testing.T)     { report(t, Whole(tree(t))) }
func TestFormatted(t *testing.T)      { report(t, Formatted(tree(t))) }

// TestFusing looks at the files that each architecture builds.
func TestFusing(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		t.Run(goarch, func(t *testing.T) {
			if goarch != "amd64" && testing.Short() {
				t.Skip("compiling for another architecture takes long")
			}
			pkgs, err := Load(Root(), goarch, Pass...)
			require.NoError(t, err)
			require.Len(t, pkgs, len(Pass))
			report(t, Fusing(pkgs, Root()))
		})
	}
}

// TestCompiled looks for fused instructions in what the compiler makes for processors that have them.
func TestCompiled(t *testing.T) {
	if testing.Short() {
		t.Skip("compiling for other processors takes long")
	}
	paths := append([]string{Module + "/asm/..."}, Pass...)
	for _, env := range [][]string{{"GOARCH=amd64", "GOAMD64=v3"}, {"GOARCH=arm64"}} {
		found, err := Fused(Root(), env, paths...)
		require.NoError(t, err)
		report(t, found)
	}
}
