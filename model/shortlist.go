package model

import (
	"fmt"

	"quickdraft/machine"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// Shortlist is a part of a model's output matrix: passes that carry it compute logits for the tokens on it and no others.
// Its first tokens stay, and a few places behind them go to tokens that are added, in turns.
//
// The rows are copies in one piece: of a model of 0.5B the matrix is over a third of the weights, and read for every token.
type Shortlist struct {
	whole    *tensor.Mat
	tileSize int
	pages    machine.Pages
	part     *tensor.Mat // (rows, Dim), rows of the tiles in use
	ids      []int32     // (rows) their tokens
	places   []int32     // (tiles in use) tile of the whole matrix
	listed   []bool      // (tiles of the whole matrix) whether it is in use
	nFixed   int         // tiles that stay
	next     int         // place that the next tile takes once all are used
}

// NewShortlist lists the first tokens, and has room for more. Both are rounded up to the 16 rows of a tile; the rows behind
// the last whole tile cannot be listed. The error says what does not fit the vocabulary.
func (m *Model) NewShortlist(first, more int) (*Shortlist, error) {
	w := m.output
	if w == nil || first < 1 || first > w.Rows || more < 0 || more > w.Rows {
		return nil, fmt.Errorf("%s: shortlist of %d tokens and room for %d: want 1 to %d and 0 to %d", m.config.File, first, more, m.config.Vocab, m.config.Vocab)
	}
	whole := w.Rows / quant.TileRows
	nFixed := min(quant.Tiles(first), whole)
	room := min(nFixed+quant.Tiles(more), whole)
	if nFixed == 0 {
		return nil, fmt.Errorf("%s: shortlist of a vocabulary of %d tokens: want %d or more", m.config.File, w.Rows, quant.TileRows)
	}
	s := &Shortlist{whole: w, tileSize: len(w.Tiles) / quant.Tiles(w.Rows), listed: make([]bool, whole), nFixed: nFixed, next: nFixed}
	var err error
	if s.pages, err = machine.MapPages(room*s.tileSize, true); err != nil {
		return nil, fmt.Errorf("%s: shortlist of %d tokens: %w", m.config.File, room*quant.TileRows, err)
	}
	s.places, s.ids = make([]int32, 0, room), make([]int32, 0, room*quant.TileRows)
	for tile := range nFixed {
		s.put(len(s.places), int32(tile))
	}
	if err := s.cut(); err != nil {
		s.Free()
		return nil, err
	}
	return s, nil
}

// Free gives the memory back; the list must not be used afterwards.
func (s *Shortlist) Free() { s.pages.Free() }

// IDs returns the tokens of a row of logits, (rows), which Add changes.
func (s *Shortlist) IDs() []int32 { return s.ids }

// Bytes is what a pass reads of the list's rows.
func (s *Shortlist) Bytes() int64 { return s.part.Bytes() }

// WholeBytes is what a pass without a list reads of the output matrix.
func (s *Shortlist) WholeBytes() int64 { return s.whole.Bytes() }

// Add lists tokens together with the rest of their tiles; where there is no room left, what was added longest ago makes way.
// It must not be called between a pass and the use of its logits.
func (s *Shortlist) Add(ids []int32) {
	before := len(s.places)
	for _, id := range ids {
		tile := int(id) / quant.TileRows
		if id < 0 || tile >= len(s.listed) || s.listed[tile] {
			continue
		}
		at := len(s.places)
		if at == cap(s.places) {
			if s.nFixed == cap(s.places) {
				return
			}
			if at = s.next; at == cap(s.places)-1 {
				s.next = s.nFixed - 1
			}
			s.next++
		}
		s.put(at, int32(tile))
	}
	if len(s.places) != before {
		if err := s.cut(); err != nil {
			panic(err) // the shape was checked when the list was made
		}
	}
}

// put copies a tile to a place.
func (s *Shortlist) put(at int, tile int32) {
	if at == len(s.places) {
		s.places, s.ids = append(s.places, tile), s.ids[:len(s.ids)+quant.TileRows]
	} else {
		s.listed[s.places[at]] = false
		s.places[at] = tile
	}
	s.listed[tile] = true
	copy(s.pages.Data[at*s.tileSize:(at+1)*s.tileSize], s.whole.Tiles[int(tile)*s.tileSize:])
	for i := range quant.TileRows {
		s.ids[at*quant.TileRows+i] = tile*quant.TileRows + int32(i)
	}
}

// cut makes the matrix of the tiles in use.
func (s *Shortlist) cut() (err error) {
	n := len(s.places)
	s.part, err = tensor.NewMatTiles(s.whole.Name, s.whole.Type, n*quant.TileRows, s.whole.Cols, s.pages.Data[:n*s.tileSize])
	return err
}

// project makes the logits of the wanted rows with the output matrix w, or with what the pass's shortlist has of it.
func (p *pass) project(w *tensor.Mat) {
	if p.short != nil {
		w = p.short.part
	}
	p.cpu.MatMul(p.logits, w, p.hidden)
}
