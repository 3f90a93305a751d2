package sample

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hostileReals are values of float options that are wrong, at the end of what floats hold, or at a border.
var hostileReals = []float64{
	math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), -1, -1e308, math.MaxFloat64, 5e-324, -5e-324, 1e-308, 1e-9, 0.01,
	math.Nextafter(1, 0), 100, 1e9,
}

// hostileWholes are those of options that count.
var hostileWholes = []int{math.MinInt, -2, -1, 0, 1, 2, math.MaxInt32, math.MaxInt}

// setting is an option with a value.
type setting struct {
	field int // of Params
	name  string
	apply func(p *Params)
}

// hostileSettings gives every number of Params, biases, breakers and orders values from the lists. A field that is added to
// Params takes part by itself.
func hostileSettings(t *testing.T) (all []setting) {
	typ := reflect.TypeFor[Params]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		add := func(v any) {
			all = append(all, setting{i, fmt.Sprint(f.Name, " ", v), func(p *Params) { reflect.ValueOf(p).Elem().Field(i).Set(reflect.ValueOf(v)) }})
		}
		switch f.Type.Kind() {
		case reflect.Float64:
			for _, v := range hostileReals {
				add(v)
			}
		case reflect.Int:
			for _, v := range hostileWholes {
				add(v)
			}
		case reflect.Uint64:
			add(uint64(0))
			add(uint64(math.MaxUint64))
		case reflect.Bool:
			add(true)
		case reflect.Map:
			for _, v := range append(hostileReals, -100) {
				add(map[int32]float64{3: v})
				add(map[int32]float64{0: v, 1: -v, 2: v})
			}
			add(map[int32]float64{-1: 1})
			add(map[int32]float64{math.MaxInt32: 1})
		case reflect.Slice:
			for _, v := range []any{[]int32{}, []int32{0, 1, 2}, []int32{-1}, []int32{math.MaxInt32}, []string{}, []string{"xtc", "temperature", "penalties"}, []string{"nonsense"}} {
				if reflect.TypeOf(v) == f.Type {
					add(v)
				}
			}
		default:
			t.Fatalf("Params.%s is a %v: give it hostile values here", f.Name, f.Type)
		}
	}
	return all
}

// hostileRows are rows of n logits.
func hostileRows(n int) map[string][]float32 {
	shapes := map[string]func(i int) float32{
		"flat":   func(int) float32 { return 1.5 },
		"bell":   func(i int) float32 { return float32(math.Sin(float64(i * i))) },
		"peaked": func(i int) float32 { return map[bool]float32{true: 60}[i == 7] - float32(i)/8 },
		"one":    func(i int) float32 { return map[bool]float32{true: 1, false: float32(negInf)}[i == n/2] },
		"holes":  func(i int) float32 { return map[bool]float32{true: float32(negInf), false: float32(i % 9)}[i%3 == 0] },
		"huge": func(i int) float32 {
			return []float32{math.MaxFloat32, -math.MaxFloat32, 3e38, 0, 1e-45, -1e-45, float32(negInf)}[i%7]
		},
	}
	rows := map[string][]float32{}
	for name, shape := range shapes {
		rows[name] = make([]float32, n)
		for i := range n {
			rows[name][i] = shape(i)
		}
	}
	return rows
}

// hostility tries settings on rows and counts what became of them.
type hostility struct {
	t                 *testing.T
	w                 *Workspace
	rows              map[string][]float32
	draws             int // for each set of options, over all rows
	refused, answered int
	d                 Dist
	probs             []Logprob
}

func newHostility(t *testing.T, vocab, draws int) *hostility {
	return &hostility{t: t, w: NewWorkspace(vocab), rows: hostileRows(vocab), draws: draws}
}

