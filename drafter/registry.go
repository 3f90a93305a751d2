package drafter

import (
	"fmt"
	"slices"
	"strings"

	"quickdraft/model"
)

// Config is what methods are made from; each takes what it needs and says so when it is missing.
type Config struct {
	Target *model.Model // always

	Draft       *model.Model // the draft model; methods that use it do not close it
	Bigger      *model.Model // hierarchical: verifies the guesses of the small draft before the target does
	Translation *Translation // crossvocab: how the draft's tokens map to the target's
	Context     int          // positions a request may have in a draft model; 0: the model's own
	KVTokens    int          // positions of all requests together; 0: Context
	Shortlist   int          // draft: tokens that have logits besides those of the request's text; 0: all
	ListRoom    int          // draft: tokens of its text that a request has on a shortlist; 0: 8192
	Guesses     int          // ngram: guesses a round; 0: 4
	Corpus      []int32      // suffix: ids of a text to guess from besides the request's own
	Skip        string       // layerskip: decoder layers to leave out, "8-15,20"; "": see NewLayerSkip
	Seed        uint64       // random and adversarial
}

// vocab returns the entries of the target's logits rows and how many of these are tokens.
func (c *Config) vocab() (rows, tokens int) {
	t := c.Target.Config()
	if t.Tokens > 0 && t.Tokens < t.Vocab {
		return t.Vocab, t.Tokens
	}
	return t.Vocab, t.Vocab
}

// modelOptions are those of a drafter that runs m.
func (c *Config) modelOptions(m *model.Model) ModelOptions {
	rows, tokens := c.vocab()
	return ModelOptions{Model: m, Vocab: rows, Tokens: tokens, Context: c.Context, KVTokens: c.KVTokens, Shortlist: c.Shortlist, ListRoom: c.ListRoom}
}

// Takes says which options change what a method proposes. Of a method that does not take one it must not be asked for.
type Takes struct {
	MinP      bool // Budget.MinP: it knows how sure it is of a guess before it goes on
	Branch    bool // Budget.Branch: it knows several guesses for one position
	Shortlist bool // Config.Shortlist
}

// method is what a name of --spec-type stands for.
type method struct {
	takes Takes
	open  func(c *Config) (Drafter, error)
}

var methods = map[string]method{}

// register adds a method under the name that --spec-type gives it.
func register(name string, takes Takes, open func(c *Config) (Drafter, error)) {
	if _, ok := methods[name]; ok {
		panic("drafter: method " + name + " registered twice")
	}
	methods[name] = method{takes, open}
}

// TakesOf returns what a method takes, and of "a+b" what one of them does; false for names that are not registered.
func TakesOf(name string) (sum Takes, ok bool) {
	for part := range strings.SplitSeq(name, "+") {
		m, ok := methods[part]
		if !ok {
			return Takes{}, false
		}
		sum.MinP = sum.MinP || m.takes.MinP
		sum.Branch = sum.Branch || m.takes.Branch
		sum.Shortlist = sum.Shortlist || m.takes.Shortlist
	}
	return sum, true
}

// Names lists the methods, sorted.
func Names() []string {
	var names []string
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New makes the drafter of a name, or for "a+b" the union of several.
func New(name string, c Config) (Drafter, error) {
	if c.Target == nil {
		return nil, fmt.Errorf("drafter %q: no target model given", name)
	}
	parts := strings.Split(name, "+")
	var drafters []Drafter
	for i, part := range parts {
		m, ok := methods[part]
		if slices.Contains(parts[:i], part) {
			closeAll(drafters)
			return nil, fmt.Errorf("drafter %q: %q is there twice, want each method once", name, part)
		}
		if !ok {
			closeAll(drafters)
			return nil, fmt.Errorf("drafter %q: %q is unknown, want one of %s, or several joined by +", name, part, strings.Join(Names(), ", "))
		}
		d, err := m.open(&c)
		if err != nil {
			closeAll(drafters)
			return nil, err
		}
		drafters = append(drafters, d)
	}
	if len(drafters) == 1 {
		return drafters[0], nil
	}
	return NewUnion(drafters...), nil
}

// closeAll closes all drafters, also when one panics, and returns the first error.
func closeAll(drafters []Drafter) (first error) {
	for i := len(drafters) - 1; i >= 0; i-- {
		defer func() {
			if err := drafters[i].Close(); err != nil && first == nil {
				first = err
			}
		}()
	}
	return nil
}
