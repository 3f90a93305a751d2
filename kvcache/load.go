package kvcache

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

// Place is where a saved sequence may go: a cache, and which model computed what is in it.
type Place struct {
	Cache       *Cache
	Fingerprint [sha256.Size]byte
}

// Restore reads the first sequence of a file that this cache and the model of the fingerprint saved into a new sequence and
// returns it with its tokens. A file without one is refused with ErrForeign, one that is not whole with ErrDamaged; the cache
// is unchanged then, and likewise when it has too few free blocks.
func (c *Cache) Restore(path string, fingerprint [sha256.Size]byte) (*Seq, []int32, error) {
	images, err := Load(context.Background(), path, Place{c, fingerprint})
	if err != nil {
		return nil, nil, err
	}
	if images[0] == nil {
		return nil, nil, fmt.Errorf("%s: %w", path, ErrForeign)
	}
	s, err := c.Reserve(images[0])
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	s.Fill(images[0])
	return s, images[0].IDs, nil
}

// Reserve makes a new sequence of the length of an image of this cache's layout, and takes blocks for it. Their content is what
// Fill puts there.
func (c *Cache) Reserve(m *Image) (*Seq, error) {
	s := c.NewSeq()
	if err := s.extend(len(m.IDs)); err != nil {
		s.Free()
		return nil, err
	}
	for i, first := range m.firsts {
		s.leave(i, int(first))
	}
	return s, nil
}

// Fill gives a sequence that Cache.Reserve made its content. Other goroutines may use the cache meanwhile, but not the sequence.
func (s *Seq) Fill(m *Image) {
	rest := m.blocks
	s.eachBlock(m.firsts, func(block []byte) { rest = rest[copy(block, rest):] })
}

// extend makes an empty sequence n tokens long, whose content is still to come. It goes in steps, so that layers with a window
// need room for that only.
func (s *Seq) extend(n int) error {
	if s.cache.taken(s) {
		return s.cache.errTaken(n)
	}
	for _, p := range s.cache.pools {
		if need := blocksFor(n); p.window == 0 && need > p.available() {
			return fmt.Errorf("kvcache: %d tokens need %d blocks of %d tokens, %d of %d are free", n, need, BlockTokens, p.available(), len(p.refs))
		}
	}
	for s.length < n {
		step := min(Slack, n-s.length)
		if err := s.Reserve(step); err != nil {
			return err
		}
		s.Commit(step)
	}
	return nil
}

// Load reads a file and returns for each place the first of its sequences that was saved from there, nil where the file has none.
// The file is checked as a whole; one that is not is refused with ErrDamaged, and what is not a file, like a pipe, is not waited
// for. Of each cache only what never changes is looked at, so its goroutine may go on. Memory is taken for what a place has
// room for, whatever the file says. A sequence that is longer is an error of the first place; others have none then.
func Load(ctx context.Context, path string, places ...Place) ([]*Image, error) {
	f, size, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &reader{r: bufio.NewReaderSize(&patient{ctx: ctx, r: f}, 1<<20), sum: sha256.New(), left: size, places: places, found: make([]*Image, len(places))}
	if err := r.file(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r.found, nil
}

// openFile opens a regular file. It looks before it opens too: os.Open waits at a pipe without a writer.
func openFile(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = checkFile(path, info)
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkFile(path, info)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func checkFile(path string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return fmt.Errorf("%s: is a folder, want a file of saved sequences", path)
	case !mode.IsRegular():
		return fmt.Errorf("%s: is a %s, want a file of saved sequences", path, kindOf(mode))
	}
	return nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// reader goes through a file once and sums what it reads.
type reader struct {
	r       io.Reader
	sum     hash.Hash
	left    int64 // bytes of the file
	places  []Place
	found   []*Image
	tooLong error // of a sequence that the first place has no room for
}

// full fills b or fails.
func (r *reader) full(b []byte) error {
	if r.left < int64(len(b)) {
		return r.short(int64(len(b)))
	}
	r.left -= int64(len(b))
	if _, err := io.ReadFull(r.r, b); err != nil {
		return cut(err)
	}
	r.sum.Write(b)
	return nil
}

// skip reads n bytes for their sum alone.
func (r *reader) skip(n int64) error {
	r.left -= n
	_, err := io.CopyN(r.sum, r.r, n)
	return cut(err)
}

// short says that the file ends where n bytes should follow.
func (r *reader) short(n int64) error {
	return fmt.Errorf("%w: %d bytes where %d or more have to follow", ErrDamaged, r.left, n)
}

// cut is the error of a file that became shorter while it was read.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it was cut short meanwhile", ErrDamaged)
	}
	return err
}

