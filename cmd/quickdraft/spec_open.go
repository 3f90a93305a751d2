package main

import (
	"context"
	"fmt"

	"quickdraft/drafter"
	"quickdraft/engine"
	"quickdraft/model"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

// options returns what the engine needs; base are the options of the draft models' loading.
func (s *specFlags) options(ctx context.Context, target string, t *text.Text, base model.Options) (engine.SpecOptions, error) {
	if err := s.settle(); err != nil || s.method == "" || s.method == specNone {
		return engine.SpecOptions{}, err
	}
	o := engine.SpecOptions{NMax: s.nMax, NMin: s.nMin, PMin: s.pMin, Fixed: s.fixed, Lenience: s.lenience, Branch: s.branch}
	if err := o.Check(); err != nil {
		return o, &usageError{err}
	}
	draft, err := s.resolve(ctx, s.draft)
	if err != nil {
		return o, err
	}
	bigger, err := s.resolve(ctx, s.bigger)
	if err != nil {
		return o, err
	}
	o.Cores = draftCores(draft)
	base.Cores = o.Cores
	o.Open = func(m *model.Model) (drafter.Drafter, error) {
		if m.Config().EncoderLayers > 0 && !s.flags.Changed("spec-type") && s.given() == "" {
			s.method = specNone // nobody asked for guesses, and this model takes none
			return nil, nil
		}
		d, err := s.open(m, target, t, draft, bigger, base)
		if err != nil {
			s.close()
			return nil, &usageError{fmt.Errorf("speculation: %w", err)}
		}
		return d, nil
	}
	return o, nil
}

// resolve finds a model's file; a name that leads nowhere is the caller's mistake.
func (s *specFlags) resolve(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	f := modelFlags{name: name}
	path, err := f.resolve(ctx)
	if err != nil {
		return "", &usageError{fmt.Errorf("draft model %s: %w", name, err)}
	}
	return path, nil
}

// open makes the drafter for a loaded target.
func (s *specFlags) open(m *model.Model, target string, t *text.Text, draft, bigger string, base model.Options) (drafter.Drafter, error) {
	c := drafter.Config{Target: m, Skip: s.skip, Shortlist: s.vocab, Guesses: s.ngramGuesses()}
	base.Pool = m.Pool()
	var err error
	if s.corpus != "" {
		data, err := readFile("--spec-corpus", s.corpus)
		if err != nil {
			return nil, err
		}
		if c.Corpus = t.Tokenizer.Encode(string(data), tokenizer.EncodeOptions{}); len(c.Corpus) == 0 {
			return nil, &usageError{fmt.Errorf("--spec-corpus %q: no tokens, want a text to guess from", s.corpus)}
		}
	}
	if draft != "" {
		near := base
		if near.Cores != nil {
			near.Pool = nil
		}
		if c.Draft, err = s.load(draft, near); err != nil {
			return nil, err
		}
		if err := s.match(&c, target, t, draft); err != nil {
			return nil, err
		}
	}
	if bigger != "" {
		if c.Bigger, err = s.load(bigger, base); err != nil {
			return nil, err
		}
		if err := compatible(target, t, bigger); err != nil {
			return nil, err
		}
	}
	return drafter.New(s.method, c)
}

func (s *specFlags) load(path string, base model.Options) (*model.Model, error) {
	m, err := model.Load(path, base)
	if err == nil {
		s.models = append(s.models, m)
	}
	return m, err
}

// match checks that the draft speaks the target's language, or makes the translation where it is known not to.
func (s *specFlags) match(c *drafter.Config, target string, t *text.Text, draft string) error {
	if !s.uses("crossvocab") {
		return compatible(target, t, draft)
	}
	if s.uses("draft", "hierarchical") {
		if err := compatible(target, t, draft); err != nil {
			return err
		}
	}
	d, err := text.Open(draft)
	if err != nil {
		return err
	}
	c.Translation, err = drafter.NewTranslation(spelled(target, t), spelled(draft, d))
	return err
}

func spelled(file string, t *text.Text) drafter.Text {
	return drafter.Text{File: file, Size: t.Tokenizer.VocabSize(), Bytes: t.Tokenizer.Bytes, Encode: func(s string) []int32 {
		return t.Tokenizer.Encode(s, tokenizer.EncodeOptions{})
	}, Special: t.Tokenizer.IsSpecial}
}

func compatible(target string, t *text.Text, draft string) error {
	d, err := text.Open(draft)
	if err != nil {
		return err
	}
	vocabulary := func(file string, t *text.Text) drafter.Vocabulary {
		return drafter.Vocabulary{File: file, Size: t.Tokenizer.VocabSize(), Piece: t.Tokenizer.Piece, EOS: t.Tokenizer.EOGs()}
	}
	return drafter.Compatible(vocabulary(target, t), vocabulary(draft, d))
}

// close frees the draft models, once the engine is closed.
func (s *specFlags) close() {
	for _, m := range s.models {
		_ = m.Close()
	}
	s.models = nil
}

// draftOptions are the options with which draft models are loaded.
func draftOptions(o engine.Options) model.Options {
	return model.Options{F32: o.F32, TilesDir: o.TilesDir, Note: o.Note, Stop: o.Stop}
}
