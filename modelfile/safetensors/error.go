package safetensors

import (
	"fmt"
	"strconv"
)

// Error says what is wrong with a file of a checkpoint and where.
type Error struct {
	File   string // path, or the name given to a Parse function
	Key    string // the JSON key concerned with the keys around it ("rope_scaling.factor"), or ""
	Tensor string // the tensor concerned, or ""
	Offset int64  // byte of the file where the bad value lies; -1 when it has no place of its own
	Value  any    // the value found, or nil; Null for JSON's null
	Reason string // what is wrong and what would be right
}

// Error gives file, tensor, key, offset and reason in one line. Names from the file are quoted and cut to 80 bytes.
func (e *Error) Error() string {
	where := ""
	if e.Tensor != "" {
		where += " tensor " + quote(e.Tensor) + ":"
	}
	if e.Key != "" {
		where += " key " + quote(e.Key) + ":"
	}
	if e.Offset >= 0 {
		where += fmt.Sprintf(" at byte %d:", e.Offset)
	}
	if e.Value != nil {
		where += " " + show(e.Value)
	}
	return e.File + ":" + where + " " + e.Reason
}

// Null is the Value of an Error about a JSON null.
type Null struct{}

// String returns "null".
func (Null) String() string { return "null" }

// found is the Value of an Error about a member of an object.
func found(v any, there bool) any {
	if there && v == nil {
		return Null{}
	}
	return v
}

// show prints a JSON value in a few words.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case *Object:
		return "an object"
	case []any:
		if len(v) > 8 {
			return fmt.Sprintf("an array of %d", len(v))
		}
	}
	s := fmt.Sprint(v)
	if len(s) > 80 {
		s = s[:77] + "..."
	}
	return s
}

func quote(s string) string {
	if len(s) > 80 {
		s = s[:77] + "..."
	}
	return strconv.Quote(s)
}
