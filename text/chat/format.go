package chat

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// spec is a format: [[fill]align][sign][#][0][width][,][.precision][type], or what of it a % conversion has.
type spec struct {
	fill  rune
	align byte // < > ^ or = for padding between sign and digits; 0 is the type's own
	sign  byte // + or space; 0 shows only minus
	alt   bool
	group byte // , or _ between thousands
	width int
	prec  int // -1 when not given
	verb  byte
}

// maxFormat bounds width and precision.
const maxFormat = 10_000

// formatInt reads digits at the start of s.
func formatInt(s string) (n int, rest string, err error) {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	if end > 0 {
		if n, err = strconv.Atoi(s[:end]); err != nil || n > maxFormat {
			return 0, s, pyErr("format width or precision %s is larger than %d", s[:end], maxFormat)
		}
	}
	return n, s[end:], nil
}

// percent is Python's format % values.
func (r *run) percent(format, values jinja.Value) (jinja.Value, error) {
	f, _ := str(format)
	args := percentArgs{r: r, one: values}
	if r.kind(values) == kTuple {
		args.items, args.tuple = values.AsList().Items, true
	}
	var b strings.Builder
	for {
		at := strings.IndexByte(f, '%')
		if at < 0 {
			b.WriteString(f)
			break
		}
		b.WriteString(f[:at])
		text, rest, err := r.conversion(f[at+1:], &args)
		if err != nil {
			return format, err
		}
		if err := r.alloc(at + len(text)); err != nil {
			return format, err
		}
		b.WriteString(text)
		f = rest
	}
	if args.left() {
		return format, pyErr("not all arguments converted during string formatting")
	}
	return jinja.NewString(b.String()), r.alloc(len(f))
}

// percentArgs hands out the values of a % format.
type percentArgs struct {
	r     *run
	one   jinja.Value
	tuple bool
	items []jinja.Value
	used  int
}

func (a *percentArgs) next() (jinja.Value, error) {
	a.used++
	switch {
	case a.tuple && a.used <= len(a.items):
		return a.items[a.used-1], nil
	case !a.tuple && a.used == 1:
		return a.one, nil
	}
	return jinja.Value{}, pyErr("not enough arguments for format string")
}

func (a *percentArgs) left() bool {
	if a.tuple {
		return a.used < len(a.items)
	}
	return a.used == 0 && a.r.kind(a.one) != kDict && a.r.kind(a.one) != kList
}

// conversion formats one conversion; f starts after its percent sign.
func (r *run) conversion(f string, args *percentArgs) (text, rest string, err error) {
	var v jinja.Value
	named := false
	if strings.HasPrefix(f, "(") {
		end := strings.IndexByte(f, ')')
		if end < 0 || r.kind(args.one) != kDict {
			return "", "", pyErr("format requires a mapping")
		}
		v, named = args.one.AsDict().Get(f[1:end])
		if !named {
			return "", "", pyErr("format names the key '%s', which is missing", f[1:end])
		}
		args.used++
		f = f[end+1:]
	}
	s := spec{fill: ' ', align: '>', prec: -1}
	for ; f != "" && strings.IndexByte("-+ 0#", f[0]) >= 0; f = f[1:] {
		switch f[0] {
		case '-':
			s.align, s.fill = '<', ' '
		case '0':
			if s.align != '<' {
				s.align, s.fill = '=', '0'
			}
		case '#':
			s.alt = true
		default:
			s.sign = f[0]
		}
	}
	if s.width, f, err = formatInt(f); err != nil {
		return "", "", err
	}
	if strings.HasPrefix(f, ".") {
		if s.prec, f, err = formatInt(f[1:]); err != nil {
			return "", "", err
		}
	}
	f = strings.TrimLeft(f, "hlL")
	if f == "" {
		return "", "", pyErr("incomplete format")
	}
	s.verb, f = f[0], f[1:]
	if s.verb == '%' {
		return "%", f, nil
	}
	if !named {
		if v, err = args.next(); err != nil {
			return "", "", err
		}
	}
	text, err = r.convert(s, v)
	return text, f, err
}

// convert formats a value for a % conversion.
func (r *run) convert(s spec, v jinja.Value) (string, error) {
	switch s.verb {
	case 's', 'r', 'a':
		text, err := r.text(v)
		if err == nil && s.verb != 's' {
			var b strings.Builder
			err = r.repr(&b, v, 0)
			text = b.String()
		}
		if s.align == '=' {
			s.align, s.fill = '>', ' '
		}
		return s.padText(text), err
	case 'c':
		if text, ok := str(v); ok && utf8.RuneCountInString(text) == 1 {
			return s.padText(text), nil
		}
		return r.number(s, v)
	case 'd', 'i', 'u':
		if f, ok := number(v); ok && v.IsFloat() {
			z := floatBig(f)
			if z == nil {
				return "", pyErr("cannot convert float %s to integer", floatRepr(f))
			}
			v, _ = bigValue(z)
		}
		s.verb = 'd'
	case 'x', 'X', 'o', 'e', 'E', 'f', 'F', 'g', 'G':
		if s.prec < 0 && strings.IndexByte("eEfFgG", s.verb) >= 0 {
			s.prec = 6
		}
	default:
		return "", pyErr("unsupported format character '%c'", s.verb)
	}
	return r.number(s, v)
}

