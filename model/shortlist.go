package model

import (
	"fmt"
	"runtime/debug"

	"quickdraft/machine"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// Shortlist is a part of a model's output matrix: passes that carry it compute logits for the tokens on it and no others.
// Its first tokens stay; others are there as long as a Listing asks for them.
//
// The rows are copies in one piece: of a model of 0.5B the matrix is over a third of the weights, and read for every token.
// There is address space for all of them and memory for those in use.
type Shortlist struct {
	whole    *tensor.Mat
	tileSize int
	pages    machine.Pages
	part     *tensor.Mat // (rows, Dim), rows of the tiles in use
	ids      []int32     // (rows) their tokens
	places   []int32     // (tiles in use) tile of the whole matrix
	placeOf  []int32     // (tiles of the whole matrix) where it is, when it is in use
	users    []int32     // (tiles of the whole matrix) listings that hold it, and one for those that stay
	nKept    int         // tiles that stay, the first ones
}

// NewShortlist lists the first tokens and those of also for good. Tokens come in tiles of 16 rows; the rows behind the last
// whole tile cannot be listed. The error says what does not fit the vocabulary.
func (m *Model) NewShortlist(first int, also ...int32) (s *Shortlist, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, m.changed)
	w := m.output
	if w == nil || first < 1 || first > w.Rows {
		return nil, fmt.Errorf("%s: shortlist of %d tokens: want 1 to %d", m.config.File, first, m.config.Vocab)
	}
	whole := w.Rows / quant.TileRows
	if whole == 0 {
		return nil, fmt.Errorf("%s: shortlist of a vocabulary of %d tokens: want %d or more", m.config.File, w.Rows, quant.TileRows)
	}
	s = &Shortlist{
		whole: w, tileSize: len(w.Tiles) / quant.Tiles(w.Rows), users: make([]int32, whole), placeOf: make([]int32, whole),
		places: make([]int32, 0, whole), ids: make([]int32, 0, whole*quant.TileRows),
	}
	if s.pages, err = machine.MapPages(whole*s.tileSize, true); err != nil {
		return nil, fmt.Errorf("%s: shortlist of %d tokens: %w", m.config.File, whole*quant.TileRows, err)
	}
	if s.part, err = tensor.NewMatTiles(w.Name, w.Type, whole*quant.TileRows, w.Cols, s.pages.Data); err != nil {
		s.Free()
		return nil, err
	}
	for tile := range min(quant.Tiles(first), whole) {
		s.take(int32(tile))
	}
	for _, id := range also {
		if tile, ok := s.tileOf(id); ok && s.users[tile] == 0 {
			s.take(tile)
		}
	}
	s.nKept = len(s.places)
	return s, nil
}

// Free gives the memory back; the list must not be used afterwards.
func (s *Shortlist) Free() { s.pages.Free() }

// IDs returns the tokens of a row of logits, (rows), which listings change.
func (s *Shortlist) IDs() []int32 { return s.ids }

// Bytes is what a pass reads of the list's rows.
func (s *Shortlist) Bytes() int64 { return s.part.Bytes() }

// WholeBytes is what a pass without a list reads of the output matrix.
func (s *Shortlist) WholeBytes() int64 { return s.whole.Bytes() }

// tileOf is the tile of a token, false for one that cannot be listed.
func (s *Shortlist) tileOf(id int32) (int32, bool) {
	tile := id / quant.TileRows
	return tile, id >= 0 && int(tile) < len(s.users)
}

// take lists a tile for one more user.
func (s *Shortlist) take(tile int32) {
	if s.users[tile]++; s.users[tile] == 1 {
		s.put(len(s.places), tile, s.whole.Tiles[int(tile)*s.tileSize:])
	}
}

// drop ends one use of a tile. The last place moves to where a tile was that nobody uses.
func (s *Shortlist) drop(tile int32) {
	if s.users[tile]--; s.users[tile] > 0 {
		return
	}
	last := len(s.places) - 1
	if at := int(s.placeOf[tile]); at < last {
		s.put(at, s.places[last], s.pages.Data[last*s.tileSize:])
	}
	s.resize(last)
}

