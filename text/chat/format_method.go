package chat

import (
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// formatArgs are the arguments of str.format.
type formatArgs struct {
	args []jinja.Value
	kw   map[string]jinja.Value
	auto int // index of the next {}
}

// strFormat is str.format: {} {0} {name.attribute[item]!r:spec}, and {{ }} for braces.
func strFormat(r *run, self jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	s, _ := str(self)
	a := &formatArgs{args: args, kw: kw}
	text, err := r.formatText(s, a, 0)
	return jinja.NewString(text), err
}

func (r *run) formatText(s string, a *formatArgs, depth int) (string, error) {
	var b strings.Builder
	for s != "" {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			at = len(s)
		}
		if err := r.alloc(at); err != nil {
			return "", err
		}
		b.WriteString(s[:at])
		if s = s[at:]; s == "" {
			break
		}
		if len(s) > 1 && s[1] == s[0] {
			b.WriteByte(s[0])
			s = s[2:]
			continue
		}
		end := fieldEnd(s)
		if s[0] == '}' || end < 0 || depth > 1 {
			return "", pyErr("single '%c' encountered in format string", s[0])
		}
		text, err := r.field(s[1:end], a, depth)
		if err != nil {
			return "", err
		}
		if err := r.alloc(len(text)); err != nil {
			return "", err
		}
		b.WriteString(text)
		s = s[end+1:]
	}
	return b.String(), nil
}

// fieldEnd is the offset of the brace that closes the one s starts with, or -1.
func fieldEnd(s string) int {
	open := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats one replacement field.
func (r *run) field(f string, a *formatArgs, depth int) (string, error) {
	name, format, _ := strings.Cut(f, ":")
	name, conversion, converted := strings.Cut(name, "!")
	v, err := r.fieldValue(name, a)
	if err != nil {
		return "", err
	}
	if converted {
		var b strings.Builder
		switch conversion {
		case "s":
			text, err := r.text(v)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		case "r", "a":
			if err := r.repr(&b, v, 0); err != nil {
				return "", err
			}
		default:
			return "", pyErr("unknown conversion '%s' in format string", conversion)
		}
		v = jinja.NewString(b.String())
	}
	if strings.Contains(format, "{") {
		if format, err = r.formatText(format, a, depth+1); err != nil {
			return "", err
		}
	}
	return r.format(v, format)
}

// fieldValue finds the argument that a field names, with attributes and items.
func (r *run) fieldValue(name string, a *formatArgs) (jinja.Value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	if first == "" {
		first = strconv.Itoa(a.auto)
		a.auto++
	}
	var v jinja.Value
	if i, err := strconv.Atoi(first); err == nil {
		if i < 0 || i >= len(a.args) {
			return v, pyErr("format names argument %d of %d", i, len(a.args))
		}
		v = a.args[i]
	} else {
		var ok bool
		if v, ok = a.kw[goName(first)]; !ok {
			return v, pyErr("format names the argument '%s', which is missing", first)
		}
	}
	for rest != "" {
		var err error
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			v, err = r.attr(v, rest[1:end])
			rest = rest[end:]
		} else {
			end := strings.IndexByte(rest, ']')
			if rest[0] != '[' || end < 0 {
				return v, pyErr("missing ']' in format string")
			}
			key := jinja.NewString(rest[1:end])
			if i, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil {
				key = jinja.NewInt(i)
			}
			v, err = r.item(v, key)
			rest = rest[end+1:]
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// format is Python's format(v, spec).
func (r *run) format(v jinja.Value, format string) (string, error) {
	if format == "" {
		return r.text(v)
	}
	s, err := parseSpec(format)
	if err != nil {
		return "", err
	}
	if isNumber(r.kind(v)) && s.verb != 's' {
		return r.number(s, v)
	}
	text, err := r.text(v)
	if err != nil {
		return "", err
	}
	if s.verb != 0 && s.verb != 's' {
		return "", pyErr("unknown format code '%c' for object of type '%s'", s.verb, r.kind(v))
	}
	return s.padText(text), r.alloc(4 * s.width)
}

func parseSpec(f string) (spec, error) {
	s := spec{fill: ' ', prec: -1}
	runes := []rune(f)
	switch {
	case len(runes) > 1 && strings.ContainsRune("<>^=", runes[1]):
		s.fill, s.align = runes[0], byte(runes[1])
		runes = runes[2:]
	case len(runes) > 0 && strings.ContainsRune("<>^=", runes[0]):
		s.align = byte(runes[0])
		runes = runes[1:]
	}
	f = string(runes)
	if f != "" && strings.IndexByte("+- ", f[0]) >= 0 {
		s.sign, f = f[0], f[1:]
	}
	if strings.HasPrefix(f, "#") {
		s.alt, f = true, f[1:]
	}
	if strings.HasPrefix(f, "0") && s.align == 0 {
		s.align, s.fill = '=', '0'
	}
	var err error
	if s.width, f, err = formatInt(f); err != nil {
		return s, err
	}
	if f != "" && (f[0] == ',' || f[0] == '_') {
		s.group, f = f[0], f[1:]
	}
	if strings.HasPrefix(f, ".") {
		if s.prec, f, err = formatInt(f[1:]); err != nil {
			return s, err
		}
	}
	if len(f) > 1 {
		return s, pyErr("invalid format specifier '%s'", f)
	}
	if f != "" {
		s.verb = f[0]
	}
	return s, nil
}
