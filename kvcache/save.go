package kvcache

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"quickdraft/internal/disk"
)

// A file of saved sequences is one part after the other, each behind its length in bytes as a uint64. A part, little endian:
//
//	 0  8 bytes   "qdkvseq2", the version of this layout
//	 8  32 bytes  fingerprint: sha256 of the caller's and of the cache's shape
//	40  uint32    tokens
//	44  int32     ids, one a token; then for every pool the uint32 number of its first block that is held
//	    blocks    layer by layer: all blocks' keys, all blocks' values, as they lie in memory
//	    32 bytes  sha256 of everything before
const saveMagic = "qdkvseq2"

// partHead is the bytes of a part up to its tokens' ids.
const partHead = len(saveMagic) + sha256.Size + 4

// ErrForeign is in the error of Restore for a file in which there is nothing of this model, quantisation and layout.
var ErrForeign = errors.New("saved by another model, quantisation or layout")

// ErrDamaged is in the error of Restore for a file that is cut off or changed.
var ErrDamaged = errors.New("damaged")

// Saved is a sequence to be saved: its committed tokens, IDs[:Seq.Len()], with their keys and values. The fingerprint says
// which model computed them.
type Saved struct {
	Seq         *Seq
	Fingerprint [sha256.Size]byte
	IDs         []int32
}

// Save writes sequences, which may be of several caches, to a file. The file appears whole or not at all: another one at
// path stays until the new one is safe on disk.
func Save(path string, parts ...Saved) error {
	for _, p := range parts {
		if len(p.IDs) < p.Seq.length || p.Seq.length == 0 {
			return fmt.Errorf("%s: save of %d tokens with %d ids, want at least one and an id for each", path, p.Seq.length, len(p.IDs))
		}
	}
	f, err := disk.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<20)
	for _, p := range parts {
		_, _ = w.Write(binary.LittleEndian.AppendUint64(nil, uint64(p.Seq.savedBytes())))
		sum := sha256.New()
		p.Seq.write(io.MultiWriter(w, sum), p.Seq.cache.cfg.seal(p.Fingerprint), p.IDs[:p.Seq.length])
		_, _ = w.Write(sum.Sum(nil))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Commit()
}

// savedBytes is the length of a part.
func (s *Seq) savedBytes() int64 {
	n := int64(partHead + 4*(s.length+len(s.cache.pools)) + sha256.Size)
	_ = s.cache.eachBlock(s, func(block []byte) error {
		n += int64(len(block))
		return nil
	})
	return n
}

// write sends everything but the checksum; the writer keeps the first error.
func (s *Seq) write(w io.Writer, seal [sha256.Size]byte, ids []int32) {
	head := append([]byte(saveMagic), seal[:]...)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(ids)))
	head, _ = binary.Append(head, binary.LittleEndian, ids)
	for i, p := range s.cache.pools {
		head = binary.LittleEndian.AppendUint32(head, uint32(max(s.tables[i].first, p.firstSeen(max(s.length-Slack, 0)))))
	}
	_, _ = w.Write(head)
	_ = s.cache.eachBlock(s, func(block []byte) error {
		_, err := w.Write(block)
		return err
	})
}

