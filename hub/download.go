package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"quickdraft/internal/disk"
)

// maxUnknown bounds a file whose length nobody told in advance.
const maxUnknown = 1 << 41

// partState is the note beside an unfinished file: what it is and how to continue it.
type partState struct {
	Name      string `json:"name"`
	Source    string `json:"source"`
	Validator string `json:"validator,omitempty"` // strong ETag or Last-Modified of the answer
	Total     int64  `json:"total,omitempty"`     // bytes of the whole
	Parts     int    `json:"parts,omitempty"`     // packages that are in the file completely
	Done      int64  `json:"done,omitempty"`      // bytes of these packages
}

// download fetches one URL into a file of the cache, continuing what is there.
type download struct {
	h        *Hub
	c        *cache
	name     string // of the model, for messages
	rel      string
	source   string // whose bytes may be continued
	req      request
	size     int64 // bytes; 0 is unknown
	most     int64 // bytes that are accepted; 0 is maxUnknown
	hashed   bool  // the caller checks a hash afterwards, so a file may be continued without a validator
	progress func(done, total int64)
}

// errAgain marks a failure after which the same source is worth another try.
type errAgain struct{ error }

func (e errAgain) Unwrap() error { return e.error }

// run fetches until the file is complete. resumed says that bytes of an earlier pull are in it.
func (d *download) run(ctx context.Context) (resumed bool, err error) {
	idle := 0
	for try := 0; ; try++ {
		had, gained, err := d.once(ctx)
		resumed = try == 0 && had > 0 || resumed && had > 0
		var again errAgain
		if err == nil || ctx.Err() != nil || !errors.As(err, &again) {
			return resumed, err
		}
		if idle++; gained > 0 {
			idle = 0
		}
		if idle >= 2 || try >= 50 {
			return resumed, err
		}
		d.h.note(fmt.Sprintf("%s: %v; continuing", d.name, err))
	}
}

// once makes one request. had is the length with which it started, gained what it added.
func (d *download) once(ctx context.Context) (had, gained int64, err error) {
	st := partState{}
	have := d.present(&st)
	if have > 0 && have == st.Total {
		return have, 0, nil
	}
	r := d.req
	r.header = http.Header{}
	for k, v := range d.req.header {
		r.header[k] = v
	}
	if have > 0 {
		r.header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		if st.Validator != "" {
			r.header.Set("If-Range", st.Validator)
		}
	}
	resp, err := d.h.get(ctx, r)
	if err != nil {
		return have, 0, err
	}
	defer resp.Body.Close()
	had, total, err := d.accept(resp, have, &st)
	if err != nil {
		return had, 0, err
	}
	gained, err = d.write(resp.Body, had, total)
	return had, gained, err
}

// present returns how much of the file can be continued, with its note.
func (d *download) present(st *partState) int64 {
	info, err := d.c.Lstat(d.rel)
	if err != nil || !info.Mode().IsRegular() || !d.c.readJSON(d.rel+".json", st) || st.Source != d.source {
		*st = partState{}
		return 0
	}
	if have := info.Size(); st.Validator == "" && !d.hashed || st.Total > 0 && have > st.Total {
		if have > 0 {
			d.h.note(fmt.Sprintf("%s: %d bytes of an earlier pull cannot be continued safely; starting again", d.name, have))
		}
		return 0
	}
	return info.Size()
}

