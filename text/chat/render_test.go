package chat

import (
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/ardanlabs/jinja"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// snippetRequest is what the templates of testdata/snippets.json see.
const snippetRequest = `{"messages": [
	{"role": "system", "content": "S\u2028ys"},
	{"role": "user", "content": "Hi <b> 'q'"},
	{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"z": 1.0, "a": [1, 2, {"k": null}]}}}]}
]}`

// TestSnippets compares small templates, one or more per construct, with what jinja2 3.1.6 in Hugging Face's environment
// made of them. Where it failed, so must Compile or Render.
func TestSnippets(t *testing.T) {
	data, err := os.ReadFile("testdata/snippets.json")
	require.NoError(t, err)
	var snippets []struct {
		Template   string
		Out, Error *string
	}
	require.NoError(t, json.Unmarshal(data, &snippets))
	require.Greater(t, len(snippets), 100)
	in := caseInput(mustDecode(t, []byte(snippetRequest)).AsDict())
	for _, s := range snippets {
		tpl, err := Compile(s.Template)
		var out string
		if err == nil {
			out, err = tpl.Render(in)
		}
		if s.Error != nil {
			require.Error(t, err, "%s\nrendered %q, the reference fails with %s", s.Template, out, *s.Error)
			require.NotErrorIs(t, err, errPanic, s.Template)
			continue
		}
		require.NoError(t, err, s.Template)
		require.Equal(t, *s.Out, out, s.Template)
	}
}

// TestErrors checks that messages say where and what.
func TestErrors(t *testing.T) {
	for src, want := range map[string]string{
		"a\n{{ messages[0].tool.name }}":               "chat template line 2: name of 'messages[...].tool', which is undefined",
		"{{ nothing.at.all }}":                         "chat template line 1: at of 'nothing', which is undefined",
		"\n\n{{ fn(1) }}":                              "chat template line 3: 'fn' is undefined",
		"{% for x in 5 %}{% endfor %}":                 "chat template line 1: 'int' object is not iterable",
		"{{ 'a' + 1 }}":                                `chat template line 1: can only concatenate str (not "int") to str`,
		"{{ 1|items }}":                                "chat template line 1: filter items: Can only get item pairs from a mapping.",
		"{{ 'x'|replace('a') }}":                       "chat template line 1: filter replace: takes at least 2 arguments, got 1",
		"{{ 'x'|trim(char='a') }}":                     "chat template line 1: filter trim: got an unexpected or repeated argument 'char'",
		"{{ [].append(1) }}":                           "chat template line 1: access to attribute 'append' of 'list' object is unsafe",
		"{{ raise_exception('no system role') }}":      "no system role",
		"{% if messages %}\n{{ 'x'|nosuch }}{%endif%}": "chat template line 2: no filter named 'nosuch'",
		"{{ 'x'|nosuch }}":                             `chat template line 1: no filter named "nosuch"`,
		"{% if a %}\n{% for b in c %}":                 "chat template line 2: block without endfor or else",
		"{% include 'a' %}":                            `chat template line 1: unknown statement "include"`,
		"\n{{ (1 }}":                                   `chat template line 2: unexpected '}'`,
	} {
		tpl, err := Compile(src)
		if err == nil {
			_, err = tpl.Render(caseInput(mustDecode(t, []byte(snippetRequest)).AsDict()))
		}
		require.EqualError(t, err, want, src)
	}
}

// TestUnset checks what Hugging Face passes for what a request leaves out: tools and documents are none, a special token the
// model has not is undefined.
func TestUnset(t *testing.T) {
	tpl, err := Compile(`{{ tools is none }} {{ documents is none }} {{ bos_token is defined }} [{{ bos_token }}] {{ add_generation_prompt }} {{ x is defined }}`)
	require.NoError(t, err)
	out, err := tpl.Render(Input{Messages: jinja.NewList(nil)})
	require.NoError(t, err)
	require.Equal(t, "True True False [] False False", out)

	out, err = tpl.Render(Input{Messages: jinja.NewList(nil), Tools: jinja.NewList(nil), BOS: "<s>", AddGenerationPrompt: true,
		Vars: []Var{{"x", jinja.NewInt(1)}, {"documents", jinja.NewInt(2)}, {"null", jinja.NewInt(3)}, {"__x", jinja.NewInt(4)}, {"é", jinja.NewInt(5)}}})
	require.NoError(t, err)
	require.Equal(t, "False False True [<s>] True True", out)
}

// TestConcurrent renders one template from several goroutines.
func TestConcurrent(t *testing.T) {
	tpl, err := Compile(`{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s ~ m.role ~ loop.cycle('/', '-') %}{% endfor %}{{ ns.s }}`)
	require.NoError(t, err)
	in := caseInput(mustDecode(t, []byte(snippetRequest)).AsDict())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				out, err := tpl.Render(in)
				if err != nil || out != "system/user-assistant/" {
					t.Errorf("rendered %q, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestConcat appends to any of the texts made so far and checks that none of them changes.
func TestConcat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{steps: 1 << 40, bytes: 1 << 40}
		texts := []string{rapid.StringN(0, 10, 20).Draw(t, "short"), string(make([]byte, growText))}
		want := append([]string{}, texts...)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			at := rapid.IntRange(0, len(texts)-1).Draw(t, "at")
			if rapid.Bool().Draw(t, "newest") {
				at = len(texts) - 1
			}
			piece := rapid.StringN(0, 600, 2000).Draw(t, "piece")
			v, err := r.concat(texts[at], piece, "-")
			require.NoError(t, err)
			want = append(want, string(append(append([]byte(texts[at]), piece...), '-')))
			texts = append(texts, v.AsString())
			require.Equal(t, want, texts)
		}
	})
}

// TestLists does the same for lists.
func TestLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{steps: 1 << 40, bytes: 1 << 40}
		lists := [][]jinja.Value{make([]jinja.Value, growList)}
		want := [][]jinja.Value{make([]jinja.Value, growList)}
		for i := range rapid.IntRange(1, 20).Draw(t, "steps") {
			at := rapid.IntRange(0, len(lists)-1).Draw(t, "at")
			more := []jinja.Value{jinja.NewInt(int64(i))}
			got, err := r.extend(lists[at], more)
			require.NoError(t, err)
			want = append(want, append(append([]jinja.Value{}, want[at]...), more...))
			lists = append(lists, got)
			require.Equal(t, want, lists)
		}
	})
}

// TestGrowing collects a long output piece by piece, which must not cost the square of its length.
func TestGrowing(t *testing.T) {
	tpl, err := Compile(`{% set ns = namespace(s='', l=[]) %}{% for i in range(2000) %}{% set ns.s = ns.s ~ 'some text to add' %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.s|length }} {{ ns.l|length }}`)
	require.NoError(t, err)
	out, err := tpl.Render(Input{})
	require.NoError(t, err)
	require.Equal(t, "32000 2000", out)
}