// eachBlock calls f with the memory of a sequence's blocks, in the order of the file, until it fails.
func (c *Cache) eachBlock(s *Seq, f func(block []byte) error) error {
	for i := range c.layers {
		l := &c.layers[i]
		t := &s.tables[l.pool]
		first := max(t.first, c.pools[l.pool].firstSeen(max(s.length-Slack, 0)))
		for _, st := range []*store{&l.k, &l.v} {
			for _, b := range t.blocks[first:blocksFor(s.length)] {
				for _, memory := range st.memory(int(b)) {
					if err := f(memory); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// seal mixes the shape and layout of the cache into a fingerprint.
func (cfg *Config) seal(fingerprint [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(fingerprint[:], "%s %d layers, %d heads of %d, windows %v, f32 %v, 8 bits %v %v, blocks of %d", saveMagic,
		cfg.Layers, cfg.KVHeads, cfg.HeadDim, cfg.Windows, cfg.F32, cfg.K8, cfg.V8, BlockTokens))
}

// Restore reads the first sequence of a file that this cache and the model of the fingerprint saved into a new sequence and
// returns it with its tokens. A file without one is refused with ErrForeign, one that is not whole with ErrDamaged; the cache
// is unchanged then, and likewise when it has too few free blocks.
func (c *Cache) Restore(path string, fingerprint [sha256.Size]byte) (s *Seq, ids []int32, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	r, err := findPart(f, info.Size(), c.cfg.seal(fingerprint))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	s = c.NewSeq()
	if ids, err = c.read(r, s); err != nil {
		s.Free()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, ids, nil
}

// findPart looks through the parts of a file of size bytes, all of which have to fit, for one with a seal.
func findPart(f io.ReaderAt, size int64, seal [sha256.Size]byte) (found *sumReader, err error) {
	want := append([]byte(saveMagic), seal[:]...)
	for at := int64(0); at < size || at == 0; {
		var head [8 + len(saveMagic) + sha256.Size]byte
		if size-at < int64(8+partHead) {
			return nil, fmt.Errorf("%w: %d bytes where a saved sequence begins, want %d or more", ErrDamaged, size-at, 8+partHead)
		}
		if _, err := f.ReadAt(head[:], at); err != nil {
			return nil, err
		}
		n := binary.LittleEndian.Uint64(head[:])
		if left := size - at - 8; n < uint64(partHead) || n > uint64(left) {
			return nil, fmt.Errorf("%w: a saved sequence of %d bytes, want %d to the %d that are left", ErrDamaged, n, partHead, left)
		}
		if found == nil && bytes.Equal(head[8:], want) {
			found = &sumReader{r: bufio.NewReaderSize(io.NewSectionReader(f, at+8, int64(n)), 1<<20), sum: sha256.New(), left: int64(n)}
		}
		at += 8 + int64(n)
	}
	if found == nil {
		return nil, ErrForeign
	}
	return found, nil
}

// sumReader reads a part of known length and sums what it reads.
type sumReader struct {
	r    io.Reader
	sum  hash.Hash
	left int64
}

// full fills b or fails.
func (r *sumReader) full(b []byte) error {
	if int64(len(b)) > r.left {
		return fmt.Errorf("%w: it ends %d bytes early", ErrDamaged, int64(len(b))-r.left)
	}
	r.left -= int64(len(b))
	if _, err := io.ReadFull(r.r, b); err != nil {
		return err
	}
	r.sum.Write(b)
	return nil
}

// read fills s, which may be left half filled after an error.
func (c *Cache) read(r *sumReader, s *Seq) ([]int32, error) {
	head := make([]byte, partHead)
	if err := r.full(head); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[len(head)-4:]))
	if n < 1 || 4*n > r.left {
		return nil, fmt.Errorf("%w: %d tokens with %d bytes after their number", ErrDamaged, n, r.left)
	}
	raw := make([]byte, 4*(int(n)+len(c.pools)))
	if err := r.full(raw); err != nil {
		return nil, err
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	if err := s.extend(int(n)); err != nil {
		return nil, err
	}
	for i, p := range c.pools {
		first := int64(binary.LittleEndian.Uint32(raw[4*(int(n)+i):]))
		if first > int64(p.firstSeen(int(n))) {
			return nil, fmt.Errorf("%w: blocks from %d on cannot show a window after %d tokens", ErrDamaged, first, n)
		}
		s.leave(i, int(first))
	}
	if err := c.eachBlock(s, r.full); err != nil {
		return nil, err
	}
	want, got := r.sum.Sum(nil), make([]byte, sha256.Size)
	if err := r.full(got); err != nil {
		return nil, err
	}
	if !bytes.Equal(want, got) || r.left > 0 {
		return nil, fmt.Errorf("%w: checksum %x, computed %x, %d bytes after it", ErrDamaged, got, want, r.left)
	}
	return ids, nil
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
