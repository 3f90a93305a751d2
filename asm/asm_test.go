package asm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allowed lists the extensions that each level's kernels may require (avo counts PREFETCHT0 as MMX+; every
// amd64 processor has CMOV).
var allowed = map[string][]string{
	"avx2":    {"AVX", "AVX2", "CMOV", "F16C", "FMA3", "MMX+"},
	"avxvnni": {"AVX", "AVX2", "AVXVNNI", "F16C", "FMA3", "MMX+"},
	"avx512":  {"AVX", "AVX2", "AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL", "CMOV", "MMX+"},
	"vnni":    {"AVX", "AVX2", "AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL", "AVX512VNNI", "MMX+"},
	"amx":     {"AMXINT8", "AMXTILE", "AVX", "AVX2", "AVX512BW", "AVX512DQ", "AVX512F", "AVX512VL", "CMOV", "MMX+"},
}

func TestKernelsRequireNoMoreThanTheirLevel(t *testing.T) {
	for level, extensions := range allowed {
		paths, err := filepath.Glob(filepath.Join(level, "*.s"))
		require.NoError(t, err)
		require.NotEmpty(t, paths, level)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, bytes.Count(text, []byte("\nTEXT ")), bytes.Count(text, []byte("\n// Requires: ")), path)
			for line := range strings.Lines(string(text)) {
				if list, ok := strings.CutPrefix(strings.TrimSpace(line), "// Requires: "); ok {
					for _, e := range strings.Split(list, ", ") {
						require.Contains(t, extensions, e, path)
					}
				}
			}
		}
	}
}

// tool returns the path of a program of binutils, or skips.
func tool(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil || runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		t.Skipf("%s for amd64 code is not installed", name)
	}
	return path
}

