// Package repacked keeps the tiles of a model's matrices in a file, so that they are packed once and mapped afterwards.
//
// A file is, little-endian throughout:
//
//	header  magic "QDTILES\n" | version u32 | section count u32 | key [32]byte | table offset u64 | table bytes u64 |
//	        CRC of the table u32 | CRC of the header up to here u32
//	tiles   one section a matrix, each at a multiple of 4096 bytes
//	table   for each section: name length u16, name | type u32 | rows u64 | cols u64 | offset u64 | bytes u64 |
//	        CRC u32 of each 4 MiB of its tiles
//
// The table ends the file. CRCs are CRC-32C. The key says what was packed: another one makes the file stale. A file
// appears under its name only when it is complete, and every byte that is used is checked by Open, so a write that the
// system lost in a power failure is found as damage.
package repacked

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"quickdraft/machine"
	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/internal/mapfile"
)

const (
	magic       = "QDTILES\n"
	version     = 1
	headerBytes = 72
	alignment   = 4096
	chunkBytes  = 4 << 20
	maxSections = 1 << 20
	maxBase     = 100         // bytes of a model's name in that of its tiles
	entryBytes  = 2 + 4 + 4*8 // of the table, without name and CRCs
)

// Errors that Open wraps when a file has to be made again.
var (
	ErrStale   = errors.New("made from another file or by another version")
	ErrDamaged = errors.New("damaged")
)

var (
	le       = binary.LittleEndian
	crcTable = crc32.MakeTable(crc32.Castagnoli)
)

func crc(b []byte) uint32 { return crc32.Checksum(b, crcTable) }

// Key identifies what was packed and how.
type Key [32]byte

