package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

const maxPage = 64 << 20 // bytes of a project page

// packageFile is one file of a project on an index.
type packageFile struct {
	Filename string            `json:"filename"`
	URL      string            `json:"url"`
	Hashes   map[string]string `json:"hashes"`
	Size     int64             `json:"size"`
	Yanked   any               `json:"yanked"` // false, or true or a reason
}

// normalized is the form of a package name that indexes use in addresses.
func normalized(name string) string {
	return strings.ToLower(regexp.MustCompile(`[-_.]+`).ReplaceAllString(name, "-"))
}

var errNoPackage = errors.New("the index has no such package")

// projectFiles asks an index for the files of a package; addresses in the answer are made absolute.
func (h *Hub) projectFiles(ctx context.Context, client *http.Client, index *url.URL, cred credential, name string) ([]packageFile, error) {
	resp, err := h.get(ctx, request{client: client, url: index.JoinPath(normalized(name), "/"), cred: cred,
		header: http.Header{"Accept": {"application/vnd.pypi.simple.v1+json, text/html;q=0.1"}}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("%s: %w %s", index.Host, errNoPackage, name)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{index.Host, resp.StatusCode, "(package " + name + ")"}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxPage {
		return nil, fmt.Errorf("%s: the page of package %s is longer than %d bytes", index.Host, name, maxPage)
	}
	var files []packageFile
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); strings.HasSuffix(kind, "json") {
		page := struct {
			Files []packageFile `json:"files"`
		}{}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("%s: the page of package %s: %w", index.Host, name, err)
		}
		files = page.Files
	} else {
		files = parseAnchors(string(body))
	}
	for i := range files {
		u, err := resp.Request.URL.Parse(files[i].URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("%s: file %q has no valid address", index.Host, files[i].Filename)
		}
		files[i].URL = u.String()
	}
	return files, nil
}

var (
	anchor = regexp.MustCompile(`(?is)<a\s([^>]*)>\s*([^<]*?)\s*</a>`)
	href   = regexp.MustCompile(`(?i)\bhref\s*=\s*["']([^"']*)["']`)
)

// parseAnchors reads the older HTML form of a project page: a link for each file, its hash after '#'.
func parseAnchors(page string) []packageFile {
	var files []packageFile
	for _, m := range anchor.FindAllStringSubmatch(page, -1) {
		ref := href.FindStringSubmatch(m[1])
		if ref == nil {
			continue
		}
		address, hash, _ := strings.Cut(html.UnescapeString(ref[1]), "#")
		f := packageFile{Filename: html.UnescapeString(m[2]), URL: address, Hashes: map[string]string{}, Yanked: strings.Contains(m[1], "data-yanked")}
		if k, v, ok := strings.Cut(hash, "="); ok {
			f.Hashes[k] = v
		}
		files = append(files, f)
	}
	return files
}

// chooseFile returns the file of a version, or of the newest final one: a wheel before a source archive.
func chooseFile(files []packageFile, name, ver string) (packageFile, error) {
	best, found := packageFile{}, false
	bestVersion, bestWheel := "", false
	for _, f := range files {
		v, wheel, ok := fileVersion(f.Filename, name)
		if !ok || ver != "" && compareVersions(v, ver) != 0 {
			continue
		}
		if ver == "" && (isPrerelease(v) || f.Yanked != nil && f.Yanked != false) {
			continue
		}
		c := 1
		if found {
			c = compareVersions(v, bestVersion)
		}
		if c > 0 || c == 0 && wheel && !bestWheel {
			best, found, bestVersion, bestWheel = f, true, v, wheel
		}
	}
	if !found {
		return best, fmt.Errorf("package %s has no wheel or source archive of version %s among its %d files", name, orNewest(ver), len(files))
	}
	return best, nil
}

func orNewest(v string) string {
	if v == "" {
		return "any"
	}
	return v
}

// fileVersion takes the version out of a file name: name-version-...whl or name-version.tar.gz.
func fileVersion(file, name string) (v string, wheel, ok bool) {
	if base, isWheel := strings.CutSuffix(file, ".whl"); isWheel {
		fields := strings.Split(base, "-")
		if len(fields) < 5 || normalized(fields[0]) != normalized(name) {
			return "", true, false
		}
		return fields[1], true, true
	}
	for _, ending := range []string{".tar.gz", ".zip", ".tgz"} {
		base, found := strings.CutSuffix(file, ending)
		if at := strings.LastIndex(base, "-"); found && at > 0 && normalized(base[:at]) == normalized(name) {
			return base[at+1:], false, true
		}
	}
	return "", false, false
}

var (
	prerelease = regexp.MustCompile(`(?i)(a|b|c|rc|alpha|beta|pre|preview|dev)[-_.]?\d*$`)
	digits     = regexp.MustCompile(`\d+|[a-z]+`)
)

func isPrerelease(v string) bool {
	public, _, _ := strings.Cut(v, "+")
	return prerelease.MatchString(public)
}

// compareVersions orders versions by their numbers, missing ones counting as zero; a suffix of letters comes before none, but post
// after it.
func compareVersions(a, b string) int {
	x, y := digits.FindAllString(strings.ToLower(a), -1), digits.FindAllString(strings.ToLower(b), -1)
	for i := range max(len(x), len(y)) {
		if c := versionRank(x, i) - versionRank(y, i); c != 0 {
			return map[bool]int{true: 1, false: -1}[c > 0]
		}
	}
	return 0
}

func versionRank(fields []string, i int) float64 {
	if i >= len(fields) {
		return 0
	}
	if n, err := strconv.ParseFloat(fields[i], 64); err == nil {
		return n
	}
	switch fields[i] {
	case "dev":
		return -4
	case "a", "alpha":
		return -3
	case "b", "beta":
		return -2
	case "post":
		return 0.5
	}
	return -1
}