// disassemble links a program that holds all kernels of a level and disassembles it.
func disassemble(t *testing.T, level string) string {
	main := filepath.Join(t.TempDir(), "main.go")
	binary := filepath.Join(t.TempDir(), "kernels")
	keep := []string{"k.Dots"}
	files, err := filepath.Glob(filepath.Join(level, "*_amd64.go"))
	require.NoError(t, err)
	for _, file := range files {
		stubs, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func ([A-Z]\w*)`).FindAllSubmatch(stubs, -1) {
			keep = append(keep, "k."+string(m[1]))
		}
	}
	require.NoError(t, os.WriteFile(main, []byte("package main\n\nimport k \"quickdraft/asm/"+level+
		"\"\n\nvar keep = []any{"+strings.Join(keep, ", ")+"}\n\nfunc main() { println(len(keep)) }\n"), 0o600))
	out, err := exec.Command("go", "build", "-o", binary, main).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return objdump(t, binary)
}

// objdump disassembles a file, an instruction with all its bytes on a line.
func objdump(t *testing.T, binary string) string {
	out, err := exec.Command(tool(t, "objdump"), "-d", "--insn-width=16", binary).Output()
	require.NoError(t, err)
	return string(out)
}

// kernelCode returns the instruction lines of the functions of a level in a disassembly.
func kernelCode(level, text string) []string {
	var code []string
	inside := false
	header := regexp.MustCompile(`^[0-9a-f]+ <(.+)>:$`)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := header.FindStringSubmatch(line); m != nil {
			inside = strings.HasPrefix(m[1], "quickdraft/asm/"+level+".")
		} else if inside && line != "" {
			code = append(code, line)
		}
	}
	return code
}

// instruction is a line of objdump: address, bytes, mnemonic and operands.
var instruction = regexp.MustCompile(`^[0-9a-f]+:\t((?:[0-9a-f]{2} )+) *\t(.+)$`)

// isAVX512 reports whether an instruction is one of AVX-512, by its encoding: in 64-bit mode a first byte of 62 is always the EVEX
// prefix, before which only bytes for segment and address size may come. Instructions on mask registers are encoded with VEX
// and known by the registers.
func isAVX512(bytes, text string) bool {
	for _, b := range strings.Fields(bytes) {
		if !slices.Contains([]string{"26", "2e", "36", "3e", "64", "65", "67"}, b) {
			return b == "62" || regexp.MustCompile(`%k[0-7]\b`).MatchString(text)
		}
	}
	return false
}

func TestVEXLevelsHoldNoAVX512Instruction(t *testing.T) {
	tool(t, "objdump")
	for _, level := range []string{"avx2", "avxvnni"} {
		code := kernelCode(level, disassemble(t, level))
		require.Greater(t, len(code), 1000, level)
		products := 0
		for _, line := range code {
			m := instruction.FindStringSubmatch(line)
			require.NotNil(t, m, "%s: %q", level, line)
			require.False(t, isAVX512(m[1], m[2]), "%s: %s", level, line)
			require.NotContains(t, m[2], "(bad)", level)
			if strings.Contains(m[2], "vpdpbusd") {
				require.Contains(t, m[2], "{vex}", level)
				products++
			}
		}
		if level == "avx2" {
			require.Zero(t, products, "VPDPBUSD on %s", level)
		} else {
			require.Greater(t, products, 100, "VPDPBUSD on %s", level)
		}
	}
}

// TestAVX512IsRecognised assembles instructions of both kinds: many of AVX-512 have a mnemonic and registers like those of AVX2.
func TestAVX512IsRecognised(t *testing.T) {
	for avx512, lines := range map[bool][]string{
		true: {
			"vpabsq %ymm1, %ymm2", "{evex} vpaddd %ymm1, %ymm2, %ymm3", "vpmullq %ymm1, %ymm2, %ymm3", "vpternlogd $1, %ymm1, %ymm2, %ymm3",
			"vmovups 64(%eax), %ymm17", "vaddps (%rax){1to8}, %ymm1, %ymm2", "vmovdqu64 %fs:(%eax), %ymm1", "kmovw %k1, %eax", "kandw %k1, %k2, %k3", "vaddps %zmm1, %zmm2, %zmm3",
			"{evex} vpdpbusd %ymm1, %ymm2, %ymm3",
		},
		false: {
			"vpaddd %ymm1, %ymm2, %ymm3", "vmovups 64(%eax), %ymm15", "vmovdqu %fs:(%eax), %ymm1", "vfmadd231ps (%rax), %ymm1, %ymm2", "{vex} vpdpbusd %ymm1, %ymm2, %ymm3",
			"vpgatherdd %ymm1, (%rax,%ymm2,4), %ymm3", "rep movsb", "popcnt %rax, %rbx", "movb $0x62, %al", "prefetcht0 0x62(%rax)", "jmp .",
		},
	} {
		object := filepath.Join(t.TempDir(), "a.o")
		cmd := exec.Command(tool(t, "as"), "-o", object, "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("this assembler does not know all of them: %s", out)
		}
		n := 0
		for line := range strings.Lines(objdump(t, object)) {
			if m := instruction.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				require.Equal(t, avx512, isAVX512(m[1], m[2]), line)
				n++
			}
		}
		require.Len(t, lines, n)
	}
}

// TestVEXBytes compares the bytes in the generated files with what GNU as makes of the mnemonic beside them.
func TestVEXBytes(t *testing.T) {
	as, objdump := tool(t, "as"), tool(t, "objdump")
	line := regexp.MustCompile(`(?m)^\tLONG \$0x([0-9a-f]{8}); BYTE \$0x([0-9a-f]{2}) // VPDPBUSD Y(\d+), Y(\d+), Y(\d+) \(VEX\)$`)
	paths, err := filepath.Glob(filepath.Join("avxvnni", "*.s"))
	require.NoError(t, err)
	var want, source []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			asm := "{vex} vpdpbusd %ymm" + m[3] + ", %ymm" + m[4] + ", %ymm" + m[5]
			if slices.Contains(source, asm) {
				continue
			}
			source = append(source, asm)
			l := m[1]
			want = append(want, strings.Join([]string{l[6:8], l[4:6], l[2:4], l[0:2], m[2]}, " "))
		}
	}
	require.NotEmpty(t, source)
	object := filepath.Join(t.TempDir(), "a.o")
	cmd := exec.Command(as, "-o", object, "-")
	cmd.Stdin = strings.NewReader(strings.Join(source, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("this assembler does not know {vex} vpdpbusd: %s", out)
	}
	out, err := exec.Command(objdump, "-d", object).Output()
	require.NoError(t, err)
	var got []string
	for _, m := range regexp.MustCompile(`\t((?:[0-9a-f]{2} )+) *\t\{vex\} vpdpbusd`).FindAllStringSubmatch(string(out), -1) {
		got = append(got, strings.TrimSpace(m[1]))
	}
	require.Equal(t, want, got)
}

// matrixLine is an instruction on matrix registers in a generated file: its bytes, and the mnemonic beside them.
var matrixLine = regexp.MustCompile(`(?m)^\t((?:(?:LONG|BYTE) \$0x[0-9a-f]+(?:; )?)+) // ((?:TILE|TDP|LDTILE)[A-Z]+)(?: (.*))?$`)

