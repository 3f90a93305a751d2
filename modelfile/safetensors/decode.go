package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/minio/simdjson-go"
)

// decode makes a tree of a document that scan accepts: nil, bool, int64, uint64 (above the range of int64), float64,
// string, []any and *Object.
func decode(data []byte) (any, error) {
	if simdjson.SupportedCPU() {
		return decodeSIMD(data)
	}
	return decodeStd(data)
}

// decodeStd decodes by encoding/json.
func decodeStd(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return stdValue(d)
}

func stdValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		return number(token.String())
	case json.Delim:
		if token == '{' {
			return stdObject(d)
		}
		return stdArray(d)
	}
	return token, nil
}

func stdArray(d *json.Decoder) (any, error) {
	all := []any{}
	for d.More() {
		v, err := stdValue(d)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	_, err := d.Token()
	return all, err
}

func stdObject(d *json.Decoder) (any, error) {
	o := &Object{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("key %v is not a string", key)
		}
		v, err := stdValue(d)
		if err != nil {
			return nil, err
		}
		o.add(name, v)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	return o, o.finish()
}

// decodeSIMD decodes by simdjson-go, which takes an array or an object as document, as ParseJSON does.
func decodeSIMD(data []byte) (any, error) {
	parsed, err := simdjson.Parse(data, nil)
	if err != nil {
		return nil, err
	}
	it := parsed.Iter()
	if tag := it.AdvanceInto(); tag != simdjson.TagRoot {
		return nil, fmt.Errorf("the document starts with a %s", tag)
	}
	return simdValue(&it, it.AdvanceInto())
}

// simdValue decodes the value whose tag was read last.
func simdValue(it *simdjson.Iter, tag simdjson.Tag) (any, error) {
	switch tag {
	case simdjson.TagNull:
		return nil, nil
	case simdjson.TagBoolTrue, simdjson.TagBoolFalse:
		return it.Bool()
	case simdjson.TagString:
		return it.String()
	case simdjson.TagInteger:
		return it.Int()
	case simdjson.TagUint:
		return it.Uint()
	case simdjson.TagFloat:
		return it.Float()
	case simdjson.TagArrayStart:
		return simdArray(it)
	case simdjson.TagObjectStart:
		return simdObject(it)
	}
	return nil, fmt.Errorf("want a value, got a %s", tag)
}

func simdArray(it *simdjson.Iter) (any, error) {
	all := []any{}
	for tag := it.AdvanceInto(); tag != simdjson.TagArrayEnd; tag = it.AdvanceInto() {
		v, err := simdValue(it, tag)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func simdObject(it *simdjson.Iter) (any, error) {
	o := &Object{}
	for tag := it.AdvanceInto(); tag != simdjson.TagObjectEnd; tag = it.AdvanceInto() {
		if tag != simdjson.TagString {
			return nil, fmt.Errorf("want a key, got a %s", tag)
		}
		key, err := it.String()
		if err != nil {
			return nil, err
		}
		v, err := simdValue(it, it.AdvanceInto())
		if err != nil {
			return nil, err
		}
		o.add(key, v)
	}
	return o, o.finish()
}
