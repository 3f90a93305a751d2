package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"quickdraft/drafter"
)

// Methods that a request may ask for beside the engine's drafters.
const (
	methodAuto = "auto" // as the engine does
	methodNone = "none" // no guesses
)

// specFields are what a request may say about guesses.
type specFields struct {
	Method *string  `json:"method"`
	NMax   *int     `json:"n_max"`
	NMin   *int     `json:"n_min"`
	PMin   *float64 `json:"p_min"`
}

// Speculative takes over what a request's JSON says about guesses, in either of two spellings: an object of its own,
// {"speculative": {"method": "suffix", "n_max": 4, "n_min": 1, "p_min": 0.5}}, or llama.cpp's flat fields, {"speculative.n_max": 4}
// and likewise for the others. n_max 0 and method "none" mean no guesses; what is absent stays as it is, and fields of other names
// are ignored. The error names the field and what would be right; whether the engine has the method is for Submit to say.
func (r *Request) Speculative(body []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("speculative: the request is no JSON object: %w", err)
	}
	var own map[string]json.RawMessage
	if raw, ok := all["speculative"]; ok && json.Unmarshal(raw, &own) != nil {
		return fmt.Errorf(`speculative: %.60s, want an object like {"method": "suffix", "n_max": 4}`, oneLine(raw))
	}
	return r.takeFields(own, all)
}

// oneLine is JSON without the space between its tokens.
func oneLine(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "?" // what was parsed before is valid
	}
	return b.String()
}

// takeFields reads the fields of the object and the flat ones.
func (r *Request) takeFields(own, flat map[string]json.RawMessage) error {
	var f specFields
	for _, field := range []struct {
		name, want string
		to         any
	}{
		{"method", "a string", &f.Method}, {"n_max", "a whole number", &f.NMax}, {"n_min", "a whole number", &f.NMin}, {"p_min", "a number", &f.PMin},
	} {
		raw, inObject := own[field.name]
		other, isFlat := flat["speculative."+field.name]
		switch {
		case inObject && isFlat && string(raw) != string(other):
			return fmt.Errorf("speculative.%s: given twice, as %.60s and as %.60s", field.name, oneLine(raw), oneLine(other))
		case isFlat:
			raw = other
		case !inObject:
			continue
		}
		if err := json.Unmarshal(raw, field.to); err != nil {
			return fmt.Errorf("speculative.%s: %.60s, want %s", field.name, oneLine(raw), field.want)
		}
	}
	switch {
	case f.NMax != nil && (*f.NMax < 0 || *f.NMax > maxGuesses):
		return fmt.Errorf("speculative.n_max: %d, want 0 (no guesses) to %d", *f.NMax, maxGuesses)
	case f.NMin != nil && (*f.NMin < 0 || *f.NMin > maxGuesses):
		return fmt.Errorf("speculative.n_min: %d, want 0 to %d", *f.NMin, maxGuesses)
	case f.NMin != nil && f.NMax != nil && *f.NMin > *f.NMax:
		return fmt.Errorf("speculative.n_min: %d, want at most speculative.n_max, %d", *f.NMin, *f.NMax)
	case f.PMin != nil && !(*f.PMin >= 0 && *f.PMin <= 1):
		return fmt.Errorf("speculative.p_min: %v, want 0 to 1", *f.PMin)
	}
	f.apply(r)
	return nil
}

func (f *specFields) apply(r *Request) {
	if f.Method != nil {
		switch r.SpecMethod = *f.Method; *f.Method {
		case methodNone:
			r.SpecMethod, r.NoSpec = "", true
		case methodAuto:
			r.SpecMethod = ""
		}
	}
	if f.NMax != nil {
		r.SpecMax = *f.NMax
		r.NoSpec = r.NoSpec || *f.NMax == 0
	}
	if f.NMin != nil {
		r.SpecMin = *f.NMin
	}
	if f.PMin != nil {
		r.SpecPMin = *f.PMin
	}
}

