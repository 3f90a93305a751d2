package lint

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// fusedInstruction is a line of the compiler's assembly listing, "\t0x0040 00064 (/path/file.go:12)\tFMADDS\tF0, ...".
	fusedInstruction = regexp.MustCompile(`\(([^()]+\.go):(\d+)\)\t(VFN?M(?:ADD|SUB)\w*|FN?M(?:ADD|SUB)\w*)\t`)
	explicitFMA      = regexp.MustCompile(`\bmath\.FMA\(`)
)

// Fused finds the instructions with one rounding for a product and a sum that the compiler made of packages, on lines
// that do not call math.FMA. env chooses a processor, as "GOARCH=arm64". It sees what Fusing cannot, as sums of elements
// just stored, and only what the compiler of today does.
func Fused(root string, env []string, paths ...string) ([]Finding, error) {
	cmd := exec.Command("go", append([]string{"build", "-gcflags=-S"}, paths...)...)
	cmd.Dir = root
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=auto"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go build: %v: %s", err, out[:min(len(out), 2000)])
	}
	if !strings.Contains(string(out), " STEXT ") {
		return nil, fmt.Errorf("go build -gcflags=-S lists no functions in %d bytes", len(out))
	}
	return fusedIn(string(out), root, os.ReadFile)
}

// fusedIn reads a listing; read returns the sources that it names.
func fusedIn(listing, root string, read func(string) ([]byte, error)) ([]Finding, error) {
	lines := make(map[string][]string)
	seen := make(map[Finding]bool)
	var found []Finding
	for _, m := range fusedInstruction.FindAllStringSubmatch(listing, -1) {
		if lines[m[1]] == nil {
			text, err := read(m[1])
			if err != nil {
				return nil, err
			}
			lines[m[1]] = strings.Split(string(text), "\n")
		}
		f := Finding{File: m[1], Msg: fmt.Sprintf("the compiler makes a %s here: write float32(...) or float64(...) around the product", m[3])}
		if rel, err := filepath.Rel(root, m[1]); err == nil {
			f.File = filepath.ToSlash(rel)
		}
		if _, err := fmt.Sscan(m[2], &f.Line); err != nil || f.Line > len(lines[m[1]]) {
			return nil, fmt.Errorf("the listing names line %s of %s", m[2], m[1])
		}
		if !seen[f] && !explicitFMA.MatchString(lines[m[1]][f.Line-1]) {
			found = append(found, f)
		}
		seen[f] = true
	}
	return found, nil
}
