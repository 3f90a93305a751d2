// Package sample turns a row of logits into a distribution and into a token id.
//
// It sees []float32 and ids only. All arithmetic is float64 with the functions of internal/detmath, every sum runs in the order of
// the ids, and every random number is a function of seed, position and purpose, so an answer depends neither on the machine nor on
// what else runs beside it.
//
// The steps run in the order of DefaultOrder unless Params.Order says otherwise; each works on what the one before left,
// renormalised. A token mask and the logit bias always come first.
package sample

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Params are the settings of one request. Start from Default: most fields are off at another value than zero. Counts go up to
// 2^31-1; Validate refuses values out of range, so that what is sampled is a distribution whatever the logits.
type Params struct {
	Temperature float64 // 0 is greedy: the highest logit after bias, penalties and DRY, the lowest id on a tie; or 1e-9 to 1e9
	TopK        int     // keep the k highest logits and all that equal the k-th; 0 is off
	TopP        float64 // keep the most probable tokens until their sum reaches p; above 0 to 1, which is off
	MinP        float64 // keep probabilities of at least MinP times the highest; 0 (off) to 1
	TypicalP    float64 // keep the tokens whose surprise is nearest to the entropy until their sum reaches p; above 0 to 1, which is off
	TopNSigma   float64 // keep logits within n standard deviations of the highest; 0 (off) to 1e9

	XTCProbability float64 // chance, drawn once a position, of dropping all tokens above XTCThreshold but the least probable; 0 (off) to 1
	XTCThreshold   float64 // 0 to 1

	// The repetition penalty counts prompt and answer, as Hugging Face, vLLM and llama.cpp have it; frequency and presence
	// penalties count the answer alone (Sampler.SetPrompt), as OpenAI's API and vLLM have it: what a user quotes or asks about
	// does not make its words dearer.
	RepeatPenalty    float64 // each distinct id of the window once: positive logits are divided, negative multiplied; 0.01 to 100, 1 is off
	RepeatLastN      int     // window of the three penalties in tokens; -1 is the whole history, 0 is off
	FrequencyPenalty float64 // subtracted once for each time the id occurs in the answer; -100 to 100
	PresencePenalty  float64 // subtracted once if the id occurs in the answer; -100 to 100

	DRYMultiplier    float64 // penalty DRYMultiplier * DRYBase^(n-DRYAllowedLength) for continuing a repeat of n tokens; 0 (off) to 1000
	DRYBase          float64 // 1 to 100
	DRYAllowedLength int     // repeats shorter than this are free; 1 or more
	DRYLastN         int     // window in tokens; -1 is the whole history, 0 is off
	DRYBreakers      []int32 // ids that no repeat crosses and that are never penalised

	Mirostat    int     // 2 replaces all truncating steps by Mirostat 2; 0 is off
	MirostatTau float64 // target surprise in bits; above 0 to 1000
	MirostatEta float64 // learning rate; above 0 to 1

	LogitBias map[int32]float64 // -100 to 100, added first; -100, or -Inf, forbids the token
	Seed      uint64
	Order     []string // step names; nil is DefaultOrder; a step left out is off

	LogprobsAfter bool // report log probabilities after all steps instead of those of the raw logits
}

// Default returns settings under which sampling follows the model's own distribution: temperature 1 and every other step off.
func Default() Params {
	return Params{
		Temperature: 1, TopP: 1, TypicalP: 1, XTCThreshold: 0.1,
		RepeatPenalty: 1, RepeatLastN: -1,
		DRYBase: 1.75, DRYAllowedLength: 2, DRYLastN: -1,
		MirostatTau: 5, MirostatEta: 0.1,
	}
}

// Greedy returns the settings that always choose the highest logit.
func Greedy() Params {
	p := Default()
	p.Temperature = 0
	return p
}

// ParamError is a setting outside its range.
type ParamError struct {
	Field string // name as on the command line and in the API, with underscores
	Value any
	Want  string
}

// Error names the setting, its value and what is right.
func (e *ParamError) Error() string {
	return fmt.Sprintf("%s is %v: it must be %s", e.Field, e.Value, e.Want)
}

// limits is one numeric setting and the values that are right for it.
type limits struct {
	field    string
	value    float64
	lo, hi   float64
	openLow  bool // lo itself is wrong
	orZero   bool // 0 is right too
	describe string
}

