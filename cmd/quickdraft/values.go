package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"quickdraft/sample"
)

// Options take only values that can be meant: each checks its own, so that a wrong one is known before anything is done. What
// depends on other options or on the model is checked where these are known.

// noLimit is the bound of whole numbers without another one: sums and products of a few of them do not overflow.
const noLimit = 1 << 30

// whole is an option with a whole number for a value.
type whole[T int | int64] struct {
	p           *T
	least, most T
}

// String is the value, as pflag wants it.
func (v *whole[T]) String() string { return fmt.Sprint(*v.p) }

// Type is the kind of value that the help shows.
func (v *whole[T]) Type() string { return "int" }

// Set checks the value and keeps it.
func (v *whole[T]) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err == nil && n >= int64(v.least) && n <= int64(v.most):
		*v.p = T(n)
		return nil
	case v.most >= noLimit && n <= int64(v.most):
		return fmt.Errorf("want a whole number, %d or more", v.least)
	}
	return fmt.Errorf("want a whole number from %d to %d", v.least, v.most)
}

func intVar(fl *pflag.FlagSet, p *int, name, short string, def, least, most int, usage string) {
	*p = def
	fl.VarP(&whole[int]{p, least, most}, name, short, usage)
}

// real is an option with a number for a value.
type real struct {
	p           *float64
	least, most float64
	above       bool // least itself is wrong
}

// String is the value, as pflag wants it.
func (v *real) String() string { return strconv.FormatFloat(*v.p, 'g', -1, 64) }

// Type is the kind of value that the help shows.
func (v *real) Type() string { return "float" }

// Set checks the value and keeps it.
func (v *real) Set(s string) error {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "_xX") || !(x >= v.least && x <= v.most) || v.above && x == v.least {
		low := "from"
		if v.above {
			low = "above"
		}
		return fmt.Errorf("want a number %s %v to %v", low, v.least, v.most)
	}
	*v.p = x
	return nil
}

func realVar(fl *pflag.FlagSet, p *float64, name string, def, least, most float64, usage string) {
	*p = def
	fl.Var(&real{p, least, most, false}, name, usage)
}

// wholes is an option with a list of whole numbers for a value.
type wholes struct {
	p           *[]int
	least, most int
	given       bool
}

// String is the list, as pflag wants it.
func (v *wholes) String() string {
	if len(*v.p) == 0 {
		return ""
	}
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(*v.p), "[]"), " ", ",")
}

// Type is the kind of value that the help shows.
func (v *wholes) Type() string { return "ints" }

// Set checks the list and keeps it; an option that is given again adds to what it was given.
func (v *wholes) Set(s string) error {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		var n int
		if err := (&whole[int]{&n, v.least, v.most}).Set(strings.TrimSpace(part)); err != nil {
			return fmt.Errorf("want whole numbers from %d to %d, separated by commas", v.least, v.most)
		}
		list = append(list, n)
	}
	if v.given {
		list = append(slices.Clone(*v.p), list...)
	}
	*v.p, v.given = list, true
	return nil
}

// words is an option with a text for a value that check accepts; its errors say what is right.
type words struct {
	p     *string
	check func(s string) error
}

// String is the value, as pflag wants it.
func (v *words) String() string { return *v.p }

// Type is the kind of value that the help shows.
func (v *words) Type() string { return "string" }

// Set checks the value and keeps it.
func (v *words) Set(s string) error {
	if err := v.check(s); err != nil {
		return err
	}
	*v.p = s
	return nil
}

func wordsVar(fl *pflag.FlagSet, p *string, name, short, def string, check func(string) error, usage string) {
	*p = def
	fl.VarP(&words{p, check}, name, short, usage)
}

// oneOf accepts some values.
func oneOf(values ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(values, s) {
			return nil
		}
		last := len(values) - 1
		return fmt.Errorf("want %s or %s", strings.Join(values[:last], ", "), values[last])
	}
}

// some accepts everything but nothing, which is what a variable that is not set leaves on a command line.
func some(what string) func(string) error {
	return func(s string) error {
		if s == "" {
			return fmt.Errorf("want %s", what)
		}
		return nil
	}
}

// anything accepts every text.
func anything(string) error { return nil }

// once is an option that takes one value: another one after it is wrong, the same is not.
type once struct {
	pflag.Value
	given bool
}

// Set sets the option.
func (v *once) Set(s string) error {
	before := v.String()
	if err := v.Value.Set(s); err != nil {
		return err
	}
	if v.given && v.String() != before {
		return fmt.Errorf("given before as %q, want one value", before)
	}
	v.given = true
	return nil
}

// span is an option with a length of time for a value.
type span struct{ p *time.Duration }

// String is the value, as pflag wants it.
func (v *span) String() string { return v.p.String() }

// Type is the kind of value that the help shows.
func (v *span) Type() string { return "duration" }

// Set checks the value and keeps it.
func (v *span) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > time.Hour {
		return errors.New("want a length of time from 0 to 1h, like 200ms")
	}
	*v.p = d
	return nil
}

// flagError makes a usage error of what is wrong with an option: its name, its value and what is right.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return &usageError{err}
	}
	f := invalid.GetFlag()
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	cause := invalid.Unwrap()
	var number *strconv.NumError
	if f.Value.Type() == "bool" && errors.As(cause, &number) {
		cause = errors.New("want true or false")
	}
	return &usageError{fmt.Errorf("%s %q: %w", name, invalid.GetValue(), cause)}
}

// maxSeed is the largest random seed.
const maxSeed = math.MaxInt64

// addTemperature registers --temp with the sampler's range.
func addTemperature(fl *pflag.FlagSet, p *float64, def float64, usage string) {
	*p = def
	fl.Var(&temperature{real{p, 0, 1e9, false}}, "temp", usage)
}

// temperature is the option --temp: 0, or a number with which logits can be divided.
type temperature struct{ real }

// Set checks the value and keeps it.
func (v *temperature) Set(s string) error {
	p, x := sample.Default(), *v.p
	if err := v.real.Set(s); err != nil {
		return err
	}
	if p.Temperature = *v.p; p.Validate(1) != nil {
		*v.p = x
		return errors.New("want 0 or a number from 1e-9 to 1e9")
	}
	return nil
}
