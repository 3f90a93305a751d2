package hub

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeModel returns n bytes that begin like a model and do not compress.
func fakeModel(n int) []byte {
	r := rand.NewChaCha8([32]byte{7})
	data := make([]byte, n)
	r.Read(data)
	copy(data, "GGUF")
	return data
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// soon is what tests of silence wait for. Nothing that does answer may have to do so within it: a busy machine takes its time.
const soon = 250 * time.Millisecond

// tester is a hub over a temporary cache with a one-model catalog named "toy:1b".
type tester struct {
	*Hub
	t     *testing.T
	data  []byte
	mu    sync.Mutex
	notes []string
}

func newTester(t *testing.T, sources ...string) *tester {
	x := &tester{t: t, data: fakeModel(300_000)}
	x.Hub = &Hub{
		dir: filepath.Join(t.TempDir(), "cache"), client: newClient(nil), answer: time.Minute, stall: time.Minute,
		free:       func(string) (int64, bool) { return 1 << 40, true },
		catalog:    []Model{{Name: "toy:1b", Size: int64(len(x.data)), SHA256: hashOf(x.data), Sources: sources}},
		hfEndpoint: "http://127.0.0.1:1",
		report:     func(Progress) {},
		note: func(line string) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.notes = append(x.notes, line)
		},
	}
	t.Setenv("PATH", t.TempDir()) // no pip but a test's own
	return x
}

func (x *tester) pull(name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return x.Pull(ctx, name)
}

// has reports whether the cache holds a model.
func (x *tester) has(name string) bool {
	t, err := x.parseName(name)
	require.NoError(x.t, err)
	_, ok := x.cached(t)
	return ok
}

// wantPulled pulls and compares the file with the model's bytes.
func (x *tester) wantPulled(name string) {
	x.t.Helper()
	p, err := x.pull(name)
	require.NoError(x.t, err, x.notes)
	got, err := os.ReadFile(p)
	require.NoError(x.t, err)
	require.True(x.t, bytes.Equal(x.data, got), "the file differs from the model")
	x.wantClean()
}

// wantClean checks that only models and their notes are left in the cache, and nothing beside it.
func (x *tester) wantClean() {
	x.t.Helper()
	for _, f := range x.files() {
		require.True(x.t, strings.HasSuffix(f, ".gguf") || strings.HasSuffix(f, ".gguf.json"), "left over: %s", f)
	}
}

// files lists the cache's parent folder: all that a test's hub may write to.
func (x *tester) files() []string {
	var list []string
	filepath.WalkDir(filepath.Dir(x.dir), func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(p, filepath.Dir(x.dir)+"/"))
		}
		return nil
	})
	return list
}

func (x *tester) allNotes() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return strings.Join(x.notes, "\n")
}

// leavePart puts the beginning of an earlier pull into the cache.
func (x *tester) leavePart(rel string, data []byte, st partState) {
	x.t.Helper()
	p := filepath.Join(x.dir, filepath.FromSlash(rel))
	require.NoError(x.t, os.MkdirAll(filepath.Dir(p), 0o755))
	require.NoError(x.t, os.WriteFile(p, data, 0o644))
	note, err := json.Marshal(st)
	require.NoError(x.t, err)
	require.NoError(x.t, os.WriteFile(p+".json", note, 0o644))
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// serveFile answers ranges as a file server does, with a strong ETag.
func serveFile(data []byte, tag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

type zipEntry struct {
	name string
	data []byte
	mode os.FileMode
}

func makeZip(t *testing.T, entries ...zipEntry) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		hd := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		hd.SetMode(e.mode | 0o644)
		f, err := w.CreateHeader(hd)
		require.NoError(t, err)
		_, err = f.Write(e.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func makeTar(t *testing.T, headers []tar.Header, bodies ...[]byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := range headers {
		headers[i].Size, headers[i].Mode = int64(len(bodies[i])), 0o644
		require.NoError(t, w.WriteHeader(&headers[i]))
		_, err := w.Write(bodies[i])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

// index is a Python package index in memory.
type index struct {
	*httptest.Server
	files map[string][]byte // by file name
	html  bool
	seen  func(r *http.Request)
	wrong map[string]string // hashes to claim, by file name
}

func newIndex(t *testing.T, x *tester) *index {
	in := &index{files: map[string][]byte{}, wrong: map[string]string{}}
	in.Server = serve(t, in.answer)
	u, err := url.Parse(in.URL + "/simple")
	require.NoError(t, err)
	x.Hub.pip = pipSettings{indexes: []*url.URL{u}}
	return in
}

func (in *index) answer(w http.ResponseWriter, r *http.Request) {
	if in.seen != nil {
		in.seen(r)
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/files/"); ok {
		serveFile(in.files[name], `"`+name+`"`)(w, r)
		return
	}
	project := strings.Trim(strings.TrimPrefix(r.URL.Path, "/simple"), "/")
	var files []packageFile
	for name, data := range in.files {
		if _, _, ok := fileVersion(name, project); ok {
			hash := hashOf(data)
			if h := in.wrong[name]; h != "" {
				hash = h
			}
			files = append(files, packageFile{Filename: name, URL: "../../files/" + name, Hashes: map[string]string{"sha256": hash}})
		}
	}
	if len(files) == 0 {
		http.NotFound(w, r)
		return
	}
	if in.html {
		w.Header().Set("Content-Type", "text/html")
		for _, f := range files {
			fmt.Fprintf(w, "<a href=\"%s#sha256=%s\">%s</a><br/>\n", f.URL, f.Hashes["sha256"], f.Filename)
		}
		return
	}
	w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
	json.NewEncoder(w).Encode(map[string]any{"files": files})
}
