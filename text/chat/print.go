package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// text is Python's str of a value; undefined prints as nothing.
func (r *run) text(v jinja.Value) (string, error) {
	if s, ok := str(v); ok {
		return s, nil
	}
	switch r.kind(v) {
	case kUndefined:
		return "", nil
	case kInt:
		return strconv.FormatInt(v.AsInt(), 10), nil
	}
	var b strings.Builder
	err := r.repr(&b, v, 0)
	return b.String(), err
}

// repr writes Python's repr of a value and pays for it.
func (r *run) repr(b *strings.Builder, v jinja.Value, depth int) error {
	if depth > maxValueDepth {
		return errNest
	}
	before := b.Len()
	switch r.kind(v) {
	case kUndefined:
		b.WriteString("Undefined")
	case kNone:
		b.WriteString("None")
	case kBool:
		if v.AsBool() {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case kInt:
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case kBig:
		digits, _ := bigDigits(v)
		b.WriteString(digits)
	case kFloat:
		b.WriteString(floatRepr(v.AsFloat()))
	case kStr:
		if err := r.alloc(len(v.AsString())); err != nil {
			return err
		}
		b.WriteString(strRepr(v.AsString()))
	case kMarkup:
		s, _ := str(v)
		b.WriteString("Markup(" + strRepr(s) + ")")
	case kList, kTuple:
		return r.listRepr(b, v.AsList(), depth)
	case kDict, kNamespace:
		return r.dictRepr(b, v, depth)
	case kFunc:
		fmt.Fprintf(b, "<function %s>", v.AsCallable().Name)
	}
	return r.alloc(b.Len() - before)
}

func (r *run) listRepr(b *strings.Builder, l *jinja.List, depth int) error {
	before, after := "[", "]"
	switch r.tags[l] {
	case tagTuple:
		before, after = "(", ")"
		if len(l.Items) == 1 {
			after = ",)"
		}
	case tagItems:
		before, after = "dict_items([", "])"
	case tagKeys:
		before, after = "dict_keys([", "])"
	case tagValues:
		before, after = "dict_values([", "])"
	}
	b.WriteString(before)
	for i, item := range l.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := r.repr(b, item, depth+1); err != nil {
			return err
		}
	}
	b.WriteString(after)
	return r.alloc(2*len(l.Items) + 2)
}

func (r *run) dictRepr(b *strings.Builder, v jinja.Value, depth int) error {
	d, before, after := v.AsDict(), "{", "}"
	if r.kind(v) == kNamespace {
		before, after = "<Namespace {", "}>"
	}
	b.WriteString(before)
	for i, key := range d.Keys {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := r.repr(b, keyValue(key), depth+1); err != nil {
			return err
		}
		b.WriteString(": ")
		if err := r.repr(b, d.Data[key], depth+1); err != nil {
			return err
		}
	}
	b.WriteString(after)
	return r.alloc(4*len(d.Keys) + 2)
}

// floatRepr is Python's repr of a float: the shortest digits that read back as the same value.
func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// strRepr is Python's repr of a string: single quotes unless only they occur inside, escapes for what is not printable.
func strRepr(s string) string {
	quote := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// jsonStyle is how json.dumps was asked to write.
type jsonStyle struct {
	item, key string  // separators
	indent    *string // nil writes one line
	sortKeys  bool
	ascii     bool
}

// writeJSON writes a value as Python's json.dumps does.
func (r *run) writeJSON(b *strings.Builder, v jinja.Value, s *jsonStyle, depth int) error {
	if depth > maxValueDepth {
		return errNest
	}
	before := b.Len()
	switch k := r.kind(v); k {
	case kNone:
		b.WriteString("null")
	case kBool:
		b.WriteString(strconv.FormatBool(v.AsBool()))
	case kFloat:
		b.WriteString(jsonFloat(v.AsFloat()))
	case kInt, kBig:
		text, _ := r.text(v)
		b.WriteString(text)
	case kStr, kMarkup:
		text, _ := str(v)
		if err := r.alloc(len(text)); err != nil {
			return err
		}
		jsonString(b, text, s.ascii)
	case kList, kTuple:
		items := v.AsList().Items
		return r.jsonItems(b, "[", "]", len(items), s, depth, func(i int) error {
			return r.writeJSON(b, items[i], s, depth+1)
		})
	case kDict:
		return r.jsonDict(b, v.AsDict(), s, depth)
	default:
		return pyErr("Object of type %s is not JSON serializable", k)
	}
	return r.alloc(b.Len() - before)
}

func (r *run) jsonDict(b *strings.Builder, d *jinja.Dict, s *jsonStyle, depth int) error {
	keys := d.Keys
	if s.sortKeys {
		values := make([]jinja.Value, len(keys))
		for i, key := range keys {
			values[i] = keyValue(key)
		}
		sorted, err := r.sorted(values, values, false)
		if err != nil {
			return err
		}
		keys = make([]string, len(sorted))
		for i, v := range sorted {
			if keys[i], err = r.key(v); err != nil {
				return err
			}
		}
	}
	return r.jsonItems(b, "{", "}", len(keys), s, depth, func(i int) error {
		name, err := r.jsonKey(keyValue(keys[i]))
		if err != nil {
			return err
		}
		jsonString(b, name, s.ascii)
		b.WriteString(s.key)
		if err := r.alloc(len(name) + 2 + len(s.key)); err != nil {
			return err
		}
		return r.writeJSON(b, d.Data[keys[i]], s, depth+1)
	})
}

// jsonKey is the text of a dict key in JSON.
func (r *run) jsonKey(key jinja.Value) (string, error) {
	switch r.kind(key) {
	case kNone:
		return "null", nil
	case kFloat:
		return jsonFloat(key.AsFloat()), nil
	}
	return r.text(key)
}

// jsonItems writes n items between brackets with separators and indentation.
func (r *run) jsonItems(b *strings.Builder, open, end string, n int, s *jsonStyle, depth int, item func(int) error) error {
	if err := r.allocTimes(n+1, len(s.item)+2); err != nil {
		return err
	}
	b.WriteString(open)
	for i := range n {
		if i > 0 {
			b.WriteString(s.item)
		}
		if err := r.jsonNewline(b, s, depth+1); err != nil {
			return err
		}
		if err := item(i); err != nil {
			return err
		}
	}
	if n > 0 {
		if err := r.jsonNewline(b, s, depth); err != nil {
			return err
		}
	}
	b.WriteString(end)
	return nil
}

func (r *run) jsonNewline(b *strings.Builder, s *jsonStyle, depth int) error {
	if s.indent == nil {
		return nil
	}
	if err := r.allocTimes(depth, len(*s.indent)); err != nil {
		return err
	}
	b.WriteByte('\n')
	for range depth {
		b.WriteString(*s.indent)
	}
	return nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

func jsonString(b *strings.Builder, s string, ascii bool) {
	const short = "\bb\ff\nn\rr\tt\"\"\\\\"
	b.WriteByte('"')
	for i, c := range s {
		at := -1
		if c < utf8.RuneSelf {
			at = strings.IndexByte(short, byte(c))
		}
		switch {
		case at >= 0 && at%2 == 0:
			b.WriteByte('\\')
			b.WriteByte(short[at+1])
		case c < 0x20 || ascii && c >= 0x7f && c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		case ascii && c >= 0x10000:
			c -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			_, size := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+size])
		}
	}
	b.WriteByte('"')
}
