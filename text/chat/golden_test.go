package chat

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ardanlabs/jinja"
	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// checkError accepts any failure where the reference failed in Python, and asks for the same text where the template raised.
func checkError(t *testing.T, want, out string, err error) {
	t.Helper()
	text, raised := strings.CutPrefix(want, "TemplateError: ")
	if !raised {
		return
	}
	var got *RaisedError
	require.ErrorAs(t, err, &got, "rendered %q", out)
	require.Equal(t, text, got.Message)
}

// TestGoldenChat renders the conversations of the chat set, each template with its own special tokens and clock.
func TestGoldenChat(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Dir(t, "chat"), "*.json.gz"))
	require.NoError(t, err)
	n := 0
	for _, file := range files {
		var set struct {
			Template string
			Special  map[string]string `json:"special_tokens"`
			Now      string
			Cases    []struct {
				Name            string
				Messages, Tools json.RawMessage
				Generation      bool            `json:"add_generation_prompt"`
				Vars            json.RawMessage `json:"kwargs"`
				Rendered, Error *string
			}
		}
		golden.ReadJSON(t, file, &set)
		tpl, err := Compile(set.Template)
		require.NoError(t, err, file)
		now, err := time.Parse("2006-01-02T15:04:05", set.Now)
		require.NoError(t, err)
		for _, c := range set.Cases {
			in := Input{
				Messages: mustDecode(t, c.Messages), Tools: mustDecode(t, c.Tools), AddGenerationPrompt: c.Generation,
				BOS: set.Special["bos_token"], EOS: set.Special["eos_token"], UNK: set.Special["unk_token"], PAD: set.Special["pad_token"],
				Now: func() time.Time { return now },
			}
			vars := mustDecode(t, c.Vars).AsDict()
			for _, key := range vars.Keys {
				in.Vars = append(in.Vars, Var{key, vars.Data[key]})
			}
			n++
			t.Run(filepath.Base(file)+"/"+c.Name, func(t *testing.T) {
				out, err := tpl.Render(in)
				if c.Error != nil {
					checkError(t, *c.Error, out, err)
					return
				}
				require.NoError(t, err)
				require.Equal(t, *c.Rendered, out)
			})
		}
	}
	golden.Count(t, "chat", n)
}

func mustDecode(t *testing.T, data []byte) jinja.Value {
	t.Helper()
	if len(data) == 0 {
		return jinja.None()
	}
	v, err := Decode(data)
	require.NoError(t, err)
	return v
}

// TestGoldenTemplates renders every template with every case of the templates set. A template that fails to compile here
// must fail all its renders in the reference.
func TestGoldenTemplates(t *testing.T) {
	dir := golden.Dir(t, "templates")
	cases := mustDecode(t, golden.Read(t, filepath.Join(dir, "cases.json"))).AsDict()
	templates := make(map[string]*Template)
	lines := bufio.NewScanner(bytes.NewReader(golden.Read(t, filepath.Join(dir, "expected.jsonl.gz"))))
	lines.Buffer(nil, 1<<22)
	n := 0
	for lines.Scan() {
		var want struct {
			T, C     string
			G        bool
			Out, Err *string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &want))
		tpl, ok := templates[want.T]
		if !ok {
			src, err := os.ReadFile(filepath.Join(dir, "templates", want.T))
			if errors.Is(err, os.ErrNotExist) {
				src, err = os.ReadFile(filepath.Join(dir, "templates", want.T+".jinja"))
			}
			require.NoError(t, err)
			tpl, err = Compile(string(src))
			require.NoError(t, err, want.T)
			templates[want.T] = tpl
		}
		n++
		t.Run(want.T+"/"+want.C, func(t *testing.T) {
			in := caseInput(cases.Data[want.C].AsDict())
			in.AddGenerationPrompt = want.G
			out, err := tpl.Render(in)
			if want.Err != nil {
				checkError(t, *want.Err, out, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, *want.Out, out)
		})
	}
	require.NoError(t, lines.Err())
	golden.Count(t, "templates", n)
}

// caseInput is the input that the reference renderer of the templates set got.
func caseInput(c *jinja.Dict) Input {
	in := Input{
		BOS: "<s>", EOS: "</s>", UNK: "<unk>", PAD: "<pad>",
		Now: func() time.Time { return time.Date(2026, 7, 4, 9, 5, 3, 0, time.UTC) },
	}
	for _, key := range c.Keys {
		switch v := c.Data[key]; key {
		case "messages":
			in.Messages = v
		case "tools":
			in.Tools = v
		case "documents":
			in.Documents = v
		default:
			in.Vars = append(in.Vars, Var{key, v})
		}
	}
	return in
}
