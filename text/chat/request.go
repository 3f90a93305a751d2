package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// maxIntDigits bounds an integer in JSON.
const maxIntDigits = 600

// Decode reads one JSON value. Objects keep the order of their keys, integers stay exact, 1.0 stays a float.
func Decode(data []byte) (jinja.Value, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decode(dec, 0)
	if err == nil {
		if _, err = dec.Token(); err == io.EOF {
			return v, nil
		}
		if err == nil {
			err = errors.New("more than one value")
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return v, fmt.Errorf("JSON at byte %d: %w", dec.InputOffset(), err)
}

func decode(dec *json.Decoder, depth int) (jinja.Value, error) {
	if depth > maxValueDepth {
		return jinja.Value{}, fmt.Errorf("lists and objects nest deeper than %d", maxValueDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return jinja.Value{}, err
	}
	switch t := token.(type) {
	case nil:
		return jinja.None(), nil
	case bool:
		return jinja.NewBool(t), nil
	case string:
		return jinja.NewString(t), nil
	case json.Number:
		return decodeNumber(string(t))
	case json.Delim:
		if t == '{' {
			return decodeObject(dec, depth)
		}
	}
	var items []jinja.Value
	for dec.More() {
		v, err := decode(dec, depth+1)
		if err != nil {
			return v, err
		}
		items = append(items, v)
	}
	_, err = dec.Token()
	return jinja.NewList(items), err
}

func decodeObject(dec *json.Decoder, depth int) (jinja.Value, error) {
	d := jinja.NewDict()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return d, err
		}
		name, ok := key.(string)
		if !ok {
			return d, fmt.Errorf("key %v is not a string", key)
		}
		v, err := decode(dec, depth+1)
		if err != nil {
			return d, err
		}
		d.AsDict().Set(name, v)
	}
	_, err := dec.Token()
	return d, err
}

func decodeNumber(s string) (jinja.Value, error) {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return jinja.NewInt(i), nil
		}
		if len(s) > maxIntDigits {
			return jinja.Value{}, fmt.Errorf("integer has %d digits, at most %d are accepted", len(s), maxIntDigits)
		}
		return newBig(s), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return jinja.Value{}, err
	}
	return jinja.NewFloat(f), nil
}

// ParseRequest reads {"messages": [...], "tools": [...], "documents": [...], "add_generation_prompt": true, ...}. Further
// keys become variables of the template. Messages may be an empty list here; Validate refuses it.
func ParseRequest(data []byte) (Input, error) {
	var in Input
	v, err := Decode(data)
	if err != nil {
		return in, fmt.Errorf("request: %w", err)
	}
	if !v.IsDict() {
		return in, fmt.Errorf("request: is %s, an object is right", typeName(v))
	}
	d := v.AsDict()
	for _, key := range d.Keys {
		v := d.Data[key]
		switch key {
		case "messages":
			in.Messages = v
		case "tools":
			in.Tools = v
		case "documents":
			in.Documents = v
		case "add_generation_prompt":
			if !v.IsBool() && !v.IsNone() {
				return in, fmt.Errorf("request: add_generation_prompt is %s, true or false is right", typeName(v))
			}
			in.AddGenerationPrompt = v.IsTruthy()
		default:
			in.Vars = append(in.Vars, Var{Name: key, Value: v})
		}
	}
	if !in.Messages.IsList() {
		return in, fmt.Errorf("request: messages is %s, a list is right", typeName(in.Messages))
	}
	for i, m := range in.Messages.AsList().Items {
		if !m.IsDict() {
			return in, fmt.Errorf("request: messages[%d] is %s, an object is right", i, typeName(m))
		}
	}
	for name, v := range map[string]jinja.Value{"tools": in.Tools, "documents": in.Documents} {
		if given(v) && !v.IsList() {
			return in, fmt.Errorf("request: %s is %s, a list or null is right", name, typeName(v))
		}
	}
	return in, nil
}

// typeName says what a value is in the words of JSON, with the value where it is short.
func typeName(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return "missing"
	case v.IsNone():
		return "null"
	case v.IsBool():
		return strconv.FormatBool(v.AsBool())
	case v.IsInt():
		return "the number " + strconv.FormatInt(v.AsInt(), 10)
	case v.IsFloat():
		return "the number " + floatRepr(v.AsFloat())
	case v.IsString():
		s := v.AsString()
		if len(s) > 40 {
			s = strings.ToValidUTF8(s[:40], "") + "..."
		}
		return "the string " + strconv.Quote(s)
	case v.IsList():
		return fmt.Sprintf("a list of %d", v.AsList().Len())
	case v.IsDict():
		return "an object"
	}
	return "a number"
}