// FileName is the name of the file for the model at path, a file or a folder: one for each, whatever links lead to it. A
// model that changes replaces its tiles, for the Key is another then, so that no model ever has two files.
func FileName(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	where := sha256.Sum256([]byte(path))
	base := strings.Trim(filepath.Base(path), `/\`)
	if len(base) > maxBase { // a name may be as long as the system allows, and this one is longer
		base = strings.ToValidUTF8(base[:maxBase], "")
	}
	return base + "-" + hex.EncodeToString(where[:6]) + ".tiles", nil
}

// Section is one packed matrix.
type Section struct {
	Name       string
	Type       gguf.Type
	Rows, Cols int
	Tiles      []byte // aliases the mapped file

	at   uint64
	size uint64
	sums []uint32 // of each chunkBytes of Tiles
}

// File is an opened file. Tiles may not be used after Close.
type File struct {
	Sections []Section // in the order in which they were added
	mapped   *mapfile.File
}

// Open maps a file and checks all of it. It returns an error that wraps ErrStale when the file has another key or
// version, ErrDamaged when it is not what was written, or not any more, and otherwise what the system says.
func Open(path string, key Key) (*File, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{mapped: m}
	if err := f.read(key); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Explain returns a *machine.ChangedError when the file is mapped at addr, where a read failed, and nil otherwise.
func (f *File) Explain(addr uintptr) error { return mapfile.Explain([]*mapfile.File{f.mapped}, addr) }

// Close unmaps the file.
func (f *File) Close() error {
	f.Sections = nil
	return f.mapped.Close()
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// read parses the file. One that changes meanwhile is damaged.
func (f *File) read(key Key) error {
	err := guarded(f.Explain, func() error { return f.parse(f.mapped.Data, key) })
	var changed *machine.ChangedError
	if errors.As(err, &changed) {
		return damaged("it was changed while it was read")
	}
	return err
}

// guarded calls do with faults as errors, where explain has one.
func guarded(explain func(uintptr) error, do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, explain)
	return do()
}

func (f *File) parse(data []byte, key Key) error {
	if len(data) < headerBytes {
		return damaged("%d bytes, a header has %d", len(data), headerBytes)
	}
	h := data[:headerBytes]
	if string(h[:8]) != magic {
		return damaged("it does not begin with %q", magic)
	}
	if got := le.Uint32(h[headerBytes-4:]); got != crc(h[:headerBytes-4]) {
		return damaged("the header has another checksum")
	}
	if v := le.Uint32(h[8:]); v != version {
		return fmt.Errorf("%w: version %d, want %d", ErrStale, v, version)
	}
	if Key(h[16:48]) != key {
		return fmt.Errorf("%w: its key differs", ErrStale)
	}
	count, at, size := le.Uint32(h[12:]), le.Uint64(h[48:]), le.Uint64(h[56:])
	if count > maxSections || at < headerBytes || at > uint64(len(data)) || size != uint64(len(data))-at {
		return damaged("a table of %d bytes for %d sections at %d does not end a file of %d bytes", size, count, at, len(data))
	}
	table := data[at:]
	if crc(table) != le.Uint32(h[64:]) {
		return damaged("the table has another checksum")
	}
	if err := f.parseTable(table, int(count), data[:at]); err != nil {
		return err
	}
	return f.check()
}

// parseTable reads the sections; body is what lies before the table.
func (f *File) parseTable(table []byte, count int, body []byte) error {
	if count > len(table)/entryBytes {
		return damaged("%d sections in a table of %d bytes", count, len(table))
	}
	f.Sections = make([]Section, count)
	for i := range f.Sections {
		s := &f.Sections[i]
		var ok bool
		if table, ok = s.parse(table); !ok {
			return damaged("the table ends in section %d", i)
		}
		if s.at%alignment != 0 || s.at < headerBytes || s.at > uint64(len(body)) || s.size > uint64(len(body))-s.at {
			return damaged("section %q of %d bytes at %d lies outside the tiles", s.Name, s.size, s.at)
		}
		s.Tiles = body[s.at : s.at+s.size : s.at+s.size]
	}
	if len(table) > 0 {
		return damaged("%d bytes follow the last section", len(table))
	}
	return nil
}

// parse reads one entry and returns what follows it.
func (s *Section) parse(table []byte) (rest []byte, ok bool) {
	if len(table) < 2 {
		return nil, false
	}
	n := int(le.Uint16(table))
	if table = table[2:]; len(table) < n+entryBytes-2 {
		return nil, false
	}
	s.Name, table = string(table[:n]), table[n:]
	s.Type = gguf.Type(le.Uint32(table))
	s.Rows, s.Cols = int(le.Uint64(table[4:])), int(le.Uint64(table[12:]))
	s.at, s.size = le.Uint64(table[20:]), le.Uint64(table[28:])
	table = table[36:]
	chunks := (s.size + chunkBytes - 1) / chunkBytes
	if s.size > 1<<62 || chunks > uint64(len(table)/4) {
		return nil, false
	}
	s.sums = make([]uint32, chunks)
	for i := range s.sums {
		s.sums[i] = le.Uint32(table[4*i:])
	}
	return table[4*chunks:], true
}

// chunk is the part of the tiles that sum i covers.
func chunk(tiles []byte, i int) []byte {
	return tiles[i*chunkBytes : min((i+1)*chunkBytes, len(tiles))]
}

// check compares the tiles with their checksums. It reads all of them, which a first pass over the model would do too.
func (f *File) check() error {
	type piece struct{ section, chunk int }
	var pieces []piece
	for i, s := range f.Sections {
		for j := range s.sums {
			pieces = append(pieces, piece{i, j})
		}
	}
	var bad atomic.Pointer[piece]
	parallel(len(pieces), func(i int) {
		if bad.Load() != nil {
			return
		}
		s, sum := &f.Sections[pieces[i].section], uint32(0)
		err := guarded(f.Explain, func() error {
			sum = crc(chunk(s.Tiles, pieces[i].chunk))
			return nil
		})
		if err != nil || sum != s.sums[pieces[i].chunk] {
			bad.Store(&pieces[i])
		}
	})
	if p := bad.Load(); p != nil {
		return damaged("the tiles of %q have another checksum", f.Sections[p.section].Name)
	}
	return nil
}

// parallel calls do for 0 to n-1, some at a time.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}
