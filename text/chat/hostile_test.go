package chat

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ardanlabs/jinja"
	"github.com/stretchr/testify/require"

	"quickdraft/internal/invariants"
)

// repeated is s n times.
func repeated(s string, n int) string { return strings.Repeat(s, n) }

// hostile are templates that want more time, memory or stack than any chat template needs.
var hostile = map[string]string{
	"nested loops":           `{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`,
	"nested loops, output":   `{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}`,
	"nested loops, one list": `{% set r = range(10000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}`,
	"loop over literal":      `{% for a in range(100000) %}{% set x = [` + repeated("1,", 5000) + `] %}{% endfor %}`,
	"loop over text":         `{% for a in range(50000) %}` + repeated("text", 10000) + `{% endfor %}`,
	"filtered loop":          `{% for a in range(100000) if range(100000)|sum > 0 %}{% endfor %}`,
	"recursive loop":         `{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}`,
	"wide recursive loop":    `{% for a in [1,2,3] recursive %}{{ loop([a,a,a]) }}{% endfor %}`,
	"doubled string":         `{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}`,
	"doubled by ~":           `{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}`,
	"doubled by sets":        `{% set s = 'x' %}` + repeated(`{% set s = s ~ s %}`, 60) + `{{ s }}`,
	"doubled by set block":   `{% set s = 'x' %}` + repeated(`{% set s %}{{ s }}{{ s }}{% endset %}`, 60) + `{{ s }}`,
	"doubled by replace":     `{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}{{ ns.s }}`,
	"doubled by filter":      `{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = ns.s|replace('x', ns.s) %}{% endfor %}{{ ns.s }}`,
	"doubled list":           `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}`,
	"doubled nesting, print": `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}`,
	"doubled nesting, json":  `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s|tojson }}`,
	"doubled nesting, equal": `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}`,
	"doubled nesting, order": `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s < ns.t }}`,
	"doubled nesting, in":    `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s in [ns.t] }}`,
	"doubled nesting, call":  `{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s() }}`,
	"doubled, changed":       `{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{% for i in [1,2] %}{{ loop.changed(ns.s if i == 1 else ns.t) }}{% endfor %}`,
	"deep value":             `{% set ns = namespace(s=[1]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`,
	"cycle, print":           `{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}`,
	"cycle, json":            `{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a|tojson }}`,
	"cycle, equal":           `{% set a = namespace() %}{% set b = namespace() %}{% set a.x = a %}{% set b.x = b %}{{ a == b }}`,
	"cycle, changed":         `{% set a = namespace() %}{% set b = namespace() %}{% set a.x = a %}{% set b.x = b %}{% for i in [1,2] %}{{ loop.changed(a if i == 1 else b) }}{% endfor %}`,
	"cycle, call":            `{% set a = namespace() %}{% set a.x = [a] %}{{ a.x() }}`,
	"cycle, loop":            `{% for x in [1,2] %}{{ [loop]|tojson }}{% endfor %}`,
	"macro calls itself":     `{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`,
	"macro fans out":         `{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}`,
	"macro grows":            `{% macro m(s) %}{{ m(s ~ s) }}{% endmacro %}{{ m('x') }}`,
	"macros in turn":         `{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`,
	"macro by namespace":     `{% set ns = namespace() %}{% macro m() %}{{ ns.f() }}{% endmacro %}{% set ns.f = m %}{{ m() }}`,
	"macro by default":       `{% macro m(a=m()) %}{% endmacro %}{{ m() }}`,
	"macro by caller":        `{% macro m() %}{{ caller() }}{% endmacro %}{% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}`,
	"macro in a loop":        `{% macro m(n) %}{% for a in [1] %}{% if true %}{% for b in [1] %}{{ m(n) }}{% endfor %}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}`,
	"macros kept":            `{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% macro m() %}{% endmacro %}{% set ns.l = [ns.l, m] %}{% endfor %}`,
	"methods kept":           `{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l, 'x'.upper] %}{% endfor %}`,
	"parentheses":            `{{ ` + repeated("(", 100_000) + `1` + repeated(")", 100_000) + ` }}`,
	"a million parentheses":  `{{ ` + repeated("(", 1_000_000) + `1` + repeated(")", 1_000_000) + ` }}`,
	"open parentheses":       `{{ ` + repeated("(", 200_000),
	"brackets":               `{{ ` + repeated("[", 100_000) + repeated("]", 100_000) + ` }}`,
	"braces":                 `{{ ` + repeated("{1:", 50_000) + `1` + repeated("}", 50_000) + ` }}`,
	"calls":                  `{{ ` + repeated("f(", 100_000) + repeated(")", 100_000) + ` }}`,
	"nots":                   `{{ ` + repeated("not ", 60_000) + `1 }}`,
	"signs":                  `{{ ` + repeated("-", 200_000) + `1 }}`,
	"powers":                 `{{ 2` + repeated("**2", 9_000) + ` }}`,
	"attributes":             `{{ a` + repeated(".b", 100_000) + ` }}`,
	"subscripts":             `{{ a` + repeated("[0]", 60_000) + ` }}`,
	"filters":                `{{ a` + repeated("|e", 100_000) + ` }}`,
	"tests":                  `{{ a` + repeated(" is none", 30_000) + ` }}`,
	"conditions":             `{{ 1` + repeated(" if 1 else 1", 18_000) + ` }}`,
	"dangling conditions":    `{{ 1` + repeated(" if 1", 50_000) + ` }}`,
	"ors":                    `{{ a` + repeated(" or a", 50_000) + ` }}`,
	"sums":                   `{{ 1` + repeated("+1", 100_000) + ` }}`,
	"comparisons":            `{{ 1` + repeated("<1", 100_000) + ` }}`,
	"targets":                `{% set ` + repeated("(", 100_000) + `a` + repeated(")", 100_000) + ` = 1 %}`,
	"ifs":                    repeated(`{% if a %}`, 20_000) + repeated(`{% endif %}`, 10_000),
	"fors":                   repeated(`{% for a in b %}`, 8_000) + repeated(`{% endfor %}`, 8_000),
	"macros":                 repeated(`{% macro a() %}`, 8_000) + repeated(`{% endmacro %}`, 8_000),
	"set blocks":             repeated(`{% set a %}`, 8_000) + repeated(`{% endset %}`, 8_000),
	"many tags":              repeated(`{{a}}`, 52_000),
	"many loops":             repeated(`{%for a in b%}{%endfor%}`, 11_000),
	"many comments":          repeated(`{##}`, 60_000) + `{{`,
	"large range":            `{{ range(1000000000000)|length }}`,
	"largest range":          `{{ range(-9223372036854775807, 9223372036854775807)|list }}`,
	"ranges":                 `{% for i in range(100000) %}{% set x = range(100000) %}{% endfor %}`,
	"repeated string":        `{{ 'x' * 10**9 }}`,
	"repeated list":          `{{ ([1] * 10**9)|length }}`,
	"repeated, large":        `{{ 'x' * 9223372036854775807 }}`,
	"repeated repeats":       `{{ 'x' * 1000 * 1000 * 1000 }}`,
	"join":                   `{% set s = 'x' * 10000 %}{{ ([s] * 1000)|join(s) }}`,
	"joins":                  `{% set ns = namespace(s='xx') %}{% for i in range(60) %}{% set ns.s = (ns.s|list)|join(ns.s) %}{% endfor %}`,
	"str.join":               `{% set s = 'x' * 100000 %}{{ s.join(['a'] * 100000) }}`,
	"indent":                 `{{ ('a\n' * 10000)|indent(100000) }}`,
	"indent width":           `{{ 'a'|indent(1000000000000) }}`,
	"json indent":            `{{ [[[[[[[[1]]]]]]]]|tojson(indent=1000000000) }}`,
	"json separators":        `{{ ([1] * 10000)|tojson(separators=('x' * 100000, ':')) }}`,
	"center":                 `{{ 'a'|center(1000000000) }}`,
	"ljust":                  `{{ 'a'.ljust(1000000000) }}`,
	"zfill":                  `{{ 'a'.zfill(1000000000) }}`,
	"percent width":          `{{ '%1000000000d' % 1 }}`,
	"percent precision":      `{{ '%.1000000000f' % 1 }}`,
	"percents":               `{{ ('%9999d' * 100000) % ((1,) * 100000) }}`,
	"format width":           `{{ '{:1000000000}'.format(1) }}`,
	"formats":                `{{ ('{0:9999}' * 100000).format(1) }}`,
	"nested formats":         `{{ ('{:' * 100000 ~ '}' * 100000).format(1) }}`,
	"format doubling":        `{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}`,
	"batch fill":             `{{ [1]|batch(1000000000, 0)|list }}`,
	"slice fill":             `{{ [1]|slice(1000000000, 0)|list }}`,
	"power":                  `{{ 10 ** 1000000000 }}`,
	"powers of powers":       `{% set ns = namespace(s=2) %}{% for i in range(60) %}{% set ns.s = ns.s * ns.s %}{% endfor %}{{ ns.s }}`,
	"strftime":               `{{ strftime_now('%c' * 1000000) }}`,
	"sorts":                  `{% for i in range(100000) %}{% set x = range(1000)|sort(reverse=true) %}{% endfor %}`,
	"unique":                 `{% for i in range(100000) %}{% set x = range(10000)|unique|list %}{% endfor %}`,
	"unique lists":           `{{ ([[1]] * 10000)|unique|list }}`,
	"groupby":                `{% for i in range(100000) %}{% set x = 'abcdefgh'|groupby(0) %}{% endfor %}`,
	"map":                    `{% for i in range(100000) %}{% set x = range(10000)|map('string')|list %}{% endfor %}`,
	"map of maps":            `{% set ns = namespace(l=['a']) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|map('string')|list }}`,
	"sum of lists":           `{{ ([range(1000)|list] * 10000)|sum(start=[]) }}`,
	"text search":            `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s.find('aaaaaaaaab') %}{% endfor %}`,
	"text in":                `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = 'aaaaaaaaab' in s %}{% endfor %}`,
	"text equal":             `{% set s = 'a' * 100000 %}{% set t = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s == t %}{% endfor %}`,
	"text upper":             `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s|upper %}{% endfor %}`,
	"text length":            `{% set s = 'é' * 100000 %}{% for i in range(100000) %}{% set x = s|length %}{% endfor %}`,
	"text index":             `{% set s = 'é' * 100000 %}{% for i in range(100000) %}{% set x = s[-1] %}{% endfor %}`,
	"text slice":             `{% set s = 'é' * 100000 %}{% for i in range(100000) %}{% set x = s[::-1] %}{% endfor %}`,
	"text strip":             `{% set s = ' ' * 100000 %}{% for i in range(100000) %}{% set x = s.strip() %}{% endfor %}`,
	"text strip set":         `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s.strip('b' * 60 ~ 'a') %}{% endfor %}`,
	"text split":             `{% set s = 'a ' * 100000 %}{% for i in range(100000) %}{% set x = s.split() %}{% endfor %}`,
	"text prefix":            `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s.startswith(s) %}{% endfor %}`,
	"text affixes":           `{% set s = 'a' * 10000 %}{% for i in range(100000) %}{% set x = s.startswith((s ~ 'b',) * 100) %}{% endfor %}`,
	"text trim":              `{% set s = ' ' * 100000 %}{% for i in range(100000) %}{% set x = s|trim %}{% endfor %}`,
	"text is lower":          `{% set s = '1' * 100000 %}{% for i in range(100000) %}{% set x = s is lower %}{% endfor %}`,
	"text to int":            `{% set s = '1' * 100000 %}{% for i in range(100000) %}{% set x = s|int %}{% endfor %}`,
	"text to float":          `{% set s = ' ' * 100000 ~ '1' %}{% for i in range(100000) %}{% set x = s|float %}{% endfor %}`,
	"text truncate":          `{% set s = 'a ' * 50000 %}{% for i in range(100000) %}{% set x = s|truncate(99990) %}{% endfor %}`,
	"text removeprefix":      `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s.removeprefix(s) %}{% endfor %}`,
	"text partition":         `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = s.partition('b') %}{% endfor %}`,
	"text wordcount":         `{% set s = 'a ' * 50000 %}{% for i in range(100000) %}{% set x = s|wordcount %}{% endfor %}`,
	"text escape":            `{% set s = '<' * 100000 %}{% for i in range(100000) %}{% set x = s|e %}{% endfor %}`,
	"dict keys":              `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = {s: 1}[s] %}{% endfor %}`,
	"dict contains":          `{% set s = 'a' * 100000 %}{% set d = {'b': 1} %}{% for i in range(100000) %}{% set x = s in d %}{% endfor %}`,
	"dict copies":            `{% set ns = namespace(l=[]) %}{% set d = dict(` + repeated("a=1,", 1) + `b=2) %}{% for i in range(100000) %}{% set ns.l = [ns.l, d.copy()] %}{% endfor %}`,
	"filter name":            `{% set s = 'a' * 100000 %}{% for i in range(100000) %}{% set x = [1]|map(s) %}{% endfor %}`,
	"attribute path":         `{% set s = 'a.' * 100000 %}{% for i in range(100000) %}{% set x = [{'a': {}}]|map(attribute=s, default={}) %}{% endfor %}`,
	"attribute list":         `{% set s = 'a,' * 10000 %}{{ ([{}] * 1000)|sort(attribute=s) }}`,
	"contains":               `{% set l = range(100000)|list %}{% for i in l %}{% if -1 in l %}{% endif %}{% endfor %}`,
	"star arguments":         `{% macro m() %}{% endmacro %}{% for i in range(100000) %}{{ m(*range(100000)) }}{% endfor %}`,
	"keywords":               `{% macro m() %}{{ kwargs }}{% endmacro %}{% for i in range(100000) %}{{ m(**{'a': 'x' * 1000}) }}{% endfor %}`,
	"cyclers":                `{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l, cycler(1, 2), joiner()] %}{% endfor %}`,
	"with":                   `{% set s = 'x' %}` + repeated(`{% with s = s ~ s %}`, 60) + `{{ s }}` + repeated(`{% endwith %}`, 60),
	"filter blocks":          repeated(`{% filter replace('x', 'xx') %}`, 60) + `x` + repeated(`{% endfilter %}`, 60),
	"generations":            repeated(`{% generation %}`, 5000),
	"from_json":              `{{ ('[' * 100000)|from_json }}`,
	"from_json, wide":        `{{ ('[' ~ '1,' * 1000000 ~ '1]')|from_json }}`,
	"urlencode":              `{% set s = '%' * 100000 %}{% for i in range(100000) %}{% set x = s|urlencode %}{% endfor %}`,
}

