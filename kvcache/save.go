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
	"path/filepath"
)

// A saved sequence, little endian:
//
//	 0  8 bytes   "qdkvseq1", the version of this layout
//	 8  32 bytes  fingerprint: sha256 of the caller's and of the cache's shape
//	40  uint32    tokens
//	44  int32     ids, one a token; then for every pool the uint32 number of its first block that is held
//	    blocks    layer by layer: all blocks' keys, all blocks' values, as they lie in memory
//	    32 bytes  sha256 of everything before
const saveMagic = "qdkvseq1"

// ErrForeign is in the error of Restore for a file that another model, quantisation or layout wrote.
var ErrForeign = errors.New("saved by another model, quantisation or layout")

// ErrDamaged is in the error of Restore for a file that is cut off or changed.
var ErrDamaged = errors.New("damaged")

// Save writes the committed tokens, ids[:Len()], with their keys and values to a file. The file appears whole or not at
// all: another one at path stays until the new one is safe on disk. The fingerprint says which model computed them.
func (s *Seq) Save(path string, fingerprint [sha256.Size]byte, ids []int32) (err error) {
	if len(ids) < s.length || s.length == 0 {
		return fmt.Errorf("%s: save of %d tokens with %d ids, want at least one and an id for each", path, s.length, len(ids))
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	sum := sha256.New()
	s.write(io.MultiWriter(w, sum), s.cache.cfg.seal(fingerprint), ids[:s.length])
	_, _ = w.Write(sum.Sum(nil))
	if err = errors.Join(w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename last where directories can be synced.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
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

// Restore reads what Save wrote into a new sequence and returns it with its tokens. A file of another model or layout is
// refused with ErrForeign, one that is not whole with ErrDamaged; the cache is unchanged then, and likewise when it has
// too few free blocks.
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
	r := &sumReader{r: bufio.NewReaderSize(f, 1<<20), sum: sha256.New(), left: info.Size()}
	s = c.NewSeq()
	if ids, err = c.read(r, s, c.cfg.seal(fingerprint)); err != nil {
		s.Free()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, ids, nil
}

// sumReader reads a file of known length and sums what it reads.
type sumReader struct {
	r    io.Reader
	sum  hash.Hash
	left int64
}

// full fills b or fails.
func (r *sumReader) full(b []byte) error {
	if int64(len(b)) > r.left {
		return fmt.Errorf("%w: the file ends %d bytes early", ErrDamaged, int64(len(b))-r.left)
	}
	r.left -= int64(len(b))
	if _, err := io.ReadFull(r.r, b); err != nil {
		return err
	}
	r.sum.Write(b)
	return nil
}

// read fills s, which may be left half filled after an error.
func (c *Cache) read(r *sumReader, s *Seq, seal [sha256.Size]byte) ([]int32, error) {
	head := make([]byte, len(saveMagic)+sha256.Size+4)
	if err := r.full(head); err != nil {
		return nil, err
	}
	if !bytes.Equal(head[:len(head)-4], append([]byte(saveMagic), seal[:]...)) {
		return nil, ErrForeign
	}
	n := int64(binary.LittleEndian.Uint32(head[len(head)-4:]))
	if n < 1 || 4*n > r.left {
		return nil, fmt.Errorf("%w: %d tokens in a file with %d bytes after their number", ErrDamaged, n, r.left)
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
