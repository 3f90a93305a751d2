package chat

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/invariants"
)

func TestParseRequest(t *testing.T) {
	in, err := ParseRequest([]byte(`{"messages": [{"role": "user", "content": "hi"}], "z": 1, "a": {"y": 1.0, "b": 12345678901234567890, "c": 1e400},
		"tools": null, "add_generation_prompt": true}`))
	require.NoError(t, err)
	require.True(t, in.AddGenerationPrompt)
	require.Equal(t, "z", in.Vars[0].Name)
	require.Equal(t, "a", in.Vars[1].Name)
	tpl, err := Compile(`{{ a }} {{ a|tojson }} {{ z }} {{ a.b - 1 }}`)
	require.NoError(t, err)
	out, err := tpl.Render(in)
	require.NoError(t, err)
	require.Equal(t, `{'y': 1.0, 'b': 12345678901234567890, 'c': inf} {"y": 1.0, "b": 12345678901234567890, "c": Infinity} 1 12345678901234567889`, out)
}

func TestParseRequestErrors(t *testing.T) {
	for request, want := range map[string]string{
		`[]`:                            `request: is a list of 0, an object is right`,
		`{}`:                            `request: messages is missing, a list is right`,
		`{"messages": "hi"}`:            `request: messages is the string "hi", a list is right`,
		`{"messages": [1]}`:             `request: messages[0] is the number 1, an object is right`,
		`{"messages": [], "tools": {}}`: `request: tools is an object, a list or null is right`,
		`{"messages": [], "add_generation_prompt": "yes"}`: `request: add_generation_prompt is the string "yes", true or false is right`,
	} {
		_, err := ParseRequest([]byte(request))
		require.EqualError(t, err, want, request)
	}
	for _, request := range []string{"", "{", `{"messages": [}`, `{} {}`, `{"a": 1,}`, `{"a" 1}`, "nul", `{"a": ` + strings.Repeat("9", 1000) + `}`,
		strings.Repeat(`[`, 100000), strings.Repeat(`{"a":`, 100000)} {
		_, err := ParseRequest([]byte(request))
		require.ErrorContains(t, err, "request: JSON at byte ", request)
	}
}

func TestValidate(t *testing.T) {
	for request, want := range map[string]string{
		`{"messages": []}`:                                                              `messages is empty, at least one is right`,
		`{"messages": [{"content": "a"}]}`:                                              `messages[0].role is missing, a name such as "user" is right`,
		`{"messages": [{"role": "user", "content": 5}]}`:                                `messages[0].content is the number 5, a string, null or a list of parts is right`,
		`{"messages": [{"role": "user", "content": ["a"]}]}`:                            `messages[0].content[0] is the string "a", an object is right`,
		`{"messages": [{"role": "user", "content": [{}]}]}`:                             `messages[0].content[0].type is missing, a name such as "text" is right`,
		`{"messages": [{"role": "user", "content": [{"type": "text"}]}]}`:               `messages[0].content[0].text is missing, a string is right`,
		`{"messages": [{"role": "a", "tool_calls": {}}]}`:                               `messages[0].tool_calls is an object, a list is right`,
		`{"messages": [{"role": "a", "tool_calls": [1]}]}`:                              `messages[0].tool_calls[0] is the number 1, an object is right`,
		`{"messages": [{"role": "a", "tool_calls": [{"function": 1}]}]}`:                `messages[0].tool_calls[0].function is the number 1, an object is right`,
		`{"messages": [{"role": "a", "tool_calls": [{"function": {"name": null}}]}]}`:   `messages[0].tool_calls[0].function.name is null, a function's name is right`,
		`{"messages": [{"role": "a", "tool_calls": [{"name": "f", "arguments": []}]}]}`: `messages[0].tool_calls[0].arguments is a list of 0, an object or its JSON text is right`,
		`{"messages": [{"role": "a"}], "tools": [true]}`:                                `tools[0] is true, an object is right`,
		`{"messages": [{"role": "a", "content": null}, {"role": "b", "content": [{"type": "image"}], "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}], "tools": [{}]}`: ``,
	} {
		in, err := ParseRequest([]byte(request))
		require.NoError(t, err, request)
		if err = in.Validate(); want == "" {
			require.NoError(t, err, request)
		} else {
			require.EqualError(t, err, want, request)
		}
	}
}

func TestDecodeArguments(t *testing.T) {
	in, err := ParseRequest([]byte(`{"messages": [{"role": "a", "tool_calls": [
		{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2.0}"}}, {"name": "g", "arguments": "[1]"}, {"name": "h", "arguments": "no"}, 5]}]}`))
	require.NoError(t, err)
	in.DecodeArguments()
	tpl, err := Compile(`{{ messages[0].tool_calls }}`)
	require.NoError(t, err)
	out, err := tpl.Render(in)
	require.NoError(t, err)
	require.Equal(t, `[{'function': {'name': 'f', 'arguments': {'b': 1, 'a': 2.0}}}, {'name': 'g', 'arguments': '[1]'}, {'name': 'h', 'arguments': 'no'}, 5]`, out)
}

// FuzzRender compiles and renders anything: it may fail, but neither panic nor take long.
func FuzzRender(f *testing.F) {
	for _, src := range hostile {
		if len(src) < 1000 {
			f.Add(src, snippetRequest)
		}
	}
	f.Add(`{% for m in messages %}{{ m['role'] + m.content|trim }}{% endfor %}`, snippetRequest)
	f.Add(`{% macro a(b, c=1) %}{{ caller(b) }}{% endmacro %}{% call(x) a(2) %}{{ x }}{% endcall %}`, `{"messages": [], "x": [1, "a", {"b": null}]}`)
	f.Add(`{%- set ns = namespace(a=1) -%}{%- raw -%} {{ {%- endraw %}{% generation %}{{ ns.a }}{% endgeneration %}`, `{"messages": []}`)
	f.Fuzz(func(t *testing.T, src, request string) {
		in, err := ParseRequest([]byte(request))
		if err != nil {
			in = Input{}
		}
		_ = in.Validate()
		start := invariants.CPUTime()
		tpl, err := Compile(src)
		if err == nil {
			_, err = tpl.Render(in)
		}
		require.NotErrorIs(t, err, errPanic, "%q", src)
		require.True(t, invariants.Within(invariants.CPUTime()-start, 5*time.Second), "%q", src)
	})
}