// TestHostile runs each hostile template on a small conversation: an error within a second and 64 MiB of allocations, all of
// it garbage included, and no goroutine left behind.
func TestHostile(t *testing.T) {
	in := caseInput(jinja.NewDict().AsDict())
	in.Messages = mustDecode(t, []byte(`[{"role": "user", "content": "hello"}]`))
	goroutines := runtime.NumGoroutine()
	for name, src := range hostile {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := invariants.CPUTime()
			tpl, err := Compile(src)
			compiled := invariants.CPUTime() - start
			var out string
			if err == nil {
				out, err = tpl.Render(in)
			}
			took := invariants.CPUTime() - start
			runtime.ReadMemStats(&after)
			require.Error(t, err, "rendered %.100q", out)
			require.True(t, invariants.Within(took, time.Second), "%v", took)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
			t.Logf("%v (compiled in %v), %.1f MB: %v", took, compiled, float64(after.TotalAlloc-before.TotalAlloc)/1e6, err)
		})
	}
	for deadline := time.Now().Add(5 * time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // those that end may not have gone yet
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
}

// TestCancel stops a rendering that has most of its budget left.
func TestCancel(t *testing.T) {
	tpl, err := Compile(`{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}`)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = tpl.RenderContext(ctx, Input{})
	require.ErrorIs(t, err, context.Canceled)
}