// matrixAsm is a line of mnemonic and operands in the syntax of GNU as.
func matrixAsm(mnemonic, operands string) string {
	r := regexp.MustCompile(`\b(TMM\d|R\d+|[ABCD]X|[SD]I|BP)\b`).ReplaceAllStringFunc(operands, func(name string) string {
		if len(name) == 2 && name[0] != 'R' {
			name = "r" + name
		}
		return "%" + strings.ToLower(name)
	})
	r = regexp.MustCompile(`\((%\w+)\)\((%\w+)\*1\)`).ReplaceAllString(r, "($1,$2,1)")
	return strings.TrimSpace(strings.ToLower(mnemonic) + " " + r)
}

// matrixBytes returns the bytes of a list of LONG and BYTE as objdump prints them.
func matrixBytes(list string) string {
	var out []string
	for _, m := range regexp.MustCompile(`\$0x([0-9a-f]+)`).FindAllStringSubmatch(list, -1) {
		for at := len(m[1]); at > 0; at -= 2 {
			out = append(out, m[1][at-2:at])
		}
	}
	return strings.Join(out, " ")
}

// TestMatrixBytes compares the bytes in the generated files with what GNU as makes of the mnemonic beside them.
func TestMatrixBytes(t *testing.T) {
	as, objdump := tool(t, "as"), tool(t, "objdump")
	paths, err := filepath.Glob(filepath.Join("amx", "*.s"))
	require.NoError(t, err)
	var want, source []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := matrixLine.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, lines, path)
		require.Equal(t, strings.Count(string(text), "\tLONG "), len(lines), path)
		for _, m := range lines {
			if asm := matrixAsm(m[2], m[3]); !slices.Contains(source, asm) {
				source, want = append(source, asm), append(want, matrixBytes(m[1]))
			}
		}
	}
	object := filepath.Join(t.TempDir(), "a.o")
	cmd := exec.Command(as, "-o", object, "-")
	cmd.Stdin = strings.NewReader(strings.Join(source, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("this assembler does not know AMX: %s", out)
	}
	out, err := exec.Command(objdump, "-d", object).Output()
	require.NoError(t, err)
	var got []string
	for _, m := range regexp.MustCompile(`\t((?:[0-9a-f]{2} )+) *\t(?:tile|tdp|ldtile)`).FindAllStringSubmatch(string(out), -1) {
		got = append(got, strings.TrimSpace(m[1]))
	}
	require.Equal(t, want, got)
	for _, mnemonic := range []string{"ldtilecfg", "tileloadd", "tilestored", "tilezero", "tdpbssd", "tilerelease"} {
		require.Contains(t, strings.Join(source, "\n"), mnemonic)
	}
}

// TestMatrixStateEndsWithTheKernel: every function that configures matrix registers releases them, in this order, so that
// the operating system has none to save between kernels.
func TestMatrixStateEndsWithTheKernel(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("amx", "*.s"))
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		functions := strings.Split(string(text), "\nTEXT ")[1:]
		require.NotEmpty(t, functions, path)
		for _, f := range functions {
			configured, released, done := strings.Index(f, "LDTILECFG"), strings.Index(f, "TILERELEASE"), strings.Index(f, "\ndone:")
			require.True(t, 0 < configured && configured < released && released < done, path)
			require.Equal(t, 1, strings.Count(f, "\tRET"), path)
			require.NotRegexp(t, `\tJ[A-Z]+ +(done|nothing|some)\b`, f[configured:], path)
			require.NotContains(t, f, "\tCALL", path)
		}
	}
}

// TestGeneratedFilesAreCurrent runs the generator again into a copy and compares.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the generator, 10 seconds")
	}
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "_gen"), os.DirFS("_gen")))
	if out, err := exec.Command("go", "mod", "download", "-C", filepath.Join(root, "_gen")).CombinedOutput(); err != nil {
		t.Skipf("the generator's modules cannot be fetched here: %s", out)
	}
	out, err := exec.Command("go", "run", "-C", filepath.Join(root, "_gen"), ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for level := range allowed {
		paths, err := filepath.Glob(filepath.Join(root, level, "*"))
		require.NoError(t, err)
		old, err := filepath.Glob(filepath.Join(level, "*_amd64.*"))
		require.NoError(t, err)
		require.Len(t, old, len(paths), level)
		for _, path := range paths {
			fresh, err := os.ReadFile(path)
			require.NoError(t, err)
			have, err := os.ReadFile(filepath.Join(level, filepath.Base(path)))
			require.NoError(t, err)
			require.True(t, bytes.Equal(fresh, have), "asm/%s/%s differs from what asm/_gen writes: run go generate ./asm", level, filepath.Base(path))
		}
	}
}
