package hub

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCredentialsStayWithTheirHost follows redirects to another port, which is another origin, and looks for what arrives there.
func TestCredentialsStayWithTheirHost(t *testing.T) {
	x := newTester(t)
	var elsewhere, first []http.Header
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Clone())
		serveFile(x.data, `"v"`)(w, r)
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		first = append(first, r.Header.Clone())
		if strings.HasPrefix(r.URL.Path, "/o/r/resolve") { // a step on the same host keeps them
			http.Redirect(w, r, "/step", http.StatusTemporaryRedirect)
			return
		}
		http.Redirect(w, r, strings.Replace(other.URL, "http://", "http://me:pass@", 1)+"/blob?signature=s3cret", http.StatusFound)
	})
	x.hfEndpoint, x.hfToken = s.URL, "hf_token"
	x.wantPulled("hf:o/r/m.gguf")
	require.Len(t, first, 2)
	for _, h := range first {
		require.Equal(t, "Bearer hf_token", h.Get("Authorization"))
	}
	x.wantPulled(strings.Replace(s.URL, "http://", "http://user:word@", 1) + "/m.gguf")
	require.Equal(t, "Basic dXNlcjp3b3Jk", first[2].Get("Authorization"))
	require.Len(t, elsewhere, 2)
	for _, h := range elsewhere {
		require.Empty(t, h.Get("Authorization"))
		require.Empty(t, h.Get("Cookie"))
		require.Empty(t, h.Get("Referer"))
	}
	list, err := x.List()
	require.NoError(t, err)
	for _, e := range list {
		require.NotContains(t, e.Source+e.Name, "word", "a password is not written down")
	}
}

// TestIndexCredentials has the files of an index on another host than the index.
func TestIndexCredentials(t *testing.T) {
	x := newTester(t, "pypi:toy==1.0")
	wheel := makeZip(t, zipEntry{"toy/m.gguf", x.data, 0})
	var files []http.Header
	store := serve(t, func(w http.ResponseWriter, r *http.Request) {
		files = append(files, r.Header.Clone())
		serveFile(wheel, `"v"`)(w, r)
	})
	page := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "Basic dXNlcjp3b3Jk", r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		w.Write([]byte(`{"files":[{"filename":"toy-1.0-py3-none-any.whl","url":"` + store.URL + `/toy.whl","hashes":{"sha256":"` + hashOf(wheel) + `"}}]}`))
	})
	u, err := url.Parse(strings.Replace(page.URL, "http://", "http://user:word@", 1) + "/simple/")
	require.NoError(t, err)
	x.Hub.pip = pipSettings{indexes: []*url.URL{u}}
	x.wantPulled("toy:1b")
	require.Len(t, files, 1)
	require.Empty(t, files[0].Get("Authorization"))
	require.NotContains(t, x.allNotes(), "word")
}

func TestRedirects(t *testing.T) {
	for location, want := range map[string]string{
		"file:///etc/passwd": "not a web address",
		"https:":             "not a web address",
		"/loop":              "redirects more than 10 times",
	} {
		x := newTester(t)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusFound)
		})
		_, err := x.pull(s.URL + "/m.gguf")
		require.ErrorContains(t, err, want, location)
	}
	x := newTester(t)
	secure := serve(t, nil)
	secure.Close()
	require.Equal(t, "https://h:443", origin(&url.URL{Scheme: "https", Host: "H"}))
	require.NotEqual(t, origin(&url.URL{Scheme: "https", Host: "h"}), origin(&url.URL{Scheme: "http", Host: "h"}))
	require.NotEqual(t, origin(&url.URL{Scheme: "https", Host: "h"}), origin(&url.URL{Scheme: "https", Host: "sub.h"}))
	x.hfToken, x.hfEndpoint = "hf_token", "http://192.0.2.1:9"
	_, err := x.pull("hf:o/r/m.gguf")
	require.Error(t, err)
}

// TestNoTokenOverPlainHTTP: the token goes to https or to this machine only.
func TestNoTokenOverPlainHTTP(t *testing.T) {
	for raw, want := range map[string]bool{"http://localhost:1": true, "http://127.0.0.1": true, "http://[::1]:80": true, "http://example.com": false} {
		u, err := url.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, want, isLoopback(u), raw)
	}
}

// TestLinkedFile reads what Hugging Face says about a file before the redirect to its store.
func TestLinkedFile(t *testing.T) {
	x := newTester(t)
	store := serve(t, serveFile(x.data, `"v"`))
	hash, size := hashOf(x.data), "300000"
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Linked-Etag", `"`+hash+`"`)
		w.Header().Set("X-Linked-Size", size)
		http.Redirect(w, r, store.URL, http.StatusFound)
	})
	x.hfEndpoint = s.URL
	x.catalog[0].Sources = []string{"hf:o/r/m.gguf"}
	x.wantPulled("toy:1b")
	x.wantPulled("hf:o/r/m.gguf")
	hash = strings.Repeat("1", 64)
	require.NoError(t, x.Remove("toy:1b"))
	_, err := x.pull("toy:1b")
	require.ErrorContains(t, err, "has another file under this name: sha256 1111")
	_, err = x.pull("hf:o/r/other.gguf")
	require.ErrorContains(t, err, "want 1111")
	hash, size = hashOf(x.data), "17"
	_, err = x.pull("toy:1b")
	require.ErrorContains(t, err, "17 bytes, want 300000")
}

func TestStatusErrors(t *testing.T) {
	for code, want := range map[int]string{401: "HF_TOKEN", 403: "HF_TOKEN", 404: "404 Not Found", 503: "503 Service Unavailable"} {
		x := newTester(t)
		s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) })
		_, err := x.pull(s.URL + "/m.gguf")
		require.ErrorContains(t, err, want)
	}
}
