package kvcache

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"quickdraft/internal/disk"
)

// A file of saved sequences, little endian:
//
//	0  8 bytes   "qdkvseq3", the version of this layout
//	8  uint32    parts, each:
//	     uint64    length of the rest of the part
//	     32 bytes  fingerprint: sha256 of the caller's and of the cache's shape
//	     uint32    tokens
//	     int32     ids, one a token; then for every pool the uint32 number of its first block that is held
//	     blocks    layer by layer: all blocks' keys, all blocks' values, as they lie in memory
//	   32 bytes  sha256 of everything before
const saveMagic = "qdkvseq3"

const (
	fileHead = len(saveMagic) + 4
	partHead = sha256.Size + 4 // of a part behind its length, up to the ids
)

// ErrForeign is in the error of Restore for a file in which there is nothing of this model, quantisation and layout.
var ErrForeign = errors.New("saved by another model, quantisation or layout")

// ErrDamaged is in the error of Restore and Load for a file that is cut off or changed.
var ErrDamaged = errors.New("damaged")

// Saved is a sequence to be saved: its committed tokens, IDs[:Seq.Len()], with their keys and values. The fingerprint says
// which model computed them.
type Saved struct {
	Seq         *Seq
	Fingerprint [sha256.Size]byte
	IDs         []int32
}

// Image is what a file holds of a sequence, in memory of its own.
type Image struct {
	IDs    []int32
	seal   [sha256.Size]byte
	firsts []uint32 // (pools) number of the first block
	blocks []byte   // in the order of the file
}

// Image copies the sequence. Other goroutines may use the cache meanwhile, but not the sequence: its blocks are not written to,
// not even those that it shares, because who writes to a shared block gets a copy.
func (p Saved) Image() (*Image, error) {
	s := p.Seq
	if len(p.IDs) < s.length || s.length == 0 {
		return nil, fmt.Errorf("save of %d tokens with %d ids, want at least one and an id for each", s.length, len(p.IDs))
	}
	m := &Image{IDs: slices.Clone(p.IDs[:s.length]), seal: s.cache.cfg.seal(p.Fingerprint)}
	for i, p := range s.cache.pools {
		m.firsts = append(m.firsts, uint32(max(s.tables[i].first, p.firstSeen(max(s.length-Slack, 0)))))
	}
	m.blocks = make([]byte, 0, s.cache.imageBytes(s.length, m.firsts))
	s.eachBlock(m.firsts, func(block []byte) { m.blocks = append(m.blocks, block...) })
	return m, nil
}

// imageBytes is the size of the blocks of n tokens from the first of each pool on.
func (c *Cache) imageBytes(n int, firsts []uint32) (bytes int) {
	cfg := &c.cfg
	for i := range c.layers {
		bytes += (blocksFor(n) - int(firsts[c.layers[i].pool])) * (cfg.blockBytes(cfg.format(cfg.K8)) + cfg.blockBytes(cfg.format(cfg.V8)))
	}
	return bytes
}

// eachBlock calls f with the memory of a sequence's blocks, in the order of the file.
func (s *Seq) eachBlock(firsts []uint32, f func(block []byte)) {
	for i := range s.cache.layers {
		l := &s.cache.layers[i]
		for _, st := range []*store{&l.k, &l.v} {
			for _, b := range s.tables[l.pool].blocks[firsts[l.pool]:blocksFor(s.length)] {
				for _, memory := range st.memory(int(b)) {
					f(memory)
				}
			}
		}
	}
}

// seal mixes the shape and layout of the cache into a fingerprint.
func (cfg *Config) seal(fingerprint [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(fingerprint[:], "%s %d layers, %d heads of %d, windows %v, f32 %v, 8 bits %v %v, blocks of %d", saveMagic,
		cfg.Layers, cfg.KVHeads, cfg.HeadDim, cfg.Windows, cfg.F32, cfg.K8, cfg.V8, BlockTokens))
}

// Save writes sequences, which may be of several caches, to a file. See Write.
func Save(path string, parts ...Saved) error {
	var images []*Image
	for _, p := range parts {
		m, err := p.Image()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		images = append(images, m)
	}
	return Write(context.Background(), path, images...)
}

// Write makes a file of images. It appears whole or not at all: another one at path stays until the new one is safe on disk,
// and when ctx ends before.
func Write(ctx context.Context, path string, images ...*Image) error {
	f, err := disk.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	sum := sha256.New()
	w := bufio.NewWriterSize(&patient{ctx: ctx, w: io.MultiWriter(f, sum)}, 1<<20)
	_, _ = w.Write(binary.LittleEndian.AppendUint32([]byte(saveMagic), uint32(len(images)))) // the writer keeps the first error
	for _, m := range images {
		head := binary.LittleEndian.AppendUint64(nil, uint64(partHead+4*(len(m.IDs)+len(m.firsts))+len(m.blocks)))
		head = binary.LittleEndian.AppendUint32(append(head, m.seal[:]...), uint32(len(m.IDs)))
		head, _ = binary.Append(head, binary.LittleEndian, m.IDs)
		head, _ = binary.Append(head, binary.LittleEndian, m.firsts)
		_, _ = w.Write(head)
		for chunk := range slices.Chunk(m.blocks, 1<<20) {
			_, _ = w.Write(chunk)
		}
	}
	if err = w.Flush(); err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return f.Commit()
}

// patient reads or writes until a context ends.
type patient struct {
	ctx context.Context
	r   io.Reader
	w   io.Writer
}

func (p *patient) Write(b []byte) (int, error) {
	if err := context.Cause(p.ctx); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

func (p *patient) Read(b []byte) (int, error) {
	if err := context.Cause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}
