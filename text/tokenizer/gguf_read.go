package tokenizer

import (
	"math"
	"slices"
)

// read takes the arrays of the vocabulary; scored says that the model needs scores.
func (g *ggufReader) read(scored bool) error {
	const tokensKey, typesKey, scoresKey = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"
	g.tokens = g.f.Strings(tokensKey)
	n := len(g.tokens)
	if n == 0 || n > maxVocab {
		return g.f.KeyError(tokensKey, "holds %d strings, want 1 to %d", n, maxVocab)
	}
	g.types = slices.Repeat([]int64{ggufNormal}, n)
	if v, ok := g.f.Value(typesKey); ok {
		if g.types = g.f.Ints(typesKey); len(g.types) != n {
			return g.f.KeyError(typesKey, "holds %d values of kind %s, of them %d integers; want an integer for each of the %d tokens",
				v.Len(), v.Elem(), len(g.types), n)
		}
	}
	for i, x := range g.types {
		if x < ggufNormal || x > ggufByte {
			return g.f.KeyError(typesKey, "says %d for token %d, want %d to %d", x, i, ggufNormal, ggufByte)
		}
	}
	v, there := g.f.Value(scoresKey)
	if !there && !scored {
		return nil
	}
	scores := g.f.Floats(scoresKey)
	if len(scores) != n {
		return g.f.KeyError(scoresKey, "holds %d values, of them %d numbers; want a number for each of the %d tokens", v.Len(), len(scores), n)
	}
	for i, x := range scores {
		if x != x || math.IsInf(float64(x), 0) {
			return g.f.KeyError(scoresKey, "says %v for token %d, want a finite number", x, i)
		}
	}
	if scored {
		g.scores = scores
	}
	return nil
}

// wrongType keeps an error if the file has the key: its value is not what the caller asked for.
func (g *ggufReader) wrongType(key, want string) {
	if v, ok := g.f.Value(key); ok && g.err == nil {
		g.err = g.f.KeyError(key, "is of kind %s, want %s", v.Kind(), want)
	}
}

// text returns a string; false when the key is absent or, with an error kept, of another kind.
func (g *ggufReader) text(key string) (string, bool) {
	s, ok := g.f.String(key)
	if !ok {
		g.wrongType(key, "a string")
	}
	return s, ok
}

// flag returns a bool, absent where the key is missing.
func (g *ggufReader) flag(key string, absent bool) bool {
	v, ok := g.f.Bool(key)
	if !ok {
		g.wrongType(key, "a bool")
		return absent
	}
	return v
}

// id returns a token id from the metadata, absent where the key is missing or says none: -1, or as uint32 4294967295.
func (g *ggufReader) id(key string, absent int) int {
	v, ok := g.f.Int(key)
	if !ok {
		g.wrongType(key, "the id of a token")
		return absent
	}
	if v == -1 || v == math.MaxUint32 {
		return absent
	}
	if v < 0 || v >= int64(len(g.tokens)) {
		if g.err == nil {
			g.err = g.f.KeyError(key, "is not a token of the vocabulary, want 0 to %d", len(g.tokens)-1)
		}
		return absent
	}
	return int(v)
}
