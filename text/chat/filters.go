package chat

import (
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

var filters map[string]*builtin

func init() {
	length := &builtin{fn: filterLength}
	fallback := &builtin{params: []string{"default_value", "boolean"}, fn: filterDefault}
	escaped := &builtin{fn: filterEscape}
	fromJSON := &builtin{fn: filterFromJSON}
	filters = map[string]*builtin{
		"length": length, "count": length,
		"default": fallback, "d": fallback,
		"escape": escaped, "e": escaped, "forceescape": escaped,
		"fromjson": fromJSON, "from_json": fromJSON,
		"abs":        {fn: filterAbs},
		"attr":       {min: 1, params: []string{"name"}, fn: filterAttr},
		"batch":      {min: 1, params: []string{"linecount", "fill_with"}, fn: filterBatch},
		"capitalize": textFilter(3, capitalize),
		"center":     {params: []string{"width"}, fn: filterCenter},
		"dictsort":   {params: []string{"case_sensitive", "by", "reverse"}, fn: filterDictsort},
		"first":      {fn: func(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) { return r.end(v, 0) }},
		"last":       {fn: func(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) { return r.end(v, -1) }},
		"float":      {params: []string{"default"}, fn: filterFloat},
		"format":     {raw: filterFormat},
		"groupby":    {min: 1, params: []string{"attribute", "default", "case_sensitive"}, fn: filterGroupby},
		"indent":     {params: []string{"width", "first", "blank"}, fn: filterIndent},
		"int":        {params: []string{"default", "base"}, fn: filterInt},
		"items":      {fn: filterItems},
		"join":       {params: []string{"d", "attribute"}, fn: filterJoin},
		"list":       {fn: filterList},
		"lower":      textFilter(3, lowerText),
		"map":        {raw: filterMap},
		"max":        {params: []string{"case_sensitive", "attribute"}, fn: extremum(1)},
		"min":        {params: []string{"case_sensitive", "attribute"}, fn: extremum(-1)},
		"select":     {raw: selector(true, false)},
		"reject":     {raw: selector(false, false)},
		"selectattr": {raw: selector(true, true)},
		"rejectattr": {raw: selector(false, true)},
		"replace":    {min: 2, params: []string{"old", "new", "count"}, fn: filterReplace},
		"reverse":    {fn: filterReverse},
		"round":      {params: []string{"precision", "method"}, fn: filterRound},
		"safe":       {fn: filterSafe},
		"slice":      {min: 1, params: []string{"slices", "fill_with"}, fn: filterSlice},
		"sort":       {params: []string{"reverse", "case_sensitive", "attribute"}, fn: filterSort},
		"string":     {fn: filterString},
		"sum":        {params: []string{"attribute", "start"}, fn: filterSum},
		"title":      textFilter(64, titleWords),
		"tojson":     {params: []string{"ensure_ascii", "indent", "separators", "sort_keys"}, fn: filterToJSON},
		"trim":       {params: []string{"chars"}, fn: filterTrim},
		"truncate":   {params: []string{"length", "killwords", "end", "leeway"}, fn: filterTruncate},
		"unique":     {params: []string{"case_sensitive", "attribute"}, fn: filterUnique},
		"upper":      textFilter(3, upperText),
		"urlencode":  {fn: filterURLEncode},
		"wordcount":  {fn: filterWordcount},
	}
}

func loFilter(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	return r.filter(s.name, args[0], args[1:], kw)
}

func loFilterAll(r *run, s *site, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	more, err := r.items(args[1])
	if err != nil {
		return args[0], err
	}
	if err := r.allocTimes(len(more), valueBytes); err != nil {
		return args[0], err
	}
	return r.filter(s.name, args[0], append(append([]jinja.Value{}, args[2:]...), more...), kw)
}

func (r *run) filter(name string, v jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	f, ok := filters[name]
	if !ok {
		return v, pyErr("no filter named '%s'", name)
	}
	out, err := f.call(r, v, args, kw)
	if err != nil {
		return out, wrapFilter(name, err)
	}
	return out, nil
}

// wrapFilter names the filter in an error that has no place of its own yet.
func wrapFilter(name string, err error) error {
	switch err.(type) {
	case *Error, *RaisedError:
		return err
	}
	return pyErr("filter %s: %w", name, err)
}

// textFilter makes a filter of a function on the text of any value, which grows it grow times at most.
func textFilter(grow int, fn func(string) string) *builtin {
	return &builtin{fn: func(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
		text, err := r.text(v)
		if err != nil {
			return v, err
		}
		if err := r.allocTimes(len(text), grow); err != nil {
			return v, err
		}
		return jinja.NewString(fn(text)), nil
	}}
}

func filterDefault(_ *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	if !v.IsUndefined() && !(truthy(a[1]) && !truthy(v)) {
		return v, nil
	}
	if a[0].IsUndefined() {
		return jinja.NewString(""), nil
	}
	return a[0], nil
}

func filterLength(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	n := 0
	switch k := r.kind(v); k {
	case kStr, kMarkup:
		s, _ := str(v)
		n = utf8.RuneCountInString(s)
		if err := r.spend(len(s) / 32); err != nil {
			return v, err
		}
	case kList, kTuple:
		n = len(v.AsList().Items)
	case kDict:
		n = len(v.AsDict().Keys)
	case kUndefined:
	default:
		return v, pyErr("object of type '%s' has no len()", k)
	}
	return jinja.NewInt(int64(n)), nil
}

func filterString(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	if r.kind(v) == kMarkup {
		return v, nil
	}
	text, err := r.text(v)
	return jinja.NewString(text), err
}

func filterSafe(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	return newMarkup(text), r.alloc(len(text))
}

func filterEscape(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	if r.kind(v) == kMarkup {
		return v, nil
	}
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	if err := r.allocTimes(len(text), 6); err != nil {
		return v, err
	}
	return newMarkup(escape(text)), nil
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// escape makes text safe for HTML as markupsafe does.
func escape(s string) string { return escaper.Replace(s) }

func filterTrim(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	out, err := r.strip(jinja.NewString(text), a[0], true, true)
	if r.kind(v) == kMarkup {
		return newMarkup(out), err
	}
	return jinja.NewString(out), err
}

func filterCenter(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	width := a[0]
	if width.IsUndefined() {
		width = jinja.NewInt(80)
	}
	return strMethods["center"].call(r, jinja.NewString(text), []jinja.Value{width}, nil)
}

func filterReplace(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	var texts [3]string
	for i, arg := range []jinja.Value{v, a[0], a[1]} {
		var err error
		if texts[i], err = r.text(arg); err != nil {
			return v, err
		}
	}
	count := -1
	if given(a[2]) {
		var err error
		if count, err = r.intArg(a[2], "count", -1); err != nil {
			return v, err
		}
	}
	return r.replaceText(texts[0], texts[1], texts[2], count)
}

// filterFormat is value % args.
func filterFormat(r *run, v jinja.Value, args []jinja.Value, kw map[string]jinja.Value) (jinja.Value, error) {
	text, err := r.text(v)
	if err != nil {
		return v, err
	}
	if len(kw) == 0 {
		return r.percent(jinja.NewString(text), r.tagged(args, tagTuple))
	}
	if len(args) > 0 {
		return v, pyErr("can't handle positional and keyword arguments at the same time")
	}
	d, err := newDict(r, nil, kw)
	if err != nil {
		return v, err
	}
	return r.percent(jinja.NewString(text), d)
}

// titleWords starts every word with a capital, words being parted by white space and - ( { [ <.
func titleWords(s string) string {
	var b strings.Builder
	isBreak := func(c rune) bool { return isSpace(c) || strings.ContainsRune("-({[<", c) }
	for s != "" {
		word := len(s) - len(strings.TrimLeftFunc(s, isBreak))
		b.WriteString(s[:word])
		s = s[word:]
		end := strings.IndexFunc(s, isBreak)
		if end < 0 {
			end = len(s)
		}
		_, n := utf8.DecodeRuneInString(s[:end])
		b.WriteString(upperText(s[:n]))
		b.WriteString(lowerText(s[n:end]))
		s = s[end:]
	}
	return b.String()
}

// filterIndent indents all lines but the first and, unless asked, empty ones.
func filterIndent(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	s, ok := str(v)
	if !ok {
		return v, pyErr("a string is required, not %s", r.kind(v))
	}
	pad, ok := str(a[0])
	if !ok {
		width, err := r.intArg(a[0], "width", 4)
		if err != nil {
			return v, err
		}
		if err := r.alloc(max(width, 0)); err != nil {
			return v, err
		}
		pad = strings.Repeat(" ", max(width, 0))
	}
	n := countLines(s) + 1
	if err := r.allocTimes(n, len(pad)+32); err != nil {
		return v, err
	}
	out := lines(s+"\n", false)
	for i, line := range out {
		if i > 0 && (line != "" || truthy(a[2])) || i == 0 && truthy(a[1]) {
			out[i] = pad + line
		}
	}
	text := strings.Join(out, "\n")
	if r.kind(v) == kMarkup {
		return newMarkup(text), r.alloc(len(text))
	}
	return jinja.NewString(text), r.alloc(len(text))
}

func filterTruncate(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	s, ok := str(v)
	if !ok {
		return v, pyErr("a string is required, not %s", r.kind(v))
	}
	length, err := r.intArg(a[0], "length", 255)
	if err != nil {
		return v, err
	}
	end := "..."
	if given(a[2]) {
		if end, err = r.textArg(a[2], "end"); err != nil {
			return v, err
		}
	}
	leeway := 5
	if given(a[3]) {
		if leeway, err = r.intArg(a[3], "leeway", 5); err != nil {
			return v, err
		}
	}
	keep := length - utf8.RuneCountInString(end)
	if keep < 0 || leeway < 0 {
		return v, pyErr("length %d is less than that of the end %q, or leeway %d is negative", length, end, leeway)
	}
	n := utf8.RuneCountInString(s)
	if err := r.alloc(len(s) + len(end)); err != nil {
		return v, err
	}
	if n <= length+leeway {
		return v, nil
	}
	s = s[:runeOffset(s, keep, n)]
	if at := strings.LastIndexByte(s, ' '); !truthy(a[1]) && at >= 0 {
		s = s[:at]
	}
	return jinja.NewString(s + end), nil
}

func filterToJSON(r *run, v jinja.Value, a []jinja.Value) (jinja.Value, error) {
	style := jsonStyle{item: ", ", key: ": ", ascii: truthy(a[0]), sortKeys: truthy(a[3])}
	if given(a[1]) {
		pad, ok := str(a[1])
		if !ok {
			n, err := r.intArg(a[1], "indent", 0)
			if err != nil {
				return v, err
			}
			if err := r.alloc(max(n, 0)); err != nil {
				return v, err
			}
			pad = strings.Repeat(" ", max(n, 0))
		}
		style.indent, style.item = &pad, ","
	}
	if given(a[2]) {
		pair, err := r.items(a[2])
		if err != nil || len(pair) != 2 {
			return v, pyErr("separators must be two strings")
		}
		var ok1, ok2 bool
		style.item, ok1 = str(pair[0])
		style.key, ok2 = str(pair[1])
		if !ok1 || !ok2 {
			return v, pyErr("separators must be two strings")
		}
	}
	var b strings.Builder
	if err := r.writeJSON(&b, v, &style, 0); err != nil {
		return v, err
	}
	return jinja.NewString(b.String()), nil
}

func filterFromJSON(r *run, v jinja.Value, _ []jinja.Value) (jinja.Value, error) {
	s, ok := str(v)
	if !ok {
		return v, pyErr("a string is required, not %s", r.kind(v))
	}
	if err := r.allocTimes(len(s), dictBytes); err != nil {
		return v, err
	}
	return Decode([]byte(s))
}
