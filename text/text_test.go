package text

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
	"quickdraft/modelfile/gguf"
	"quickdraft/text/chat"
)

// tinyFile writes a GGUF file of a tokenizer of a few pieces and the given template.
func tinyFile(t *testing.T, template any, changes ...func(w *gguf.Writer)) string {
	t.Helper()
	w := gguf.NewWriter()
	w.Set("tokenizer.ggml.model", "llama")
	w.Set("tokenizer.ggml.tokens", []string{"<unk>", "<s>", "</s>", "▁", "a"})
	w.Set("tokenizer.ggml.token_type", []int32{2, 3, 3, 1, 1})
	w.Set("tokenizer.ggml.scores", []float32{0, 0, 0, -1, -2})
	if template != nil {
		w.Set("tokenizer.chat_template", template)
	}
	for _, change := range changes {
		change(w)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, w.WriteFile(path))
	return path
}

func TestTemplateOfAnotherType(t *testing.T) {
	for name, value := range map[string]any{"number": uint32(7), "array": []string{"a"}, "bool": true} {
		_, err := Open(tinyFile(t, value))
		require.ErrorContains(t, err, `"tokenizer.chat_template"`, name)
		require.ErrorContains(t, err, "want a string", name)
		require.Equal(t, 1, strings.Count(err.Error(), "tiny.gguf"), "%v", err)
	}
	x, err := Open(tinyFile(t, nil))
	require.NoError(t, err)
	require.Nil(t, x.Template)
}

// TestTemplateThatDoesNotCompile wants an error at load, from whichever place the template comes, that names the file.
func TestTemplateThatDoesNotCompile(t *testing.T) {
	const broken = "{% for m in messages %}{{ m.content }"
	path := tinyFile(t, broken)
	_, err := Open(path)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, "line 1")

	model := golden.Read(t, filepath.Join(golden.Dir(t, "tokenizers"), "smollm2", "tokenizer.json.gz"))
	for name, data := range map[string]string{
		"chat_template.jinja": broken, "tokenizer_config.json": `{"chat_template": "{% for m in messages %}{{ m.content }"}`,
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), model, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
		_, err := Open(dir)
		require.ErrorContains(t, err, dir, name)
		require.ErrorContains(t, err, "line 1", name)
	}
}

func TestTemplateFileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "chat_template.jinja"), 0o755))
	_, err := DirTemplate(dir)
	require.ErrorContains(t, err, "chat_template.jinja")
}

func TestRaisedErrorSaysWhereItIsFrom(t *testing.T) {
	x, err := Open(tinyFile(t, "{{ raise_exception('roles must alternate') }}"))
	require.NoError(t, err)
	_, err = x.Prompt(context.Background(), []Message{{Role: "user", Content: "a"}})
	require.EqualError(t, err, "the model's chat template refuses the conversation: roles must alternate")
	var raised *chat.RaisedError
	require.True(t, errors.As(err, &raised))
	require.Equal(t, "roles must alternate", raised.Message)
}

// TestPromptHasOneBOS renders with templates that write the token and those that do not, for tokenizers that add it and those that do
// not: there is one if anybody wants it, none otherwise, and what a user types is none.
func TestPromptHasOneBOS(t *testing.T) {
	const turn = "{{ messages[0].content }}</s>"
	for name, c := range map[string]struct {
		adds     bool
		template string
		want     int
	}{
		"both add it":        {true, "{{ bos_token }}" + turn, 1},
		"the tokenizer does": {true, turn, 1},
		"the template does":  {false, "{{ bos_token }}" + turn, 1},
		"neither does":       {false, turn, 0},
	} {
		x, err := Open(tinyFile(t, c.template, func(w *gguf.Writer) {
			w.Set("tokenizer.ggml.add_bos_token", c.adds)
			w.Set("tokenizer.ggml.bos_token_id", uint32(1))
			w.Set("tokenizer.ggml.eos_token_id", uint32(2))
		}))
		require.NoError(t, err)
		for _, typed := range []string{"a", "<s>", "<s>a<s></s>", ""} {
			list, err := x.Prompt(context.Background(), []Message{{Role: "user", Content: typed}})
			require.NoError(t, err)
			bos, eos := 0, 0
			for i, id := range list {
				if id == x.Tokenizer.BOS() {
					require.Zero(t, i, "%s, %q: it comes first", name, typed)
					bos++
				}
				if id == x.Tokenizer.EOS() {
					eos++
				}
			}
			require.Equal(t, c.want, bos, "%s, %q: %v", name, typed, list)
			require.Equal(t, 1, eos, "%s, %q: the template's own is one, the typed one is text: %v", name, typed, list)
		}
	}
}
