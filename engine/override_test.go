package engine

import (
	"cmp"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
	"quickdraft/internal/golden"
	"quickdraft/model"
	"quickdraft/sample"
)

func TestBothSpellingsOfAnOverride(t *testing.T) {
	for _, c := range []struct {
		body string
		want Request
	}{
		{`{}`, Request{}},
		{`{"prompt": "x", "speculative": null}`, Request{}},
		{`{"speculative": {"method": "suffix", "n_max": 4}}`, Request{SpecMethod: "suffix", SpecMax: 4}},
		{`{"speculative.method": "suffix", "speculative.n_max": 4}`, Request{SpecMethod: "suffix", SpecMax: 4}},
		{`{"speculative.n_max": 8, "speculative.n_min": 2, "speculative.p_min": 0.75}`, Request{SpecMax: 8, SpecMin: 2, SpecPMin: 0.75}},
		{`{"speculative": {"n_max": 3}, "speculative.p_min": 0.5}`, Request{SpecMax: 3, SpecPMin: 0.5}},
		{`{"speculative": {"n_max": 3}, "speculative.n_max": 3}`, Request{SpecMax: 3}},
		{`{"speculative": {"method": "none"}}`, Request{NoSpec: true}},
		{`{"speculative": {"method": "auto"}}`, Request{}},
		{`{"speculative.n_max": 0}`, Request{NoSpec: true}},
		{`{"speculative": {"unknown": [1], "n_max": 2}, "speculative.nmax": 4, "speculative.unknown": "x"}`, Request{SpecMax: 2}},
		{`{"speculative": {"unknown": {}}}`, Request{}},
	} {
		var r Request
		require.NoError(t, r.Speculative([]byte(c.body)), c.body)
		require.Equal(t, c.want, r, c.body)
	}
	for body, want := range map[string]string{
		`{"speculative": {"unknown": 1, "n_max": true}}`:              `speculative.n_max: true, want a whole number`,
		"{\"speculative\": [\n{\"n_max\": 4}\n]}":                     `speculative: [{"n_max":4}], want an object`,
		"{\"speculative.n_max\": [\n1\n]}":                            `speculative.n_max: [1], want a whole number`,
		`{"speculative": {"method": "x"}, "speculative.method": "y"}`: `speculative.method: given twice, as "x" and as "y"`,
		`[1]`:                                                   "speculative: the request is no JSON object",
		`{"speculative": 4}`:                                    `speculative: 4, want an object`,
		`{"speculative": {"n_max": "4"}}`:                       `speculative.n_max: "4", want a whole number`,
		`{"speculative.n_max": 4.5}`:                            `speculative.n_max: 4.5, want a whole number`,
		`{"speculative.n_max": -1}`:                             `speculative.n_max: -1, want 0 (no guesses) to 64`,
		`{"speculative.n_max": 65}`:                             `speculative.n_max: 65, want 0 (no guesses) to 64`,
		`{"speculative.n_min": 65}`:                             `speculative.n_min: 65, want 0 to 64`,
		`{"speculative": {"n_max":2,"n_min":3}}`:                `speculative.n_min: 3, want at most speculative.n_max, 2`,
		`{"speculative.p_min": 1.5}`:                            `speculative.p_min: 1.5, want 0 to 1`,
		`{"speculative.method": 7}`:                             `speculative.method: 7, want a string`,
		`{"speculative": {"n_max": 2}, "speculative.n_max": 3}`: `speculative.n_max: given twice, as 2 and as 3`,
	} {
		r := Request{SpecMax: 5}
		require.ErrorContains(t, r.Speculative([]byte(body)), want)
		require.Equal(t, Request{SpecMax: 5}, r, "nothing changes")
	}
}

// named is a drafter of a name that always proposes its token, in chains.
type named struct {
	scripted
	name string
	id   int32
	most int // guesses a round; 0: as many as fit
}

func (d *named) Name() string { return d.name }
func (d *named) Propose(rounds []drafter.Round) error {
	for _, r := range rounds {
		parent := int32(-1)
		for range min(r.Budget.Nodes, r.Budget.Depth, cmp.Or(d.most, maxGuesses)) {
			parent = r.Tree.Add(d.id, parent, nil)
		}
	}
	return nil
}