// file reads all parts and compares the sum.
func (r *reader) file() error {
	head := make([]byte, fileHead)
	if err := r.full(head); err != nil {
		return err
	}
	if magic := head[:len(saveMagic)]; string(magic) != saveMagic {
		if n := len(saveMagic) - 1; string(magic[:n]) == saveMagic[:n] {
			return fmt.Errorf("%w: it begins with %q, want %q", ErrForeign, magic, saveMagic)
		}
		return fmt.Errorf("%w: it begins with %q, want %q", ErrDamaged, magic, saveMagic)
	}
	for range binary.LittleEndian.Uint32(head[len(saveMagic):]) {
		if err := r.part(); err != nil {
			return err
		}
	}
	want, got := r.sum.Sum(nil), make([]byte, sha256.Size)
	if err := r.full(got); err != nil {
		return err
	}
	if !bytes.Equal(want, got) || r.left > 0 {
		return fmt.Errorf("%w: checksum %x, computed %x, %d bytes after it", ErrDamaged, got, want, r.left)
	}
	return r.tooLong
}

// part reads the next part for all places that it was saved from and that have none yet.
func (r *reader) part() error {
	var head [8 + partHead]byte
	if err := r.full(head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(head[:])
	if most := r.left - sha256.Size; n < uint64(partHead) || most < 0 || n-uint64(partHead) > uint64(most) {
		return fmt.Errorf("%w: a saved sequence of %d bytes, %d bytes are left", ErrDamaged, n, r.left)
	}
	rest := int64(n) - int64(partHead)
	var image *Image
	for i, p := range r.places {
		if r.found[i] != nil || p.Cache.cfg.seal(p.Fingerprint) != [sha256.Size]byte(head[8:]) {
			continue
		}
		if image == nil {
			nTokens := binary.LittleEndian.Uint32(head[8+sha256.Size:])
			if need, has := (int64(nTokens)+BlockTokens-1)/BlockTokens, p.Cache.Blocks(); need > int64(has) {
				if i == 0 {
					r.tooLong = fmt.Errorf("kvcache: %d tokens need %d blocks of %d tokens, %d of %d are free", nTokens, need, BlockTokens, has, has)
				}
				continue
			}
			image = &Image{seal: [sha256.Size]byte(head[8:])}
			if err := r.image(image, p.Cache, int(nTokens), rest); err != nil {
				return err
			}
		}
		r.found[i] = image
	}
	if image == nil {
		return r.skip(rest)
	}
	return nil
}

// image reads what follows the head of a part of n tokens, rest bytes.
func (r *reader) image(m *Image, c *Cache, n int, rest int64) error {
	if want := int64(4 * (n + len(c.pools))); n < 1 || want > rest {
		return fmt.Errorf("%w: %d tokens with %d bytes after their number", ErrDamaged, n, rest)
	}
	raw := make([]byte, 4*(n+len(c.pools)))
	if err := r.full(raw); err != nil {
		return err
	}
	m.IDs = make([]int32, n)
	for i := range m.IDs {
		m.IDs[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	for i, p := range c.pools {
		first := binary.LittleEndian.Uint32(raw[4*(n+i):])
		if least, most := p.firstSeen(max(n-Slack, 0)), p.firstSeen(n); int64(first) < int64(least) || int64(first) > int64(most) {
			return fmt.Errorf("%w: blocks from %d on after %d tokens with a window of %d, want %d to %d", ErrDamaged, first, n, p.window, least, most)
		}
		m.firsts = append(m.firsts, first)
	}
	size := c.imageBytes(n, m.firsts)
	if left := rest - int64(len(raw)); int64(size) != left {
		return fmt.Errorf("%w: %d bytes of blocks of %d tokens, want %d", ErrDamaged, left, n, size)
	}
	m.blocks = make([]byte, size)
	return r.full(m.blocks)
}
