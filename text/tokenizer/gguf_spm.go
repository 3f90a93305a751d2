package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sentencePiece builds BPE from scores: a pair may merge if its join is a piece, the piece with the best score first.
func (g *ggufReader) sentencePiece(t *Tokenizer) error {
	for i, piece := range g.tokens {
		// Converters write runs of ▁ that are user-defined as spaces. The text has them as ▁ when the model sees it.
		if g.types[i] == ggufUser && strings.Trim(piece, " ") == "" {
			g.tokens[i] = strings.ReplaceAll(piece, " ", spaceMark)
		}
	}
	added := g.fill(t)
	if arch, _ := g.f.String("general.architecture"); arch == "phi3" {
		for i := range added {
			a := &added[i]
			a.rstrip = a.text == "</s>" || strings.HasPrefix(a.text, "<|") && a.text != "<|endoftext|>"
		}
	}
	var err error
	if t.raw, err = newMatcher(added); err != nil {
		return err
	}
	t.dec = decoder{byteFallback: true, replace: [][2]string{{spaceMark, " "}}}
	prefix, ok := g.f.Bool("tokenizer.ggml.add_space_prefix")
	if !ok || prefix {
		t.norm = append(t.norm, prepend(spaceMark))
		t.dec.strip = 1
	}
	t.norm = append(t.norm, replace(" ", spaceMark))
	splits, err := g.splits(&t.vocab)
	if err != nil {
		return err
	}
	m := newBPE(&t.vocab, len(splits), false)
	m.fallback, m.fuse = true, true
	m.unknown = int32(g.id("tokenizer.ggml.unknown_token_id", 0))
	rank := 0
	for i, s := range splits {
		if i > 0 && g.order(&splits[i-1], &s) != 0 {
			rank = i
		}
		m.addMerge(s.left, s.right, s.both, rank)
	}
	m.findCuts()
	t.model = m
	return nil
}

// pieceSplit is a way to make a piece of two others.
type pieceSplit struct {
	left, right, both int32
	cut               int // bytes of left
	first             int // above 0: a run of ▁ defined by the user, which goes before all others; its length
	score             float32
	flat              bool // scores say nothing
}

// splits lists all ways to make pieces of two others, in the order in which they are to be merged.
func (g *ggufReader) splits(v *vocab) ([]pieceSplit, error) {
	flat := g.flatScores()
	var all []pieceSplit
	for i, piece := range g.tokens {
		if v.kinds[i]&kindModel == 0 || v.kinds[i]&kindByte != 0 || v.index[piece] != int32(i) {
			continue
		}
		if len(piece) > maxPieceBytes {
			return nil, fmt.Errorf("tokenizer.ggml.tokens[%d] is %d bytes long; at most %d are allowed", i, len(piece), maxPieceBytes)
		}
		first := 0
		if g.types[i] == ggufUser && strings.Trim(piece, spaceMark) == "" {
			first = len(piece)
		}
		for cut := range piece {
			if cut == 0 {
				continue
			}
			left, ok1 := v.modelID(piece[:cut])
			right, ok2 := v.modelID(piece[cut:])
			if ok1 && ok2 {
				all = append(all, pieceSplit{left, right, int32(i), cut, first, g.scores[i], flat})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b pieceSplit) int { return g.order(&a, &b) })
	return all, nil
}

// flatScores reports whether all normal pieces have the same score, as files converted from a tokenizer.json have it.
// Pieces were learnt in the order of their ids then.
func (g *ggufReader) flatScores() bool {
	first := -1
	for i, ty := range g.types {
		if ty != ggufNormal {
			continue
		}
		if first < 0 {
			first = i
		}
		if g.scores[i] != g.scores[first] {
			return false
		}
	}
	return true
}

// order compares two splits; 0 means that the one further left in the text goes first.
func (g *ggufReader) order(a, b *pieceSplit) int {
	if a.first > 0 || b.first > 0 {
		return cmp.Or(cmp.Compare(b.first, a.first), cmp.Compare(b.cut, a.cut))
	}
	if a.flat {
		return cmp.Or(cmp.Compare(a.both, b.both), cmp.Compare(b.cut, a.cut))
	}
	return cmp.Compare(b.score, a.score)
}

// unigram builds a T5 tokenizer as the SentencePiece library runs it.
func (g *ggufReader) unigram(t *Tokenizer) error {
	added := g.fill(t)
	var err error
	if t.raw, err = newMatcher(added); err != nil {
		return err
	}
	sp := &sentencePiece{squeeze: g.flag("tokenizer.ggml.remove_extra_whitespaces", true), prefix: g.flag("tokenizer.ggml.add_space_prefix", true)}
	if v, ok := g.f.Value("tokenizer.ggml.precompiled_charsmap"); ok && v.Len() > 0 {
		ints := g.f.Ints("tokenizer.ggml.precompiled_charsmap")
		data := make([]byte, len(ints))
		for i, x := range ints {
			data[i] = byte(x)
		}
		if sp.chars, err = newCharsmap(data); err != nil {
			return err
		}
	}
	t.norm = append(t.norm, sp.normalize)
	t.dec = decoder{replace: [][2]string{{spaceMark, " "}}}
	if sp.prefix {
		t.dec.dropMark = spaceMark
	}
	scores := make([]float64, len(g.scores))
	for i, s := range g.scores {
		scores[i] = float64(s)
	}
	u, err := newUnigram(&t.vocab, scores, int32(g.id("tokenizer.ggml.unknown_token_id", 2)))
	if err != nil {
		return err
	}
	u.single = true
	t.model = u
	return nil
}