// askedParts answers a request with two drafters and tells which of them were asked last.
func askedParts(t *testing.T, o SpecOptions, r Request) (SpecStats, [2]bool) {
	t.Helper()
	first, second := &named{name: "first", id: 3, most: 4}, &named{name: "second", id: 4, most: 4}
	u := drafter.NewUnion(first, second)
	o.Drafter = u
	e := openTiny(t, Options{Context: 128, Spec: o})
	s, _ := stats(t, e, r)
	var asked [2]bool
	require.NoError(t, e.do(func() error {
		for i, c := range u.Costs() {
			asked[i] = c.Asked
		}
		return nil
	}))
	return s, asked
}

func TestARequestChoosesItsMethodAndLimits(t *testing.T) {
	r := request(1, 5, 30)
	r.Sampling = sample.Greedy()
	o := SpecOptions{Fixed: 6}
	for method, want := range map[string][2]bool{"": {true, true}, "first": {true, false}, "second": {false, true}, "first+second": {true, true}} {
		r.SpecMethod = method
		s, asked := askedParts(t, o, r)
		require.Equal(t, want, asked, method)
		require.Positive(t, s.Drafted)
	}
	r.SpecMethod, r.SpecMin = "first", 5
	s, _ := askedParts(t, o, r)
	require.Zero(t, s.Drafted, "four are fewer than five")
	r.SpecMin = 4
	s, _ = askedParts(t, o, r)
	require.Positive(t, s.Drafted, "four are not fewer than four")

	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Fixed: 4, Drafter: drafter.NewUnion(&named{name: "first"}, &named{name: "second"})}})
	for want, change := range map[string]func(*Request){
		"method \"first\" asked for, and no guesses":                             func(r *Request) { r.SpecMethod, r.NoSpec = "first", true },
		"at most 3 guesses a round asked for, and no guesses":                    func(r *Request) { r.SpecMax, r.NoSpec = 3, true },
		"at least 5 guesses a round asked for, where there are at":               func(r *Request) { r.SpecMin = 5 },
		"at least 3 guesses a round asked for, where there are at":               func(r *Request) { r.SpecMin, r.SpecMax = 3, 2 },
		"at least 6 guesses a round asked for, where there are at":               func(r *Request) { r.SpecMin, r.SpecFixed = 6, 5 },
		"6 fixed guesses a round asked for, and at most 5":                       func(r *Request) { r.SpecFixed, r.SpecMax = 6, 5 },
		`method "third" asked for, want auto, none, first+second, first, second`: func(r *Request) { r.SpecMethod = "third" },
		"at least -1 guesses":   func(r *Request) { r.SpecMin = -1 },
		"at least 65 guesses":   func(r *Request) { r.SpecMin = 65 },
		"least probability 1.5": func(r *Request) { r.SpecPMin = 1.5 },
	} {
		bad := request(1, 5, 30)
		change(&bad)
		_, err := e.Submit(t.Context(), bad)
		require.ErrorContains(t, err, want)
	}
	off := request(1, 5, 30)
	off.SpecMethod = "suffix"
	_, err := openTiny(t, Options{Context: 128}).Submit(t.Context(), off)
	require.ErrorContains(t, err, `method "suffix" asked for, want auto, none`)
	for want, change := range map[string]func(*Request){
		"at most 4 guesses":     func(r *Request) { r.SpecMax = 4 },
		"at least 2 guesses":    func(r *Request) { r.SpecMin = 2 },
		"3 fixed guesses":       func(r *Request) { r.SpecFixed = 3 },
		"least probability 0.5": func(r *Request) { r.SpecPMin = 0.5 },
	} {
		bad := request(1, 5, 30)
		change(&bad)
		_, err := openTiny(t, Options{Context: 128}).Submit(t.Context(), bad)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "asked for, but it is off in this engine")
	}

	// A least belief of the request's own: a draft model stops where it is less sure.
	r = request(1, 5, 30)
	r.Sampling = sample.Greedy()
	sure := openTiny(t, Options{Context: 128, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}})
	s, _ = stats(t, sure, r)
	r.SpecPMin = 0.9
	less, _ := stats(t, sure, r)
	require.Less(t, less.Drafted, s.Drafted)
}

