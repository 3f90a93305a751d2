package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

const (
	maxUnigramBytes = 1024 // bytes of a piece, which bound the work at each position
	unknownPenalty  = 10   // an unknown character scores this much less than the worst piece
)

// unigram picks the segmentation of a word with the best sum of piece scores (Viterbi).
type unigram struct {
	vocab   *vocab
	scores  []float64 // by id
	trie    trie      // pieces that text may produce
	unknown int32
	penalty float64 // score of an unknown character
	single  bool    // sums are rounded to float32, as the SentencePiece library does; this decides ties
	cache   bool    // words are short enough to be worth remembering
	bytes   *bpe    // byte tokens for unknown characters; nil if the model has none
}

// hop is the best way found to reach a position: from where, by which piece, with what sum.
type hop struct {
	from  int32 // -1: not reached
	id    int32
	score float64
}

func newUnigram(v *vocab, scores []float64, unknown int32) (*unigram, error) {
	if !v.has(unknown) {
		return nil, fmt.Errorf("tokenizer: unigram unknown id %d is not in the vocabulary of %d pieces", unknown, len(v.pieces))
	}
	u := &unigram{vocab: v, scores: scores, unknown: unknown}
	total, worst := 0, math.Inf(1)
	for id, p := range v.pieces {
		if len(p) > maxUnigramBytes {
			return nil, fmt.Errorf("tokenizer: piece %d is %d bytes long; at most %d are allowed", id, len(p), maxUnigramBytes)
		}
		if v.kinds[id]&kindModel == 0 {
			continue
		}
		if math.IsNaN(scores[id]) || math.IsInf(scores[id], 0) {
			return nil, fmt.Errorf("tokenizer: score of piece %d (%q) is %v; a finite number is needed", id, p, scores[id])
		}
		total += len(p)
		worst = min(worst, scores[id])
	}
	u.trie = newTrie(total)
	for id, p := range v.pieces {
		if v.kinds[id]&kindModel != 0 && v.index[p] == int32(id) && p != "" {
			u.trie.add(p, int32(id))
		}
	}
	u.penalty = worst - unknownPenalty
	return u, nil
}

func (u *unigram) encode(s *scratch, word string) {
	if u.cache && s.recall(word) {
		return
	}
	from := len(s.ids)
	u.forward(s, word)
	u.backward(s, word)
	if u.cache {
		s.remember(word, from)
	}
}

// forward fills s.path[i] with the best way to reach byte i of word.
func (u *unigram) forward(s *scratch, word string) {
	path := slices.Grow(s.path[:0], len(word)+1)
	for range len(word) + 1 {
		path = append(path, hop{from: -1})
	}
	path[0].from = 0
	reach := func(to, from int, id int32, score float64) {
		sum := score + path[from].score
		if u.single {
			sum = float64(float32(score) + float32(path[from].score))
		}
		if path[to].from < 0 || sum > path[to].score {
			path[to] = hop{int32(from), id, sum}
		}
	}
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		known, at := false, uint64(0)
		for j := i; j < len(word); j++ {
			to, ok := u.trie.step(at, word[j])
			if !ok {
				break
			}
			at = to
			if id := u.trie.value[at]; id >= 0 {
				reach(j+1, i, id, u.scores[id])
				known = known || j+1 == i+n
			}
		}
		if !known {
			reach(i+n, i, u.unknown, u.penalty)
		}
		i += n
	}
	s.path = path
}

// backward appends the ids along the best path. Unknown pieces in a row become one unknown token, or byte tokens.
func (u *unigram) backward(s *scratch, word string) {
	start := len(s.ids)
	for end := len(word); end > 0; {
		p := s.path[end]
		switch {
		case p.id != u.unknown:
			s.ids = append(s.ids, p.id)
		case u.bytes != nil && u.bytes.hasBytes(word[p.from:end]):
			for i := end - 1; i >= int(p.from); i-- {
				s.ids = append(s.ids, u.bytes.byteIDs[word[i]])
			}
		case len(s.ids) == start || s.ids[len(s.ids)-1] != u.unknown:
			s.ids = append(s.ids, u.unknown)
		}
		end = int(p.from)
	}
	ids := s.ids[start:]
	for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
		ids[i], ids[j] = ids[j], ids[i]
	}
}