// checkSpec reports what a request says about guesses that the engine cannot do, or that would change nothing.
func (e *Engine) checkSpec(r *Request) error {
	o := &e.opts.Spec
	for _, f := range []struct {
		what string
		n    int
		most int
	}{{"at most %d", r.SpecMax, maxGuesses}, {"at least %d", r.SpecMin, maxGuesses}, {"%d fixed", r.SpecFixed, o.NMax}} {
		if f.n < 0 || f.n > f.most {
			return fmt.Errorf("speculation: "+f.what+" guesses a round asked for, want 0 (as the engine does) to %d", f.n, f.most)
		}
	}
	if !(r.SpecPMin >= 0 && r.SpecPMin <= 1) {
		return fmt.Errorf("speculation: least probability %v, want 0 (as the engine does) to 1", r.SpecPMin)
	}
	asked := r.asked()
	switch {
	case asked == "":
		return nil
	case r.NoSpec:
		return fmt.Errorf("speculation: %s asked for, and no guesses; want one of both", asked)
	case r.SpecMethod != "":
		if err := e.checkMethod(r.SpecMethod); err != nil {
			return err
		}
	case o.Drafter == nil:
		return fmt.Errorf("speculation: %s asked for, but it is off in this engine", asked)
	}
	if err := checkTakes(cmp.Or(r.SpecMethod, e.control.name), r.SpecPMin, 0); err != nil {
		return err
	}
	return e.checkNumbers(r)
}

// asked names what a request says about guesses, "" when that is nothing but none.
func (r *Request) asked() string {
	switch {
	case r.SpecMethod != "":
		return fmt.Sprintf("method %q", r.SpecMethod)
	case r.SpecMax > 0:
		return fmt.Sprintf("at most %d guesses a round", r.SpecMax)
	case r.SpecMin > 0:
		return fmt.Sprintf("at least %d guesses a round", r.SpecMin)
	case r.SpecFixed > 0:
		return fmt.Sprintf("%d fixed guesses a round", r.SpecFixed)
	case r.SpecPMin > 0:
		return fmt.Sprintf("least probability %v", r.SpecPMin)
	}
	return ""
}

// checkNumbers compares a request's numbers of guesses with each other and with the engine's: no round would be verified that
// has fewer than the least number.
func (e *Engine) checkNumbers(r *Request) error {
	o := &e.opts.Spec
	most := cmp.Or(min(cmp.Or(r.SpecMax, o.NMax), o.NMax), o.NMax)
	if r.SpecFixed > most {
		return fmt.Errorf("speculation: %d fixed guesses a round asked for, and at most %d", r.SpecFixed, most)
	}
	if n := e.forced(&run{Request: *r}); n > 0 {
		most = min(most, n)
	}
	switch {
	case r.SpecMin > most:
		return fmt.Errorf("speculation: at least %d guesses a round asked for, where there are at most %d", r.SpecMin, most)
	case o.NMin > most:
		return fmt.Errorf("speculation: at most %d guesses a round asked for, where fewer than %d are not verified", most, o.NMin)
	}
	return nil
}

// checkMethod reports that the engine does not have a method.
func (e *Engine) checkMethod(method string) error {
	names := []string{methodAuto, methodNone}
	if e.opts.Spec.Drafter != nil {
		names = append(names, e.control.name)
		for _, part := range e.control.names {
			if !slices.Contains(names, part) {
				names = append(names, part)
			}
		}
	}
	if !slices.Contains(names[2:], method) {
		return fmt.Errorf("speculation: method %q asked for, want %s", method, strings.Join(names, ", "))
	}
	return nil
}

// checkTakes reports limits that a registered method would not keep to.
func checkTakes(method string, pMin float64, branch int) error {
	takes, known := drafter.TakesOf(method)
	switch {
	case !known:
	case pMin > 0 && !takes.MinP:
		return fmt.Errorf("speculation: least probability %v asked for, but %s does not know how probable its guesses are", pMin, method)
	case branch > 1 && !takes.Branch:
		return fmt.Errorf("speculation: %d guesses for one position asked for, but %s does not choose how many it makes", branch, method)
	}
	return nil
}

// arm numbers the part of a union that a request asks for, as drafter.Budget.Arm does; 0 for the only drafter and for all.
func (k *control) arm(method string) int {
	if k.union == nil || method == "" {
		return 0
	}
	return 1 + slices.Index(k.names, method)
}

// leastBelief is where r's drafts stop.
func (r *run) leastBelief(o *SpecOptions) float64 {
	if r.SpecPMin > 0 {
		return r.SpecPMin
	}
	return o.PMin
}