// TestLimitsThatAMethodDoesNotTakeAreRefused asks every method for what it takes and for what it does not, when the engine is
// opened and in a request.
func TestLimitsThatAMethodDoesNotTakeAreRefused(t *testing.T) {
	path := filepath.Join(golden.Dir(t, "archs"), "llama3-rope")
	for _, name := range append(drafter.Names(), "ngram+suffix", "suffix+draft") {
		takes, known := drafter.TakesOf(name)
		require.True(t, known)
		for what, c := range map[string]struct {
			o     SpecOptions
			takes bool
		}{
			"least probability 0.5":       {SpecOptions{PMin: 0.5}, takes.MinP},
			"2 guesses for one position":  {SpecOptions{Branch: 2}, takes.Branch},
			"":                            {SpecOptions{Branch: 1, NMin: 1}, true},
			"where fewer than 3 are not":  {SpecOptions{Fixed: 2, NMin: 3}, false},
			"guesses a round asked for, ": {SpecOptions{NMax: 2, NMin: 3}, false},
		} {
			c.o.Open = withDrafter(t, name, nil)
			e, err := Open(path, Options{Context: 64, Threads: 1, Spec: c.o})
			if c.takes {
				require.NoError(t, err, "%s: %s", name, what)
				require.NoError(t, e.Close())
				continue
			}
			require.ErrorContains(t, err, what, name)
			require.ErrorContains(t, err, "speculation: ")
			require.NotContains(t, err.Error(), "\n")
		}
		e := openTiny(t, Options{Context: 64, Spec: SpecOptions{Open: withDrafter(t, name, nil)}})
		r := request(1, 5, 4)
		if r.SpecPMin = 0.5; takes.MinP {
			answer(t, e, r)
		} else {
			_, err := e.Submit(t.Context(), r)
			require.ErrorContains(t, err, "least probability 0.5 asked for, but "+name+" does not know")
		}
	}
	for _, o := range []SpecOptions{{Fixed: 2}, {NMin: 1}, {PMin: 0.1}, {Branch: 1}, {Lenience: 0.5}} {
		_, err := Open(path, Options{Context: 64, Threads: 1, Spec: o})
		require.ErrorContains(t, err, "without a drafter", "%+v", o)
	}
	r := request(1, 5, 4)
	r.SpecMax = 2
	_, err := openTiny(t, Options{Context: 64, Spec: SpecOptions{NMin: 3, Drafter: &named{name: "first"}}}).Submit(t.Context(), r)
	require.ErrorContains(t, err, "at most 2 guesses a round asked for, where fewer than 3 are not verified")
}

// unnamed hides which method a drafter is.
type unnamed struct{ drafter.Drafter }

func (unnamed) Name() string { return "unnamed" }

// TestMethodsTakeWhatTheySay compares what is guessed with and without each limit: it differs where a method takes the limit,
// and nowhere else.
func TestMethodsTakeWhatTheySay(t *testing.T) {
	for _, name := range drafter.Names() {
		drafted := func(o SpecOptions, shortlist int) (s SpecStats) {
			open := withDrafter(t, name, func(c *drafter.Config) { c.Shortlist, c.ListRoom = shortlist, 16 })
			o.Fixed, o.Open = 8, func(m *model.Model) (drafter.Drafter, error) {
				d, err := open(m)
				return unnamed{d}, err
			}
			e := openTiny(t, Options{Context: 128, NoPrefix: true, Spec: o})
			for n := range 3 {
				r := request(n, 12, 60)
				r.Sampling = sample.Greedy()
				answer(t, e, r)
			}
			return e.SpecTotals()
		}
		takes, known := drafter.TakesOf(name)
		require.True(t, known)
		without := drafted(SpecOptions{}, 0)
		require.Positive(t, without.Drafted, name)
		same := func(o SpecStats) bool {
			return o.Drafted == without.Drafted && o.Accepted == without.Accepted && slices.Equal(o.Offered, without.Offered) && slices.Equal(o.Widths, without.Widths)
		}
		require.Equal(t, takes.MinP, !same(drafted(SpecOptions{PMin: 0.9}, 0)), "%s, least probability", name)
		require.Equal(t, takes.Branch, !same(drafted(SpecOptions{Branch: 3}, 0)), "%s, guesses for one position", name)
		if name != "hierarchical" { // whose guesses are the bigger model's, however few of them the small one knows
			require.Equal(t, takes.Shortlist, !same(drafted(SpecOptions{}, 64)), "%s, shortlist", name)
		}
	}
}
