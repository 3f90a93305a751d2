package hub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const maxRedirects = 10

// credential is an Authorization header and the one origin that may see it.
type credential struct {
	origin string
	header string
}

// origin is scheme, host and port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// takeUser moves the user and password of a URL into a credential for its origin.
func takeUser(u *url.URL) (*url.URL, credential) {
	if u.User == nil {
		return u, credential{}
	}
	bare := *u
	bare.User = nil
	password, _ := u.User.Password()
	return &bare, credential{origin(u), "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))}
}

// newClient returns a client that follows no redirect by itself and keeps the bytes as they were sent. Nil roots are the system's.
func newClient(roots *x509.CertPool) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true
	if roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request is a GET whose redirects are followed by hand.
type request struct {
	client *http.Client
	url    *url.URL
	cred   credential
	header http.Header
	hop    func(*http.Response) error // sees each answer, redirects included; may be nil
}

// get sends a request. The context of the returned body ends when the transfer stalls. The URL of the answer is resp.Request.URL.
func (h *Hub) get(ctx context.Context, r request) (*http.Response, error) {
	u := r.url
	for range maxRedirects {
		resp, err := h.getOnce(ctx, r, u)
		if err != nil {
			return nil, err
		}
		if r.hop != nil {
			if err := r.hop(resp); err != nil {
				resp.Body.Close()
				return nil, err
			}
		}
		location := resp.Header.Get("Location")
		if resp.StatusCode < 300 || resp.StatusCode > 399 || resp.StatusCode == http.StatusNotModified || location == "" {
			return resp, nil
		}
		resp.Body.Close()
		next, err := u.Parse(location)
		if err != nil || next.Scheme != "https" && next.Scheme != "http" || next.Host == "" {
			return nil, fmt.Errorf("%s redirects to %q, which is not a web address", u.Host, location)
		}
		if u.Scheme == "https" && next.Scheme == "http" {
			return nil, fmt.Errorf("%s redirects from https to plain http on %s", u.Host, next.Host)
		}
		next.User = nil
		u = next
	}
	return nil, fmt.Errorf("%s redirects more than %d times", r.url.Host, maxRedirects)
}

// getOnce sends one request and waits for the header of its answer, at most h.answer.
func (h *Hub) getOnce(ctx context.Context, r request, u *url.URL) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	req.Header.Set("User-Agent", "quickdraft")
	if r.cred.header != "" && r.cred.origin == origin(u) {
		req.Header.Set("Authorization", r.cred.header)
	}
	timer := time.AfterFunc(h.answer, func() { cancel(errNoAnswer) })
	resp, err := r.client.Do(req)
	if !timer.Stop() && err == nil { // the answer and the end of patience crossed
		resp.Body.Close()
		err = errNoAnswer
	}
	if err != nil {
		silent := errors.Is(context.Cause(ctx), errNoAnswer)
		cancel(nil)
		if silent {
			return nil, fmt.Errorf("%w from %s within %v", errNoAnswer, u.Host, h.answer)
		}
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the address, which may hold a signature
		}
		return nil, fmt.Errorf("no answer from %s: %w", u.Host, err)
	}
	resp.Body = &watched{body: resp.Body, ctx: ctx, cancel: cancel, patience: h.stall}
	return resp, nil
}

// watched is a body that fails when nothing arrives for a while.
type watched struct {
	body     io.ReadCloser
	ctx      context.Context
	cancel   context.CancelCauseFunc
	patience time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	timer := time.AfterFunc(w.patience, func() { w.cancel(errStalled) })
	n, err := w.body.Read(p)
	timer.Stop()
	if err != nil && err != io.EOF && errors.Is(context.Cause(w.ctx), errStalled) {
		err = fmt.Errorf("%w: no byte for %v", errStalled, w.patience)
	}
	return n, err
}

func (w *watched) Close() error {
	w.cancel(nil)
	return w.body.Close()
}

// statusError is an answer that is not the file.
type statusError struct {
	host string
	code int
	hint string
}

func (e *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%s answers %d %s %s", e.host, e.code, http.StatusText(e.code), e.hint))
}
