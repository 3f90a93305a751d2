package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// said runs a command line as main does and returns its exit code and what it wrote.
func said(t *testing.T, args ...string) (code int, out, stderr string) {
	t.Helper()
	saved, savedErr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = saved, savedErr }()
	var texts [2]chan string
	var ends [2]*os.File
	for i := range texts {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		texts[i], ends[i] = make(chan string), w
		go func() {
			data, _ := io.ReadAll(r)
			texts[i] <- string(data)
		}()
	}
	os.Stdout, os.Stderr = ends[0], ends[1]
	code = runMain(t.Context(), args)
	require.NoError(t, ends[0].Close())
	require.NoError(t, ends[1].Close())
	return code, <-texts[0], <-texts[1]
}

// exits are command lines of one command that must fail: because of what was asked for (2), or of what then happened (1).
type exits struct{ usage, failure [][]string }

// exitTable has the command lines of every command. MISSING is a file that is not there, BROKEN a damaged model, EMPTY an empty file,
// MODEL a model, TEXT a text, OUT a file that can be written and URL a server that fails.
var exitTable = map[string]exits{
	"run": {
		[][]string{{"-m", "MISSING", "-p", "a"}, {"-m", "nosuchmodel", "-p", "a"}, {"nosuch:model"}, {"-m", "MODEL", "-p", "a", "-t", "100000"}, {"-m", "MODEL", "-p", "a", "--stop", ""},
			{"-m", "MODEL", "-p", "a", "--stop", "\xff"}, {"-m", "MODEL", "-p", "a", "--stop", "x", "--num-beams", "2"}, {"-m", "MODEL", "-p", "a", "--top-p", "0"},
			{"-m", "MODEL", "-p", "a", "--repeat-penalty", "1e-308"}, {"-m", "MODEL", "-p", "a", "-md", "MISSING"}, {"-m", "MODEL", "-p", "a", "--samplers", "x"},
			{"-m", "MODEL", "-p", "a", "--logit-bias", "99999999+1"}, {"-m", "MODEL", "-p", "a long prompt", "-c", "3"}, {"-m", "MODEL", "-p", "a", "--system", "x"}},
		[][]string{{"-m", "BROKEN", "-p", "a"}, {"-m", "EMPTY", "-p", "a"}, {"-m", "URL", "-p", "a"}},
	},
	"perplexity": {
		[][]string{{"-m", "MISSING", "-f", "TEXT"}, {"-m", "MODEL", "-f", "MISSING"}, {"-m", "MODEL"}, {"-m", "MODEL", "-f", "TEXT", "--weights", "q4"}},
		[][]string{{"-m", "BROKEN", "-f", "TEXT"}, {"-m", "MODEL", "-f", "EMPTY"}},
	},
	"imatrix": {
		[][]string{{"-m", "MISSING", "-f", "TEXT", "-o", "OUT"}, {"-m", "MODEL", "-f", "MISSING", "-o", "OUT"}, {"-m", "MODEL", "-f", "TEXT", "-o", "MISSING/out"}},
		[][]string{{"-m", "BROKEN", "-f", "TEXT", "-o", "OUT"}, {"-m", "MODEL", "-f", "EMPTY", "-o", "OUT"}},
	},
	"quantize": {
		[][]string{{"MISSING", "OUT", "q8_0"}, {"MODEL", "OUT", "q9_9"}, {"MODEL", "MISSING/out", "q8_0"}, {"MODEL", "OUT", "q4_k", "--imatrix", "MISSING"}},
		[][]string{{"BROKEN", "OUT", "q8_0"}},
	},
	"pull": {[][]string{{"nosuchmodel"}, {"hf:one"}, {}}, [][]string{{"URL"}}},
	"show": {[][]string{{"nosuchmodel"}, {}}, nil},
	"rm":   {[][]string{{"nosuchmodel"}, {}, {"a", "--repacked"}}, [][]string{{"smollm2:135m"}}},
	"list": {[][]string{{"a"}}, nil},
	"bench": {
		[][]string{{"-m", "MISSING"}, {"-m", "nosuchmodel"}, {"-m", "MODEL", "-t", "100000"}, {"-m", "MODEL", "-c", "9999"}}, [][]string{{"-m", "BROKEN"}},
	},
	"bench decode":  {[][]string{{"-m", "MISSING"}, {"--shape", "x"}}, [][]string{{"-m", "BROKEN"}}},
	"bench verify":  {[][]string{{"-m", "MISSING"}, {"--shape", "x"}}, [][]string{{"-m", "BROKEN"}}},
	"bench prefill": {[][]string{{"-m", "MISSING"}, {"--shape", "x"}}, [][]string{{"-m", "BROKEN"}}},
	"bench batch":   {[][]string{{"-m", "MISSING"}}, [][]string{{"-m", "BROKEN"}}},
	"bench spec": {
		[][]string{
			{"-m", "MISSING"}, {"-m", "MODEL", "--kinds", "chat,chat"}, {"-m", "MODEL", "--kinds", "x"}, {"-m", "MODEL", "--against-fixed", "1,1"},
			{"-m", "MODEL", "--against-fixed", "17"}, {"-m", "MODEL", "--temp", "-1"}, {"-m", "MODEL", "--samplers", "x"}, {"-m", "MODEL", "--kinds", "chat", "--logit-bias", "100000=1"},
			{"-m", "MODEL", "--kinds", "chat", "-c", "8"},
		},
		[][]string{{"-m", "BROKEN"}},
	},
	"bench theory":   {[][]string{{"-r", "0"}}, nil},
	"bench roofline": {[][]string{{"-t", "100000"}}, nil},
	"debug logits":   {[][]string{{"-m", "MISSING", "--ids", "1"}, {"-m", "MODEL"}, {"-m", "MODEL", "--ids", "x"}}, [][]string{{"-m", "BROKEN", "--ids", "1"}}},
	"debug generate": {[][]string{{"-m", "MISSING", "--ids", "1"}, {"-m", "MODEL"}}, [][]string{{"-m", "BROKEN", "--ids", "1"}}},
	"debug tokenize": {[][]string{{"-m", "MISSING"}, {"-t", "1"}, {"-c", "1"}}, [][]string{{"-m", "BROKEN"}}},
	"debug template": {
		[][]string{{"-m", "MISSING", "--messages", "TALK"}, {"-m", "MODEL", "--messages", "MISSING"}, {"--template", "MISSING", "--messages", "TALK"}, {"-t", "1"}, {"-c", "1"}},
		[][]string{{"-m", "BROKEN", "--messages", "TALK"}, {"-m", "MODEL", "--messages", "EMPTY"}},
	},
	"debug levels": {[][]string{{"a"}}, nil},
}

