package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/drafter"
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
		{`{"speculative": {"unknown": [1]}}`, Request{}},
	} {
		var r Request
		require.NoError(t, r.Speculative([]byte(c.body)), c.body)
		require.Equal(t, c.want, r, c.body)
	}
	for body, want := range map[string]string{
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
}

func (d *named) Name() string { return d.name }
func (d *named) Propose(rounds []drafter.Round) error {
	for _, r := range rounds {
		parent := int32(-1)
		for range min(r.Budget.Nodes, r.Budget.Depth) {
			parent = r.Tree.Add(d.id, parent, nil)
		}
	}
	return nil
}

// askedParts answers a request with two drafters and tells which of them were asked last.
func askedParts(t *testing.T, o SpecOptions, r Request) (SpecStats, [2]bool) {
	t.Helper()
	first, second := &named{name: "first", id: 3}, &named{name: "second", id: 4}
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
	for method, want := range map[string][2]bool{"": {true, true}, "first": {true, false}, "second": {false, true}, "first+second": {true, true}} {
		r.SpecMethod = method
		s, asked := askedParts(t, SpecOptions{Fixed: 4}, r)
		require.Equal(t, want, asked, method)
		require.Positive(t, s.Drafted)
	}
	r.SpecMethod, r.SpecMin = "first", 5
	s, _ := askedParts(t, SpecOptions{Fixed: 4}, r)
	require.Zero(t, s.Drafted, "four are fewer than five")
	r.SpecMin = 4
	s, _ = askedParts(t, SpecOptions{Fixed: 4}, r)
	require.Positive(t, s.Drafted, "four are not fewer than four")

	e := openTiny(t, Options{Context: 128, Spec: SpecOptions{Fixed: 4, Drafter: drafter.NewUnion(&named{name: "first"}, &named{name: "second"})}})
	for want, change := range map[string]func(*Request){
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

	// A least belief of the request's own: a draft model stops where it is less sure.
	r = request(1, 5, 30)
	r.Sampling = sample.Greedy()
	sure := openTiny(t, Options{Context: 128, Spec: SpecOptions{Fixed: 4, Open: withDrafter(t, "draft", nil)}})
	s, _ = stats(t, sure, r)
	r.SpecPMin = 0.9
	less, _ := stats(t, sure, r)
	require.Less(t, less.Drafted, s.Drafted)
}
