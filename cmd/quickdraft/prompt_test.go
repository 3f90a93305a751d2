package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

// TestPromptsBeyondTheContext asks what does not fit: an error of usage with both numbers, before weights are read, for they are
// damaged. What just fits is answered.
func TestPromptsBeyondTheContext(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	ask := func(prompt string, args ...string) (code int, stderr string) {
		t.Helper()
		code, _, stderr = said(t, append([]string{"run", "-m", model, "-p", prompt, "--raw"}, args...)...)
		return code, stderr
	}
	code, stderr := ask("abcdefghijklmnopqrst", "-c", "8")
	require.Equal(t, 2, code, stderr)
	found := regexp.MustCompile(`^error: prompt: (\d+) tokens do not fit a context of 8 \(-c\) that must also hold the answer\n$`).FindStringSubmatch(stderr)
	require.Len(t, found, 2, stderr)
	var n int
	_, err := fmt.Sscan(found[1], &n)
	require.NoError(t, err)
	for _, c := range []struct{ context, predict, code int }{{n - 1, 0, 2}, {n, 1, 2}, {n, -1, 2}, {n, 0, 0}, {n + 1, 1, 0}, {n + 1, 9, 0}} {
		code, stderr := ask("abcdefghijklmnopqrst", "-c", fmt.Sprint(c.context), "-n", fmt.Sprint(c.predict))
		require.Equal(t, c.code, code, "%+v: %s", c, stderr)
		if code == 2 {
			require.Contains(t, stderr, fmt.Sprintf("prompt: %d tokens do not fit a context of %d (-c)", n, c.context))
		}
	}

	data, err := os.ReadFile(model)
	require.NoError(t, err)
	copy(data[len(data)-400:], bytes.Repeat([]byte{0xff}, 400)) // scales that are no numbers
	require.NoError(t, os.WriteFile(model, data, 0o600))
	code, stderr = ask("abc")
	require.Equal(t, 1, code, stderr)
	require.Contains(t, stderr, "a scale that is not a finite number")
	huge := strings.Repeat("0123456789", 1<<20)
	for _, args := range [][]string{{"-c", "8"}, {}, {"-c", "8", "--num-beams", "2"}} {
		code, stderr = ask(huge, args...)
		require.Equal(t, 2, code, "%v: %s", args, stderr)
		require.Regexp(t, `^error: prompt: 10485760 bytes are at least \d+ tokens and do not fit a context of (8|1024) \(-c\)\n$`, stderr)
	}
	code, stderr = ask(manyLetters(2000))
	require.Equal(t, 2, code, stderr)
	require.Regexp(t, `^error: prompt: \d+ tokens do not fit a context of 1024 \(-c\) that must also hold the answer\n$`, stderr)
}

// withTemplate is a copy of a model that has a chat template.
func withTemplate(t *testing.T, model, template string) string {
	t.Helper()
	f, err := gguf.Open(model)
	require.NoError(t, err)
	defer f.Close()
	w := gguf.NewWriter()
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		w.Set(key, v)
	}
	w.Set("tokenizer.chat_template", template)
	for _, x := range f.Tensors() {
		w.AddTensor(x.Name, x.Type, x.Dims, x.Data)
	}
	path := filepath.Join(t.TempDir(), "template.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

// TestSystemMessagesAreNotLeftOut asks with a system message: where a template has a place for it, it is there, and elsewhere it is
// an error of usage.
func TestSystemMessagesAreNotLeftOut(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model := small(t)
	const all = "{% for m in messages %}{{ m.content }}{% endfor %}"
	for _, c := range []struct {
		template, want string
		more           int // tokens of the prompt that the message adds
	}{
		{"", `^error: --system "bcd": the model has no chat template, which would say where it goes\n$`, 0},
		{"{{ messages[-1].content }}", `^error: --system "bcd": the model's chat template leaves system messages out\n$`, 0},
		{"{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + all,
			`^error: --system "bcd": the model's chat template refuses the conversation: no system\n$`, 0},
		{all, "", 3},
		{"{% if messages[0].role != 'system' %}bcd{% endif %}" + all, "", 0}, // asked for what it is without being asked
	} {
		path := model
		if c.template != "" {
			path = withTemplate(t, model, c.template)
		}
		ask := func(args ...string) (code, nPrompt int, stderr string) {
			code, out, stderr := said(t, append([]string{"run", "-m", path, "-p", "aaa", "-n", "1", "--json"}, args...)...)
			var got struct {
				Prompt int `json:"prompt_tokens"`
			}
			if code == 0 {
				require.NoError(t, json.Unmarshal([]byte(out), &got), out)
			}
			return code, got.Prompt, stderr
		}
		code, alone, stderr := ask()
		require.Zero(t, code, "%s: %s", c.template, stderr)
		code, n, stderr := ask("--system", "bcd")
		if c.want != "" {
			require.Equal(t, 2, code, "%s: %s", c.template, stderr)
			require.Regexp(t, c.want, stderr, c.template)
			continue
		}
		require.Zero(t, code, "%s: %s", c.template, stderr)
		require.Equal(t, alone+c.more, n, c.template)
	}
}
