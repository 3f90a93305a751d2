package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// goldenCase is one text of the conformance data. Absent fields are equal to others, as its README says.
type goldenCase struct {
	Text               string  `json:"text"`
	IDs                []int32 `json:"ids"`
	IDsSpecial         []int32 `json:"ids_special"`
	IDsPlain           []int32 `json:"ids_plain"`
	SPM                []int32 `json:"spm_ids"`
	Decoded            string  `json:"decoded"`
	DecodedSpecial     *string `json:"decoded_special"`
	DecodedSpecialSkip *string `json:"decoded_special_skip"`
	Roundtrip          bool    `json:"roundtrip"`
}

var goldenNames = []string{
	"gemma2", "gemma3", "llama2", "llama3", "llama3_2", "mistral_nemo", "mistral_v1", "mistral_v3", "phi3", "qwen2_5", "qwen3", "smollm2", "t5",
}

// cacheDir is where testdata/fetch.sh puts the tokenizer.json files that are too large for the conformance data.
func cacheDir() string {
	if dir := os.Getenv("QUICKDRAFT_TOKENIZERS"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "quickdraft", "tokenizers")
}

// goldenJSON returns a tokenizer.json of the conformance data, and its tokenizer_config.json if it was fetched.
func goldenJSON(t testing.TB, name string) (tokenizer, config []byte) {
	t.Helper()
	dir := filepath.Join(golden.Dir(t, "tokenizers"), name)
	if path := filepath.Join(dir, "tokenizer.json.gz"); exists(path) {
		return golden.Read(t, path), nil
	}
	var meta struct {
		SHA256 string `json:"tokenizer_json_sha256"`
	}
	golden.ReadJSON(t, filepath.Join(dir, "meta.json"), &meta)
	path := filepath.Join(cacheDir(), name, "tokenizer.json")
	if !exists(path) {
		t.Skipf("%s is absent: text/tokenizer/testdata/fetch.sh fetches it", path)
	}
	tokenizer = golden.Read(t, path)
	sum := sha256.Sum256(tokenizer)
	require.Equal(t, meta.SHA256, hex.EncodeToString(sum[:]), "sha256 of %s", path)
	if path = filepath.Join(filepath.Dir(path), "tokenizer_config.json"); exists(path) {
		config = golden.Read(t, path)
	}
	return tokenizer, config
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func loadGolden(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tokenizer, config := goldenJSON(t, name)
	tok, err := FromJSON(tokenizer, config)
	require.NoError(t, err)
	return tok
}

func goldenCases(t testing.TB, name string) []goldenCase {
	t.Helper()
	var file struct {
		Cases []goldenCase `json:"cases"`
	}
	golden.ReadJSON(t, filepath.Join(golden.Dir(t, "tokenizers"), name, "cases.json.gz"), &file)
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

func or[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

func TestGolden(t *testing.T) {
	golden.Dir(t, "tokenizers")
	for _, name := range goldenNames {
		t.Run(name, func(t *testing.T) {
			tok := loadGolden(t, name)
			cases := goldenCases(t, name)
			for _, c := range cases {
				checkCase(t, tok, &c)
			}
			golden.Count(t, "tokenizers/"+name, len(cases))
		})
	}
}

// TestGoldenEnds checks which tokens end an answer.
func TestGoldenEnds(t *testing.T) {
	golden.Dir(t, "tokenizers")
	for name, want := range map[string][]string{
		"llama3_2": {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"},
		"qwen2_5":  {"<|endoftext|>", "<|im_end|>"},
		"gemma3":   {"<eos>", "<end_of_turn>"},
		"smollm2":  {"<|endoftext|>", "<|im_end|>"},
		"phi3":     {"<|endoftext|>", "<|end|>"},
		"t5":       {"</s>"},
	} {
		t.Run(name, func(t *testing.T) {
			tok := loadGolden(t, name)
			require.Equal(t, want, pieces(tok, tok.EOGs()))
		})
	}
}

func checkCase(t *testing.T, tok *Tokenizer, c *goldenCase) {
	t.Helper()
	plain := c.IDsPlain
	if plain == nil {
		plain = c.IDs
	}
	equalIDs(t, tok, c.IDs, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true}), "ids of %q", c.Text)
	equalIDs(t, tok, c.IDsSpecial, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true, AddSpecial: true}), "ids_special of %q", c.Text)
	equalIDs(t, tok, plain, tok.Encode(c.Text, EncodeOptions{}), "ids_plain of %q", c.Text)
	if got := tok.Decode(c.IDs, false); got != c.Decoded {
		t.Errorf("decoded of %q: %q, want %q", c.Text, got, c.Decoded)
	}
	if got, want := tok.Decode(c.IDsSpecial, false), or(c.DecodedSpecial, c.Decoded); got != want {
		t.Errorf("decoded_special of %q: %q, want %q", c.Text, got, want)
	}
	if got, want := tok.Decode(c.IDsSpecial, true), or(c.DecodedSpecialSkip, c.Decoded); got != want {
		t.Errorf("decoded_special_skip of %q: %q, want %q", c.Text, got, want)
	}
	checkStream(t, tok, c.IDsSpecial)
}

// equalIDs names the pieces where two lists differ.
func equalIDs(t *testing.T, tok *Tokenizer, want, got []int32, format string, args ...any) {
	t.Helper()
	if len(want) == len(got) {
		same := true
		for i := range want {
			same = same && want[i] == got[i]
		}
		if same {
			return
		}
	}
	t.Errorf(format+": got %v %q, want %v %q", append(args, got, pieces(tok, got), want, pieces(tok, want))...)
}

func pieces(tok *Tokenizer, ids []int32) []string {
	all := make([]string, len(ids))
	for i, id := range ids {
		all[i] = tok.Piece(id)
	}
	return all
}
