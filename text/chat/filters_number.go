package chat

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

func filterAbs(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	f, ok := number(v)
	switch {
	case !ok:
		return v, pyErr("bad operand type for abs(): '%s'", r.kind(v))
	case v.IsFloat():
		return jinja.NewFloat(math.Abs(f)), nil
	}
	return bigValue(toBig(v).Abs(toBig(v)))
}

func filterInt(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	if s, ok := str(v); ok {
		base, err := r.intArg(a[1], "base", 10)
		if err != nil {
			return v, err
		}
		if err := r.spend(len(s) / 32); err != nil {
			return v, err
		}
		if i, ok := parseInteger(s, base); ok {
			return i, nil
		}
	} else if isNumber(r.kind(v)) && !v.IsFloat() {
		return bigValue(toBig(v))
	}
	if f, ok := toFloat(v); ok {
		if z := floatBig(f); z != nil {
			return bigValue(z)
		}
	}
	if a[0].IsUndefined() {
		return jinja.NewInt(0), nil
	}
	return a[0], nil
}

// toFloat is Python's float(v) of numbers and strings.
func toFloat(v jinja.Value) (float64, bool) {
	s, ok := str(v)
	if !ok {
		return number(v)
	}
	s = strings.TrimFunc(s, isSpace)
	if len(s) > 1000 || strings.ContainsAny(s, "xXpP_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

func filterFloat(_ *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	if f, ok := toFloat(v); ok {
		return jinja.NewFloat(f), nil
	}
	if a[0].IsUndefined() {
		return jinja.NewFloat(0), nil
	}
	return a[0], nil
}

func filterRound(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	f, ok := number(v)
	if !ok {
		return v, pyErr("type %s doesn't define __round__ method", r.kind(v))
	}
	digits, err := r.intArg(a[0], "precision", 0)
	if err != nil {
		return v, err
	}
	method := "common"
	if given(a[1]) {
		method, _ = str(a[1])
	}
	scale := math.Pow(10, float64(digits))
	switch method {
	case "ceil":
		return jinja.NewFloat(math.Ceil(f*scale) / scale), nil
	case "floor":
		return jinja.NewFloat(math.Floor(f*scale) / scale), nil
	case "common":
	default:
		return v, pyErr("method must be common, ceil or floor")
	}
	switch {
	case !v.IsFloat() && digits >= 0:
		return bigValue(toBig(v))
	case digits > 323 || math.IsNaN(f) || math.IsInf(f, 0):
		return v, nil
	case digits < 0:
		f = math.RoundToEven(f*scale) / scale
		if !v.IsFloat() {
			return bigValue(floatBig(f))
		}
		return jinja.NewFloat(f), nil
	}
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return jinja.NewFloat(f), nil
}

func filterWordcount(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	n, inWord := int64(0), false
	for _, c := range text {
		isWord := c == '_' || unicode.IsLetter(c) || unicode.IsNumber(c)
		if isWord && !inWord {
			n++
		}
		inWord = isWord
	}
	return jinja.NewInt(n), r.spend(len(text) / 32)
}

func filterURLEncode(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	quoted := func(v jinja.Value, query bool) (string, error) {
		text, err := r.text(v)
		if err != nil {
			return "", err
		}
		if err := r.allocTimes(len(text), 3); err != nil {
			return "", err
		}
		text = strings.ReplaceAll(url.QueryEscape(text), "%7E", "~")
		if !query {
			text = strings.ReplaceAll(strings.ReplaceAll(text, "+", "%20"), "%2F", "/")
		}
		return text, nil
	}
	k := r.kind(v)
	if k != kDict && k != kList && k != kTuple {
		text, err := quoted(v, false)
		return jinja.NewString(text), err
	}
	pairs := v
	if k == kDict {
		var err error
		if pairs, err = dictItems(r, v, nil); err != nil {
			return v, err
		}
	}
	var parts []string
	for _, p := range pairs.AsList().Items {
		pair, err := r.items(p)
		if err != nil || len(pair) != 2 {
			return v, pyErr("pairs are required")
		}
		name, err := quoted(pair[0], true)
		if err != nil {
			return v, err
		}
		value, err := quoted(pair[1], true)
		if err != nil {
			return v, err
		}
		parts = append(parts, name+"="+value)
	}
	return r.joinTexts(parts, "&")
}
