package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"quickdraft/modelfile/gguf"
)

// Token types of tokenizer.ggml.token_type.
const (
	ggufNormal = iota + 1
	ggufUnknown
	ggufControl
	ggufUser
	ggufUnused
	ggufByte
)

// FromGGUF builds the tokenizer that a model file's metadata describes. Nothing of f is used after it returns.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	g := ggufReader{f: f}
	t, err := g.build()
	if err == nil {
		err = g.err
	}
	var placed *gguf.Error // names the file itself
	if err != nil && !errors.As(err, &placed) {
		err = fmt.Errorf("%s: %w", f.Path(), err)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// ggufReader holds the arrays of one file, all of the vocabulary's length.
type ggufReader struct {
	f      *gguf.File
	tokens []string
	types  []int64
	scores []float32 // nil for byte-level BPE
	err    error     // the first value of a wrong type or out of range
}

func (g *ggufReader) build() (*Tokenizer, error) {
	name, ok := g.text("tokenizer.ggml.model")
	if !ok {
		return nil, cmp.Or(g.err, g.f.KeyError("tokenizer.ggml.model", "is missing; the file describes no tokenizer"))
	}
	if err := g.read(name == "llama" || name == "t5"); err != nil {
		return nil, err
	}
	t := &Tokenizer{bos: -1, eos: -1}
	var err error
	switch name {
	case "gpt2":
		err = g.byteLevel(t)
	case "llama":
		err = g.sentencePiece(t)
	case "t5":
		if data, ok := g.text(hfKey); ok {
			err = g.fromHF(t, data)
		} else {
			err = g.unigram(t)
		}
	default:
		err = g.f.KeyError("tokenizer.ggml.model", "is not supported, want gpt2, llama or t5")
	}
	if err != nil {
		return nil, err
	}
	return t, g.specials(t, name)
}

// fill sets the vocabulary from tokens and types and returns the tokens to look for in the text.
func (g *ggufReader) fill(t *Tokenizer) []addedToken {
	t.vocab = newVocab(len(g.tokens))
	var added []addedToken
	for i, piece := range g.tokens {
		id, k := int32(i), kindModel
		switch g.types[i] {
		case ggufUnknown, ggufControl:
			k = kindAdded | kindSpecial
		case ggufUser:
			k = kindAdded | kindModel
		case ggufUnused:
			k = 0
		case ggufByte:
			k |= kindByte
		}
		t.vocab.set(id, piece, k)
		if k&kindAdded != 0 {
			added = append(added, addedToken{id: id, text: piece, special: k&kindSpecial != 0})
		}
	}
	return added
}

// ggufPre are the pre-tokenizers by the names that tokenizer.ggml.pre gives them.
var ggufPre = map[string]struct {
	scan   scanner
	digits bool // every digit is cut off first
	nfc    bool
	whole  bool // a word that is a piece is not built from merges
	bos    bool // add_bos_token when the file does not say
}{
	"llama-bpe": {scan: scanLlama, whole: true, bos: true},
	"llama3":    {scan: scanLlama, whole: true, bos: true},
	"llama-v3":  {scan: scanLlama, whole: true, bos: true},
	"qwen2":     {scan: scanQwen, nfc: true},
	"smollm":    {scan: scanGPT2, digits: true},
	"tekken":    {scan: scanTekken, whole: true, bos: true},
	"gpt-2":     {scan: scanGPT2},
	"gpt2":      {scan: scanGPT2},
}

func (g *ggufReader) preName() (string, error) {
	name, ok := g.text("tokenizer.ggml.pre")
	if _, known := ggufPre[name]; known {
		return name, nil
	}
	if g.err != nil {
		return "", g.err
	}
	names := make([]string, 0, len(ggufPre))
	for n := range ggufPre {
		names = append(names, n)
	}
	slices.Sort(names)
	what := "is not a supported pre-tokenizer"
	if !ok {
		what = "is missing"
	}
	return "", g.f.KeyError("tokenizer.ggml.pre", "%s, want one of %s", what, strings.Join(names, ", "))
}

func (g *ggufReader) byteLevel(t *Tokenizer) error {
	name, err := g.preName()
	if err != nil {
		return err
	}
	pre := ggufPre[name]
	if pre.nfc {
		t.norm = append(t.norm, normForm(norm.NFC))
	}
	if pre.digits {
		t.pre = append(t.pre, digits(true))
	}
	t.pre = append(t.pre, byScanner(pre.scan))
	t.dec = decoder{byteLevel: true}
	added := g.fill(t)
	if t.raw, err = newMatcher(added); err != nil {
		return err
	}
	lines := g.f.Strings("tokenizer.ggml.merges")
	if lines == nil {
		g.wrongType("tokenizer.ggml.merges", "an array of strings")
	}
	m := newBPE(&t.vocab, len(lines), true)
	m.whole = pre.whole
	for rank, line := range lines {
		left, right, _ := strings.Cut(line, " ")
		if err := addNamedMerge(m, left, right, rank); err != nil {
			return g.f.KeyError("tokenizer.ggml.merges", "has at %d a %v", rank, err)
		}
	}
	t.model = m
	return nil
}

// addNamedMerge adds a merge given by the pieces' spelling.
func addNamedMerge(m *bpe, left, right string, rank int) error {
	l, ok1 := m.vocab.index[left]
	r, ok2 := m.vocab.index[right]
	both, ok3 := m.vocab.index[left+right]
	if !ok1 || !ok2 || !ok3 {
		return fmt.Errorf("merge of %q and %q: both and their join must be in the vocabulary", left, right)
	}
	m.addMerge(l, r, both, rank)
	return nil
}

// specials sets BOS, EOS and what ends an answer, and finishes t.
func (g *ggufReader) specials(t *Tokenizer, model string) error {
	var named []int32
	for _, k := range []string{"bos", "eos", "eot", "eom"} {
		id := int32(g.id("tokenizer.ggml."+k+"_token_id", -1))
		switch {
		case id < 0:
		case k == "bos":
			t.bos = id
		case k == "eos":
			t.eos = id
		default:
			named = append(named, id)
		}
	}
	for _, key := range g.f.Keys() { // nobody looks the others up, but a wrong one says that the vocabulary is another's
		if strings.HasPrefix(key, "tokenizer.ggml.") && strings.HasSuffix(key, "_token_id") {
			g.id(key, -1)
		}
	}
	pre, _ := g.text("tokenizer.ggml.pre")
	if g.flag("tokenizer.ggml.add_bos_token", model == "llama" || model == "gpt2" && ggufPre[pre].bos) && t.bos >= 0 {
		t.prefix = []int32{t.bos}
	}
	if g.flag("tokenizer.ggml.add_eos_token", model == "t5") && t.eos >= 0 {
		t.suffix = []int32{t.eos}
	}
	t.setEOG(named...)
	return t.vocab.render(&t.dec)
}
