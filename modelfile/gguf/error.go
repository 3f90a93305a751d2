package gguf

import (
	"fmt"
	"strconv"
)

// Error says what is wrong with a file and where.
type Error struct {
	File   string // path, or the name given to Parse
	Key    string // the metadata key concerned, or ""
	Tensor string // the tensor concerned, or ""
	Offset int64  // byte of the file where the bad value lies; -1 when it has no place of its own
	Value  any    // the value found, or nil
	Reason string // what is wrong and what would be right
}

// Error gives file, key or tensor, offset and reason in one line. Names from the file are quoted and cut to 80 bytes.
func (e *Error) Error() string {
	where := ""
	switch {
	case e.Key != "":
		where = " key " + quote(e.Key) + ":"
	case e.Tensor != "":
		where = " tensor " + quote(e.Tensor) + ":"
	}
	if e.Offset >= 0 {
		where += fmt.Sprintf(" at byte %d:", e.Offset)
	}
	value := ""
	if s, ok := e.Value.(string); ok {
		value = " " + quote(s)
	} else if e.Value != nil {
		value = fmt.Sprintf(" %v", e.Value)
	}
	return e.File + ":" + where + value + " " + e.Reason
}

func quote(s string) string {
	if len(s) > 80 {
		s = s[:77] + "..."
	}
	return strconv.Quote(s)
}