// put copies a tile to a place, the one behind the last at most.
func (s *Shortlist) put(at int, tile int32, data []byte) {
	s.resize(max(at+1, len(s.places)))
	s.places[at], s.placeOf[tile] = tile, int32(at)
	copy(s.pages.Data[at*s.tileSize:(at+1)*s.tileSize], data)
	for i := range quant.TileRows {
		s.ids[at*quant.TileRows+i] = tile*quant.TileRows + int32(i)
	}
}

// resize makes the list and its matrix n tiles long.
func (s *Shortlist) resize(n int) {
	s.places, s.ids = s.places[:n], s.ids[:n*quant.TileRows]
	s.part.Rows, s.part.Tiles = len(s.ids), s.pages.Data[:n*s.tileSize]
}

// Listing is what one request has of a shortlist: the tokens that stay, and some of its own, which depend on nothing but the
// tokens that were added, whatever other requests share the list and the pass.
type Listing struct {
	s     *Shortlist
	tiles []int32  // (own, room at most) in the order in which they came, and once there is no room left, in turns
	bits  []uint64 // (tiles of the whole matrix) whether it is listed
	next  int      // of tiles, the one that makes way next
}

// NewListing makes a listing with room for some tokens, rounded up to tiles, besides those that stay.
func (s *Shortlist) NewListing(room int) *Listing {
	n := min(quant.Tiles(max(0, room)), len(s.users)-s.nKept)
	l := &Listing{s: s, tiles: make([]int32, 0, n), bits: make([]uint64, (len(s.users)+63)/64)}
	for _, tile := range s.places[:s.nKept] {
		l.bits[tile/64] |= 1 << (tile % 64)
	}
	return l
}

// Add lists tokens together with the rest of their tiles; where there is no room left, what was added longest ago makes way.
// It must not be called between a pass and the use of its logits, nor may Close.
func (l *Listing) Add(ids []int32) {
	for _, id := range ids {
		tile, ok := l.s.tileOf(id)
		if !ok || l.has(tile) || cap(l.tiles) == 0 {
			continue
		}
		l.s.take(tile)
		l.bits[tile/64] |= 1 << (tile % 64)
		if len(l.tiles) < cap(l.tiles) {
			l.tiles = append(l.tiles, tile)
			continue
		}
		old := l.tiles[l.next]
		l.bits[old/64] &^= 1 << (old % 64)
		l.tiles[l.next] = tile
		l.next = (l.next + 1) % len(l.tiles)
		l.s.drop(old)
	}
}

func (l *Listing) has(tile int32) bool { return l.bits[tile/64]&(1<<(tile%64)) != 0 }

// Has reports whether a token is listed.
func (l *Listing) Has(id int32) bool {
	tile, ok := l.s.tileOf(id)
	return ok && l.has(tile)
}

// Restrict fills what a row of the shortlist's logits, (rows), has of tokens that are there for others.
func (l *Listing) Restrict(row []float32, fill float32) {
	if l.s.nKept+len(l.tiles) == len(l.s.places) {
		return
	}
	for place, tile := range l.s.places {
		if !l.has(tile) {
			for i := range row[place*quant.TileRows : (place+1)*quant.TileRows] {
				row[place*quant.TileRows+i] = fill
			}
		}
	}
}

// Close takes the listing's own tokens from the list.
func (l *Listing) Close() {
	for _, tile := range l.tiles {
		l.bits[tile/64] &^= 1 << (tile % 64)
		l.s.drop(tile)
	}
	l.tiles = l.tiles[:0]
}

// project makes the logits of the wanted rows with the output matrix w, or with what the pass's shortlist has of it.
func (p *pass) project(w *tensor.Mat) {
	if p.short != nil {
		w = p.short.part
	}
	p.cpu.MatMul(p.logits, w, p.hidden)
}