// number formats a number by its type letter.
func (r *run) number(s spec, v jinja.Value) (string, error) {
	k := r.kind(v)
	if !isNumber(k) {
		return "", pyErr("%%%c format: a real number is required, not %s", s.verb, k)
	}
	if err := r.alloc(s.width + max(s.prec, 0) + 32); err != nil {
		return "", err
	}
	if strings.IndexByte("eEfFgG%", s.verb) >= 0 || k == kFloat {
		f, _ := number(v)
		return s.padNumber(s.floatDigits(f)), nil
	}
	z := toBig(v)
	digits := ""
	switch s.verb {
	case 'c':
		if !z.IsInt64() || z.Sign() < 0 || z.Int64() > utf8.MaxRune {
			return "", pyErr("%s is not a character", z)
		}
		return s.padText(string(rune(z.Int64()))), nil
	case 'x', 'X':
		digits = new(big.Int).Abs(z).Text(16)
		if s.alt {
			digits = "0x" + digits
		}
		if s.verb == 'X' {
			digits = strings.ToUpper(digits)
		}
	case 'o', 'b':
		base := map[byte]int{'o': 8, 'b': 2}[s.verb]
		digits = new(big.Int).Abs(z).Text(base)
		if s.alt {
			digits = "0" + string(s.verb) + digits
		}
	case 'd', 0, 'n':
		digits = new(big.Int).Abs(z).String()
		if digits = grouped(digits, s.group); s.prec > len(digits) {
			digits = strings.Repeat("0", s.prec-len(digits)) + digits
		}
	default:
		return "", pyErr("unknown format code '%c' for an integer", s.verb)
	}
	if z.Sign() < 0 {
		digits = "-" + digits
	}
	return s.padNumber(digits), nil
}

// floatDigits formats a float with its minus sign.
func (s *spec) floatDigits(f float64) string {
	verb := s.verb
	switch {
	case verb == 0 && s.prec < 0:
		verb = 0
	case verb == 0 || verb == 'n':
		verb = 'g'
	case verb == 'F':
		verb = 'f'
	case verb == '%':
		verb, f = 'f', f*100
	}
	prec := s.prec
	if prec < 0 {
		prec = 6
	}
	if prec == 0 && (verb == 'g' || verb == 'G') {
		prec = 1
	}
	text := floatRepr(f)
	if verb != 0 && text != "nan" && !strings.HasSuffix(text, "inf") {
		text = strconv.FormatFloat(f, verb, prec, 64)
		if s.verb == 0 && !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
	}
	if s.group != 0 {
		whole, rest := text, ""
		if at := strings.IndexAny(text, ".eE"); at >= 0 {
			whole, rest = text[:at], text[at:]
		}
		minus := strings.HasPrefix(whole, "-")
		text = grouped(strings.TrimPrefix(whole, "-"), s.group) + rest
		if minus {
			text = "-" + text
		}
	}
	if s.verb == '%' {
		text += "%"
	}
	return text
}

// grouped puts a mark between thousands.
func grouped(digits string, mark byte) string {
	if mark == 0 || len(digits) <= 3 {
		return digits
	}
	var b strings.Builder
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(mark)
		}
		b.WriteByte(digits[i])
	}
	return b.String()
}

// padNumber adds the sign that was asked for and pads; = pads after the sign.
func (s *spec) padNumber(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	} else if s.sign == '+' || s.sign == ' ' {
		sign = string(s.sign)
	}
	if s.align == '=' {
		n := s.width - utf8.RuneCountInString(sign) - utf8.RuneCountInString(digits)
		return sign + strings.Repeat(string(s.fill), max(n, 0)) + digits
	}
	wide := *s
	wide.prec = -1
	if wide.align == 0 {
		wide.align = '>'
	}
	return wide.padText(sign + digits)
}

// padText cuts a text to the precision and pads it to the width.
func (s *spec) padText(text string) string {
	count := utf8.RuneCountInString(text)
	if s.prec >= 0 && s.prec < count {
		text, count = text[:runeOffset(text, s.prec, count)], s.prec
	}
	n := max(s.width-count, 0)
	before := 0
	switch s.align {
	case '>':
		before = n
	case '^':
		before = n / 2
	}
	return strings.Repeat(string(s.fill), before) + text + strings.Repeat(string(s.fill), n-before)
}