// try wants a refusal that names an option, or answers that are distributions.
func (h *hostility) try(what string, p Params) {
	watch := time.AfterFunc(10*time.Minute, func() { panic(what + ": it does not end") }) // in an emulator on a busy machine it takes a while
	defer watch.Stop()
	s, err := h.w.New(p)
	if err != nil {
		var pe *ParamError
		if !errors.As(err, &pe) || pe.Field == "" || pe.Want == "" {
			h.t.Fatalf("%s: %v does not say what would be right", what, err)
		}
		h.refused++
		return
	}
	h.answered++
	for name, row := range h.rows {
		s.SetState(2 * p.MirostatTau)
		history := append(make([]int32, 0, 80), 1, 2, 7, 1, 2, 7, 1, 2)
		for range (h.draws + len(h.rows) - 1) / len(h.rows) {
			id, err := h.draw(s, row, history)
			if err != nil {
				h.t.Fatalf("%s, logits %q, %d tokens: %v", what, name, len(history), err)
			}
			history = append(history, id)
		}
	}
}

// draw chooses a token and says what is wrong with its distribution.
func (h *hostility) draw(s *Sampler, row []float32, history []int32) (int32, error) {
	if err := s.Dist(&h.d, row, history); err != nil {
		return 0, err
	}
	sum := 0.0
	for i, p := range h.d.P {
		if !(p > 0 && p <= 1) || i > 0 && h.d.IDs[i] <= h.d.IDs[i-1] {
			return 0, fmt.Errorf("token %d has probability %v", h.d.IDs[i], p)
		}
		sum += p
	}
	if !(math.Abs(sum-1) < 1e-9) {
		return 0, fmt.Errorf("%d probabilities sum up to %v", len(h.d.P), sum)
	}
	before := s.State()
	id, err := s.Sample(row, history)
	if err != nil {
		return 0, err
	}
	if h.d.Prob(id) == 0 || float64(row[id]) == negInf {
		return 0, fmt.Errorf("token %d was drawn, which cannot be", id)
	}
	after := s.State()
	defer s.SetState(after)
	s.SetState(before)
	if h.probs, err = s.Logprobs(h.probs, row, history, id, 5); err != nil {
		return 0, err
	}
	for _, l := range h.probs {
		if !(l.Logprob <= 1e-12) {
			return 0, fmt.Errorf("the log probability of token %d is %v", l.ID, l.Logprob)
		}
	}
	if math.IsInf(h.probs[0].Logprob, -1) && s.p.LogprobsAfter || !(math.Abs(after) <= math.MaxFloat64) {
		return 0, fmt.Errorf("log probability %v of token %d, state %v", h.probs[0].Logprob, id, after)
	}
	return id, nil
}

// hostileBases are settings beside which others are tried: nothing else on, and everything.
func hostileBases() map[string]Params {
	all := Default()
	everything(&all)
	all.XTCProbability, all.LogprobsAfter = 1, true
	return map[string]Params{"alone": Default(), "with everything": all}
}

// TestHostileOptions gives every option values that nobody means, alone and two together: each is refused, or what is sampled is a
// distribution over tokens that may be chosen.
func TestHostileOptions(t *testing.T) {
	draws := 50
	if testing.Short() {
		draws = 10
	}
	h := newHostility(t, 70, draws)
	settings := hostileSettings(t)
	for base, p := range hostileBases() {
		var good []setting // with a bad one there is nothing to pair
		for _, a := range settings {
			p := p
			a.apply(&p)
			before := h.answered
			h.try(a.name+" "+base, p)
			if h.answered > before {
				good = append(good, a)
			}
		}
		if base != "alone" {
			continue
		}
		for i, a := range good {
			for _, b := range good[:i] {
				if p := p; a.field != b.field {
					b.apply(&p)
					a.apply(&p)
					h.try(b.name+", "+a.name, p)
				}
			}
		}
	}
	require.Greater(t, h.refused, 200)
	require.Greater(t, h.answered, 5000)
	t.Logf("%d refused, %d answered", h.refused, h.answered)
}

// TestHostileOptionsOfLongLists goes the ways of long lists.
func TestHostileOptionsOfLongLists(t *testing.T) {
	h := newHostility(t, 1<<14+37, 6)
	for base, p := range hostileBases() {
		for i, a := range hostileSettings(t) {
			if testing.Short() && i%4 != 0 {
				continue
			}
			p := p
			a.apply(&p)
			h.try(a.name+" "+base, p)
		}
	}
	require.Greater(t, h.answered, 50)
}