// accept reads the header of an answer: the offset from which to write, the length of the whole (-1: unknown), or an error.
func (d *download) accept(resp *http.Response, have int64, st *partState) (offset, total int64, err error) {
	host := resp.Request.URL.Host
	validator := validatorOf(resp)
	switch resp.StatusCode {
	case http.StatusOK:
		if have > 0 {
			d.h.note(fmt.Sprintf("%s: %s sends the whole file again (it changed, or cannot be continued); starting again", d.name, host))
		}
		offset, total = 0, resp.ContentLength
	case http.StatusPartialContent:
		from, whole, ok := parseContentRange(resp.Header.Get("Content-Range"))
		changed := st.Validator != "" && validator != "" && validator != st.Validator || st.Total > 0 && whole > 0 && whole != st.Total
		if !ok || from != have || changed {
			d.discard()
			return 0, 0, errAgain{fmt.Errorf("%s continues another file than the one begun (Content-Range %q)", host, resp.Header.Get("Content-Range"))}
		}
		offset, total = have, whole
	case http.StatusRequestedRangeNotSatisfiable:
		d.discard()
		return 0, 0, errAgain{fmt.Errorf("%s has no byte %d", host, have)}
	case http.StatusUnauthorized, http.StatusForbidden:
		return 0, 0, &statusError{host, resp.StatusCode, "(a file that needs an account? HF_TOKEN is sent to Hugging Face, user:password@ in a URL to its host)"}
	default:
		return 0, 0, &statusError{host, resp.StatusCode, ""}
	}
	if d.size > 0 && total >= 0 && total != d.size {
		return 0, 0, fmt.Errorf("%s offers %d bytes, but the file has %d", host, total, d.size)
	}
	if d.size > 0 {
		total = d.size
	}
	if total > d.limit() {
		return 0, 0, fmt.Errorf("%s offers %d bytes: more than the %d that are expected at most", host, total, d.limit())
	}
	if err := d.h.checkSpace(total - offset); err != nil {
		return 0, 0, err
	}
	note := partState{Name: d.name, Source: d.source, Validator: validator, Total: max(total, 0)}
	return offset, total, d.c.writeJSON(d.rel+".json", note)
}

func (d *download) limit() int64 {
	if d.most > 0 {
		return d.most
	}
	return maxUnknown
}

// validatorOf returns what If-Range may hold to recognise the file: a strong ETag, or the date of the last change.
func validatorOf(resp *http.Response) string {
	if tag := resp.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return resp.Header.Get("Last-Modified")
}

// parseContentRange reads "bytes 5-9/10"; whole is 0 for "*".
func parseContentRange(s string) (from, whole int64, ok bool) {
	rest, found := strings.CutPrefix(s, "bytes ")
	span, size, found2 := strings.Cut(rest, "/")
	first, _, found3 := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !found || !found2 || !found3 || err != nil || from < 0 {
		return 0, 0, false
	}
	if size == "*" {
		return from, 0, true
	}
	whole, err = strconv.ParseInt(size, 10, 64)
	return from, whole, err == nil && whole > from
}

// discard forgets the file and its note.
func (d *download) discard() {
	d.c.Remove(d.rel)
	d.c.Remove(d.rel + ".json")
}

// write copies a body to the file from offset on. total -1 is unknown: the end of the body is the end of the file.
func (d *download) write(body io.Reader, offset, total int64) (gained int64, err error) {
	f, err := d.c.openAt(d.rel, offset)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	limit := total
	if total <= 0 {
		limit = d.limit()
	}
	gained, err = copyBytes(f, body, limit-offset, func(n int64) { d.progress(offset+n, total) })
	if err != nil {
		return gained, err
	}
	if total > 0 && offset+gained != total {
		return gained, errAgain{fmt.Errorf("the connection ended after %d of %d bytes", offset+gained, total)}
	}
	return gained, f.Sync()
}

// openAt opens a regular file of the cache for writing from offset on, cutting off what follows.
func (c *cache) openAt(rel string, offset int64) (*os.File, error) {
	if info, err := c.Lstat(rel); err == nil && !info.Mode().IsRegular() {
		if err := c.Remove(rel); err != nil { // a link or a device is none of ours
			return nil, err
		}
	}
	f, err := c.OpenFile(rel, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(offset); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// copyBytes copies at most limit bytes and fails on one more. A failure to read is worth another try, one to write is not.
func copyBytes(dst io.Writer, src io.Reader, limit int64, progress func(n int64)) (n int64, err error) {
	buf := make([]byte, 256<<10)
	for {
		k, readErr := src.Read(buf)
		if n+int64(k) > limit {
			return n, fmt.Errorf("more than the expected %d bytes arrive", limit)
		}
		if k > 0 {
			if _, err := dst.Write(buf[:k]); err != nil {
				return n, err
			}
			n += int64(k)
			progress(n)
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, errAgain{readErr}
		}
	}
}

// checkSpace returns an error when the disk of the cache has less than n bytes left.
func (h *Hub) checkSpace(n int64) error {
	if free, ok := h.free(h.dir); ok && n > free {
		return &diskFull{fmt.Errorf("%d bytes are missing, but the disk of %s has %d left", n, h.dir, free)}
	}
	return nil
}

// diskFull is an error that no other source can mend.
type diskFull struct{ error }

func isDiskFull(err error) bool {
	var full *diskFull
	return errors.As(err, &full) || disk.IsFull(err)
}