func (p *Params) limits() []limits {
	f := func(n int) float64 { return float64(n) }
	return []limits{
		{field: "temperature", value: p.Temperature, lo: 1e-9, hi: 1e9, orZero: true, describe: "0 (greedy) or between 1e-9 and 1e9"},
		{field: "top_k", value: f(p.TopK), lo: 0, hi: math.MaxInt32, describe: "0 (off) or the number of tokens to keep"},
		{field: "top_p", value: p.TopP, lo: 0, hi: 1, openLow: true, describe: "above 0 and at most 1 (off)"},
		{field: "min_p", value: p.MinP, lo: 0, hi: 1, describe: "between 0 (off) and 1"},
		{field: "typical_p", value: p.TypicalP, lo: 0, hi: 1, openLow: true, describe: "above 0 and at most 1 (off)"},
		{field: "top_n_sigma", value: p.TopNSigma, lo: 0, hi: 1e9, describe: "0 (off) or a positive number of standard deviations"},
		{field: "xtc_probability", value: p.XTCProbability, lo: 0, hi: 1, describe: "between 0 (off) and 1"},
		{field: "xtc_threshold", value: p.XTCThreshold, lo: 0, hi: 1, describe: "between 0 and 1 (above 0.5 it has no effect)"},
		{field: "repeat_penalty", value: p.RepeatPenalty, lo: 0.01, hi: 100, describe: "between 0.01 and 100; 1 is off"},
		{field: "repeat_last_n", value: f(p.RepeatLastN), lo: -1, hi: math.MaxInt32, describe: "-1 (the whole history), 0 (off) or a number of tokens"},
		{field: "frequency_penalty", value: p.FrequencyPenalty, lo: -100, hi: 100, describe: "between -100 and 100; 0 is off"},
		{field: "presence_penalty", value: p.PresencePenalty, lo: -100, hi: 100, describe: "between -100 and 100; 0 is off"},
		{field: "dry_multiplier", value: p.DRYMultiplier, lo: 0, hi: 1000, describe: "between 0 (off) and 1000"},
		{field: "dry_base", value: p.DRYBase, lo: 1, hi: 100, describe: "between 1 and 100"},
		{field: "dry_allowed_length", value: f(p.DRYAllowedLength), lo: 1, hi: math.MaxInt32, describe: "1 or more tokens"},
		{field: "dry_last_n", value: f(p.DRYLastN), lo: -1, hi: math.MaxInt32, describe: "-1 (the whole history), 0 (off) or a number of tokens"},
		{field: "mirostat_tau", value: p.MirostatTau, lo: 0, hi: 1e3, openLow: true, describe: "above 0 and at most 1000 bits"},
		{field: "mirostat_eta", value: p.MirostatEta, lo: 0, hi: 1, openLow: true, describe: "above 0 and at most 1"},
	}
}

// Validate checks every setting against its range and ids against a vocabulary of vocab tokens. The error is a *ParamError.
func (p *Params) Validate(vocab int) error {
	for _, l := range p.limits() {
		inside := l.value >= l.lo && l.value <= l.hi && !(l.openLow && l.value == l.lo)
		if !inside && !(l.orZero && l.value == 0) {
			return &ParamError{l.field, l.value, l.describe}
		}
	}
	if p.Mirostat != 0 && p.Mirostat != 2 {
		return &ParamError{"mirostat", p.Mirostat, "0 (off) or 2"}
	}
	want := fmt.Sprintf("a token id from 0 to %d", vocab-1)
	for _, id := range p.DRYBreakers {
		if id < 0 || int(id) >= vocab {
			return &ParamError{"dry_breakers", id, want}
		}
	}
	for _, id := range sortedKeys(p.LogitBias) {
		if id < 0 || int(id) >= vocab {
			return &ParamError{"logit_bias", id, want}
		}
		if b := p.LogitBias[id]; !(b >= -100 && b <= 100 || math.IsInf(b, -1)) {
			return &ParamError{fmt.Sprintf("logit_bias[%d]", id), b, "between -100 (never this token) and 100"}
		}
	}
	_, err := parseOrder(p.Order)
	return err
}

func sortedKeys(m map[int32]float64) []int32 {
	keys := make([]int32, 0, len(m))
	for id := range m {
		keys = append(keys, id)
	}
	slices.Sort(keys)
	return keys
}

// step is one transformation of the distribution.
type step uint8

const (
	stepPenalties step = iota
	stepDRY
	stepTemperature
	stepTopNSigma
	stepTopK
	stepTypicalP
	stepTopP
	stepMinP
	stepXTC
	nSteps
)

var stepNames = [nSteps]string{"penalties", "dry", "temperature", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc"}

var stepAliases = map[string]step{"temp": stepTemperature, "typ_p": stepTypicalP, "typical": stepTypicalP, "repetition_penalty": stepPenalties,
	"repeat_penalty": stepPenalties, "topk": stepTopK, "topp": stepTopP, "minp": stepMinP}

// DefaultOrder returns the names of all steps in the order in which they run.
func DefaultOrder() []string { return slices.Clone(stepNames[:]) }

// parseOrder turns step names into steps; dashes and underscores are the same.
func parseOrder(names []string) ([]step, error) {
	if names == nil {
		names = stepNames[:]
	}
	var order []step
	for _, raw := range names {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(raw)), "-", "_")
		s, ok := stepAliases[name]
		if i := slices.Index(stepNames[:], name); i >= 0 {
			s, ok = step(i), true
		}
		if !ok {
			return nil, &ParamError{"samplers", fmt.Sprintf("%q", raw), "made of " + strings.Join(stepNames[:], ", ")}
		}
		if slices.Contains(order, s) {
			return nil, &ParamError{"samplers", fmt.Sprintf("%q twice", raw), "a list that names each step once"}
		}
		order = append(order, s)
	}
	return order, nil
}