// exitFiles are the files that stand for the words of exitTable.
func exitFiles(t *testing.T) map[string]string {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	model := small(t)
	whole, err := os.ReadFile(model)
	require.NoError(t, err)
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return map[string]string{
		"MISSING": filepath.Join(dir, "missing"), "BROKEN": write("broken.gguf", whole[:len(whole)/2]), "EMPTY": write("empty", nil), "MODEL": model,
		"TEXT": write("text", []byte(manyLetters(600))), "OUT": filepath.Join(dir, "out"), "URL": server.URL + "/m.gguf", "TALK": messages(t),
	}
}

// TestExitCodes runs every command in ways that must fail: the exit code tells a mistake of the caller's (2) from a failure (1), and one
// line on standard error says why.
func TestExitCodes(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	t.Setenv("QUICKDRAFT_SOURCES", "url")
	files := exitFiles(t)
	word := regexp.MustCompile(`^(MISSING|BROKEN|EMPTY|MODEL|TEXT|OUT|URL|TALK)\b`)
	fails := func(want int, words, args []string) {
		line := append([]string{}, words...)
		for _, a := range args {
			line = append(line, word.ReplaceAllStringFunc(a, func(w string) string { return files[w] }))
		}
		code, out, stderr := said(t, line...)
		require.Equal(t, want, code, "%q: %s", line, stderr)
		lines := `^error: [^\n]+\n$`
		if slices.Contains(args, "URL") { // a line for each source that was tried
			lines = `^error: [^\n]+\n(  [^\n]+\n)+$`
		}
		require.Regexp(t, lines, stderr, "%q", line)
		require.Empty(t, out, "%q", line)
	}
	tried := 0
	eachCommand(root(), nil, func(cmd *cobra.Command, words []string) {
		fails(2, words, []string{"--nonsense"})
		fails(2, words, []string{"--nonsense=1", "x"})
		fails(2, words, strings.Fields("a b c d e"))
		if cmd.HasSubCommands() && !cmd.Flags().HasAvailableFlags() {
			return
		}
		all, ok := exitTable[strings.Join(words, " ")]
		require.True(t, ok || len(words) == 0 || words[0] == "debug" && len(words) == 1, "%v: give it command lines that fail", words)
		for _, args := range all.usage {
			fails(2, words, args)
		}
		for _, args := range all.failure {
			fails(1, words, args)
		}
		if ok {
			tried++
		}
	})
	require.Equal(t, len(exitTable), tried, "a command of the table is none")
}

// TestRunStops ends answers at texts that are chosen from what the model says without them.
func TestRunStops(t *testing.T) {
	t.Setenv("QUICKDRAFT_HOME", t.TempDir())
	line := []string{"run", "-m", small(t), "-p", "abc", "--raw", "-n", "48", "--ignore-eos", "--seed", "7", "--temp", "2"}
	ask := func(args ...string) (text, finish string) {
		t.Helper()
		code, out, stderr := said(t, append(append(append([]string{}, line...), "--json"), args...)...)
		require.Zero(t, code, stderr)
		var got struct {
			Text   string
			Finish string `json:"finish_reason"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &got), out)
		code, plain, stderr := said(t, append(append([]string{}, line...), args...)...)
		require.Zero(t, code, stderr)
		require.Equal(t, got.Text+"\n", plain, "what is streamed is what the object has")
		return got.Text, got.Finish
	}
	whole, finish := ask()
	require.Equal(t, "length", finish)
	runes := []rune(whole)
	require.Greater(t, len(runes), 30)
	stop := string(runes[15:19])
	before, _, _ := strings.Cut(whole, stop)
	text, finish := ask("--stop", stop)
	require.Equal(t, []string{before, "stop"}, []string{text, finish})
	text, finish = ask("--stop", "never to be said", "--stop", stop, "--stop", string(runes[17:19]), "--spec-type", "none")
	require.Equal(t, "stop", finish)
	require.Equal(t, before, text, "of those that end together the longest")
	text, finish = ask("--stop", string(runes[len(runes)-1])+"\x00\x00never")
	require.Equal(t, []string{whole, "length"}, []string{text, finish}, "the tail is released")
}
