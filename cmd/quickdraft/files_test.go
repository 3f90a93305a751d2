package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutputsThatCannotBe gives the commands that write a file names under which there can be none.
func TestOutputsThatCannotBe(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model, dir := small(t), t.TempDir()
	text, folder := filepath.Join(dir, "text"), filepath.Join(dir, "folder")
	require.NoError(t, os.WriteFile(text, []byte("a text"), 0o600))
	require.NoError(t, os.Mkdir(folder, 0o755))
	for _, name := range []string{"config.json", "model.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("{}"), 0o600))
	}
	require.NoError(t, os.Symlink(model, filepath.Join(dir, "link")))
	bad := []string{dir, dir + "/new/", filepath.Join(dir, "none", "out"), filepath.Join(text, "out"), "/dev/null"}
	commands := map[string][]string{
		"OUT": {"quantize", model, "", "q8_0"}, "-o": {"imatrix", "-m", model, "-f", text, "-o", ""},
		"--write": {"bench", "decode", "--shape", "llama-3.2-1b", "--write", ""},
	}
	inputs := map[string][]string{"OUT": {model, filepath.Join(dir, "link")}, "-o": {text, model}}
	for what, args := range commands {
		for i, path := range append(bad, inputs[what]...) {
			if i == len(bad)+1 && what == "-o" { // the model is looked at once the text is known to be one
				continue
			}
			var line []string
			for _, a := range args {
				if a == "" {
					a = path
				}
				line = append(line, a)
			}
			err := execute(line...)
			require.ErrorContains(t, err, what+": "+path+": ", "%v", line)
			require.Equal(t, 2, exitCode(err), "%v: %v", line, err)
			require.NotContains(t, err.Error(), ".tmp")
		}
	}
	err := execute("quantize", folder, filepath.Join(folder, "model.safetensors"), "q8_0") // a part of what is read
	require.ErrorContains(t, err, "is read too")
	require.Equal(t, 2, exitCode(err))
	require.NoError(t, os.WriteFile(text, []byte(manyLetters(600)), 0o600))
	err = execute("imatrix", "-m", model, "-f", text, "-o", model)
	require.ErrorContains(t, err, "-o: "+model+": is read too")
	require.Equal(t, 2, exitCode(err))
}

func manyLetters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return string(b)
}

// TestAnEmptyCorpus is refused: there is nothing to guess from.
func TestAnEmptyCorpus(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "empty.txt")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	err := execute("run", "-m", small(t), "-p", "a", "--spec-corpus", path)
	require.Equal(t, 2, exitCode(err))
	require.ErrorContains(t, err, "no tokens, want a text to guess from")
}

// TestInputsThatAreNotThere names the option and the file.
func TestInputsThatAreNotThere(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	model, dir := small(t), t.TempDir()
	out := filepath.Join(dir, "out")
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{filepath.Join(dir, "none"), filepath.Join(file, "none"), dir} {
		for what, args := range map[string][]string{
			"-f": {"perplexity", "-m", model, "-f", path}, "-f ": {"imatrix", "-m", model, "-f", path, "-o", out},
			"--imatrix": {"quantize", model, out, "q4_k", "--imatrix", path}, "--messages": {"debug", "template", "-m", model, "--messages", path},
			"--template": {"debug", "template", "--template", path, "--messages", messages(t)}, "--spec-corpus": {"run", "-m", model, "-p", "a", "--spec-corpus", path},
		} {
			if path == dir && what == "--imatrix" { // what a model file's reader says of folders
				continue
			}
			err := execute(args...)
			require.Equal(t, 2, exitCode(err), "%v: %v", args, err)
			require.ErrorContains(t, err, path, "%v", args)
			require.Contains(t, err.Error(), map[bool]string{true: "-f", false: what}[what == "-f "], "%v", args)
			require.NotContains(t, err.Error(), "\n")
		}
	}
	for _, args := range [][]string{{"perplexity", "-m", model, "-f", file}, {"imatrix", "-m", model, "-f", file, "-o", out}} {
		err := execute(args...)
		require.ErrorContains(t, err, file+`": is empty, want a text of at least 512 tokens, one window (-c)`, "%v", args)
		require.Equal(t, 1, exitCode(err))
	}
	for _, args := range [][]string{
		{"run", "-m", model, "-p", "a", "-c", "1025"}, {"debug", "generate", "-m", model, "--ids", "1", "-c", "1025"},
		{"perplexity", "-m", model, "-f", model, "-c", "1025"}, {"bench", "-m", model, "-c", "1025"},
	} {
		err := execute(args...)
		require.ErrorContains(t, err, "-c 1025: want at most 1024", "%v", args)
		require.Equal(t, 2, exitCode(err), "%v", args)
	}
	for _, args := range [][]string{
		{"bench", "decode", "-m", model, "-n", "1025"}, {"bench", "prefill", "-m", model, "-p", "1025"}, {"bench", "batch", "-m", model, "-p", "1025"}, {"bench", "-m", model, "-p", "1025"},
	} {
		err := execute(args...)
		require.Equal(t, 2, exitCode(err), "%v: %v", args, err)
		require.ErrorContains(t, err, "want at most", "%v", args)
	}
}

// TestFoldersThatAreNoModel says what is missing, for every command alike.
func TestFoldersThatAreNoModel(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	dir := t.TempDir()
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("a"), 0o600))
	for range 2 { // the second time it holds a GGUF file
		for _, args := range [][]string{
			{"run", "-m", dir, "-p", "a"}, {"bench", "-m", dir}, {"bench", "verify", "-m", dir}, {"perplexity", "-m", dir, "-f", text}, {"quantize", dir, text + ".gguf", "q8_0"},
			{"debug", "tokenize", "-m", dir}, {"debug", "template", "-m", dir, "--messages", messages(t)}, {"debug", "logits", "-m", dir, "--ids", "1"},
		} {
			err := execute(args...)
			require.ErrorContains(t, err, dir+`": holds no config.json`, "%v", args)
			require.Equal(t, 2, exitCode(err), "%v", args)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "m.gguf"), nil, 0o600))
	}
	require.ErrorContains(t, execute("run", "-m", dir, "-p", "a"), "such as "+filepath.Join(dir, "m.gguf"))
}
