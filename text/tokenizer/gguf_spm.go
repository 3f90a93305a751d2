package tokenizer

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
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
	if arch, _ := g.text("general.architecture"); arch == "phi3" {
		for i := range added {
			a := &added[i]
			a.rstrip = a.text == "</s>" || strings.HasPrefix(a.text, "<|") && a.text != "<|endoftext|>"
		}
	}
	for i, piece := range g.tokens {
		if len(piece) > maxPieceBytes {
			return g.f.KeyError("tokenizer.ggml.tokens", "has at %d a token of %d bytes, want at most %d", i, len(piece), maxPieceBytes)
		}
	}
	var err error
	if t.raw, err = newMatcher(added); err != nil {
		return err
	}
	t.dec = decoder{byteFallback: true, replace: [][2]string{{spaceMark, " "}}}
	if g.flag("tokenizer.ggml.add_space_prefix", true) {
		t.norm = append(t.norm, prepend(spaceMark))
		t.dec.strip = 1
	}
	t.norm = append(t.norm, replace(" ", spaceMark))
	splits := g.splits(&t.vocab)
	m := newBPE(&t.vocab, len(splits), false)
	m.fallback, m.fuse = true, true
	m.unknown = int32(g.id("tokenizer.ggml.unknown_token_id", 0))
	own := g.flatScores() // each split has a rank of its own, as each has that makes a run of ▁
	rank := 0
	for i, s := range splits {
		if own || i == 0 || g.runLength(splits[i-1].both) > 0 || g.scores[s.both] != g.scores[splits[i-1].both] {
			rank = i
		}
		m.addMerge(s.left, s.right, s.both, rank)
	}
	m.findCuts()
	t.model = m
	return nil
}

// pieceSplit is a way to make a piece of two others.
type pieceSplit struct{ left, right, both int32 }

// splits returns all ways to make pieces of two others, in the order in which they are to be merged. Of those for pieces
// of the same score the one further left in the text goes first. The hundreds of thousands of look-ups wait for memory, so
// the work is shared between the processors.
func (g *ggufReader) splits(v *vocab) []pieceSplit {
	order := g.mergeOrder(v, g.flatScores())
	parts := make([][]pieceSplit, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for p := range parts {
		from, to := len(order)*p/len(parts), len(order)*(p+1)/len(parts)
		wait.Go(func() {
			for _, id := range order[from:to] {
				parts[p] = appendSplits(parts[p], v, id, g.tokens[id])
			}
		})
	}
	wait.Wait()
	return slices.Concat(parts...)
}

// appendSplits appends the ways to make one piece, the one with the longest left part first.
func appendSplits(all []pieceSplit, v *vocab, id int32, piece string) []pieceSplit {
	for cut := len(piece); cut > 0; {
		_, size := utf8.DecodeLastRuneInString(piece[:cut])
		if cut -= size; cut == 0 {
			break
		}
		right, ok := v.modelID(piece[cut:])
		if !ok {
			continue
		}
		if left, ok := v.modelID(piece[:cut]); ok {
			all = append(all, pieceSplit{left, right, id})
		}
	}
	return all
}

// mergeOrder returns the ids that merges may lead to, those to be merged first in front: runs of ▁ that the user defined,
// the longest first; then by score, or by id if flat.
func (g *ggufReader) mergeOrder(v *vocab, flat bool) []int32 {
	ids := make([]int32, 0, len(g.tokens))
	for i, piece := range g.tokens {
		if v.kinds[i]&kindModel != 0 && v.kinds[i]&kindByte == 0 && v.index[piece] == int32(i) {
			ids = append(ids, int32(i))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		if runs := cmp.Compare(g.runLength(b), g.runLength(a)); runs != 0 || flat {
			return runs
		}
		return cmp.Compare(g.scores[b], g.scores[a])
	})
	return ids
}

// runLength returns the bytes of a user-defined run of ▁, 0 for other pieces.
func (g *ggufReader) runLength(id int32) int {
	if g.types[id] == ggufUser && strings.Trim(g.tokens[id], spaceMark) == "" {
		return len(g.tokens[id])
	}
	return 0
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

// unigram builds a T5 tokenizer as the SentencePiece library runs it.
func (g *ggufReader) unigram(t *Tokenizer) error {
	added := g.fill(t)
	var err error
	if t.raw, err = newMatcher(added); err != nil {
		return err
	}
	sp := &sentencePiece{squeeze: g.flag("tokenizer.ggml.remove_extra_whitespaces", true), prefix: g.flag("tokenizer.ggml.add_space_prefix", true)}
	if sp.chars, err = g.charsmap(); err != nil {
		return err
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
	if slices.Contains(g.types, ggufByte) {
		u.bytes = newBPE(&t.vocab, 0, false)
		t.dec.byteFallback = true
	}
	t.model = u
	return nil
}
