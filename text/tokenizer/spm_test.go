package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/internal/golden"
)

// message is a protocol buffers message in the making.
type message []byte

func (m message) number(field int, v int64) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|wireVarint)
	return binary.AppendUvarint(m, uint64(v))
}

func (m message) float(field int, v float32) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|wireFixed32)
	return binary.LittleEndian.AppendUint32(m, math.Float32bits(v))
}

func (m message) bytes(field int, v []byte) message {
	m = binary.AppendUvarint(m, uint64(field)<<3|wireBytes)
	m = binary.AppendUvarint(m, uint64(len(v)))
	return append(m, v...)
}

// encode writes a model as the SentencePiece library does: what has its default value is left out.
func (m *spmModel) encode() []byte {
	var out message
	for i, piece := range m.pieces {
		p := message(nil).bytes(1, []byte(piece)).float(2, m.scores[i])
		if m.types[i] != ggufNormal {
			p = p.number(3, int64(m.types[i]))
		}
		out = out.bytes(1, p)
	}
	flags := map[bool]int64{true: 1}
	trainer := message(nil).number(4, int64(len(m.pieces))).bytes(1, []byte("text")).float(10, 0.9995)
	trainer = trainer.number(3, int64(m.kind)).number(24, flags[m.suffix]).number(35, flags[m.byteFallback])
	trainer = trainer.number(40, int64(m.unk)).number(41, int64(m.bos)).number(42, int64(m.eos)).number(43, int64(m.pad))
	normalizer := message(nil).bytes(1, []byte("name")).bytes(2, m.charsmap)
	normalizer = normalizer.number(3, flags[m.prefix]).number(4, flags[m.squeeze]).number(5, flags[m.escape])
	return out.bytes(2, trainer).bytes(3, normalizer)
}

// goldenSPM is a golden tokenizer as its SentencePiece file has it, and the tokens that the folder's JSON adds.
func goldenSPM(t *testing.T, name string) (*spmModel, map[string]spmAdded) {
	t.Helper()
	f := asGGUF(t, name)
	bpe := ggufKinds[name].model == "llama"
	m := &spmModel{kind: spmUnigram, bos: -1, pad: -1, prefix: ggufKinds[name].prefix, escape: true, squeeze: !bpe}
	if bpe {
		m.kind, m.byteFallback = spmBPE, true
	}
	for _, x := range f.Ints("tokenizer.ggml.precompiled_charsmap") {
		m.charsmap = append(m.charsmap, byte(x))
	}
	types, scores := f.Ints("tokenizer.ggml.token_type"), f.Floats("tokenizer.ggml.scores")
	added := map[string]spmAdded{}
	for i, piece := range f.Strings("tokenizer.ggml.tokens") {
		special := types[i] == ggufControl
		if types[i] == ggufUser || special && i > 2 {
			added[fmt.Sprint(i)] = spmAdded{piece, special}
		}
		if strings.HasPrefix(piece, "<extra_id_") {
			continue
		}
		if piece == "<unk>" {
			types[i], m.unk = ggufUnknown, int32(i)
		}
		for p, id := range map[string]*int32{"<s>": &m.bos, "</s>": &m.eos, "<bos>": &m.bos, "<eos>": &m.eos, "<pad>": &m.pad} {
			if piece == p && i < 4 {
				*id = int32(i)
			}
		}
		m.pieces, m.types, m.scores = append(m.pieces, piece), append(m.types, int32(types[i])), append(m.scores, scores[i])
	}
	return m, added
}

// spmDir writes a checkpoint's tokenizer files.
func spmDir(t *testing.T, name string, data []byte, config any) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	if config != nil {
		b, err := json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), b, 0o600))
	}
	return dir
}

// TestGoldenSPM writes the SentencePiece files of the conformance data's tokenizers and compares all ids with the library's.
func TestGoldenSPM(t *testing.T) {
	golden.Dir(t, "tokenizers")
	for _, name := range []string{"llama2", "mistral_v1", "gemma2", "gemma3", "t5"} {
		t.Run(name, func(t *testing.T) {
			m, added := goldenSPM(t, name)
			config, file := map[string]any{"added_tokens_decoder": added, "add_bos_token": ggufKinds[name].addBOS}, "tokenizer.model"
			if name == "t5" {
				config, file = map[string]any{"extra_ids": 100}, "spiece.model"
			}
			dir := spmDir(t, file, m.encode(), config)
			tok, err := FromDir(dir)
			require.NoError(t, err)
			json := loadGolden(t, name)
			require.Equal(t, json.VocabSize(), tok.VocabSize())
			require.Equal(t, m.eos, tok.EOS())
			keys, err := ExportDir(dir, tok.VocabSize()+3)
			require.NoError(t, err)
			back := readKeys(t, ggufKinds[name].arch, keys)
			require.Equal(t, tok.VocabSize()+3, back.VocabSize())
			cases := goldenCases(t, name)
			for _, c := range cases {
				want := c.SPM
				if want == nil {
					want = c.IDs
				}
				if !strings.HasPrefix(name, "gemma") && !strings.Contains(c.Text, "REFERENCE_DOC") && !strings.Contains(c.Text, "extra_id") {
					equalIDs(t, tok, want, tok.Encode(c.Text, EncodeOptions{}), "spm_ids of %q", c.Text)
				}
				for _, o := range []EncodeOptions{{AddSpecial: true}, {AddSpecial: true, ParseSpecial: true}} {
					equalIDs(t, tok, tok.Encode(c.Text, o), back.Encode(c.Text, o), "exported ids of %q", c.Text)
				}
				if name != "t5" {
					equalIDs(t, tok, c.IDsSpecial, tok.Encode(c.Text, EncodeOptions{ParseSpecial: true, AddSpecial: true}), "ids_special of %q", c.Text)
				}
				checkStream(t, tok, c.IDs)
			}
			golden.Count(t, "tokenizers/spm/"+name, len(cases))
		})
	}
}

// tinySPM is a BPE model of some pieces with byte tokens.
func tinySPM() *spmModel {
	m := &spmModel{kind: spmBPE, bos: 1, eos: 2, pad: -1, prefix: true, escape: true, byteFallback: true}
	add := func(piece string, kind int32) {
		m.scores = append(m.scores, -float32(len(m.pieces)))
		m.pieces, m.types = append(m.pieces, piece), append(m.types, kind)
	}
	add("<unk>", ggufUnknown)
	add("<s>", ggufControl)
	add("</s>", ggufControl)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), ggufByte)
	}
	for _, p := range []string{"he", "ll", "hell", "hello", "▁hello", "▁", "h", "e", "l", "o"} {
		add(p, ggufNormal)
	}
	add("▁▁", ggufUser)
	return m
}

func TestSPMFolder(t *testing.T) {
	m := tinySPM()
	n := int32(len(m.pieces))
	tok, err := FromDir(spmDir(t, "tokenizer.model", m.encode(), map[string]any{
		"eos_token": map[string]any{"content": "<|im_end|>"},
		"added_tokens_decoder": map[string]any{
			fmt.Sprint(n + 1): map[string]any{"content": "<|im_end|>", "special": true}, "0": map[string]any{"content": "<unk>", "special": true},
		},
	}))
	require.NoError(t, err)
	require.True(t, tok.AddsBOS())
	require.Equal(t, []string{"<s>", "▁hello", "<|im_end|>", "▁hello"}, pieces(tok, tok.Encode("hello<|im_end|>hello", EncodeOptions{AddSpecial: true, ParseSpecial: true})))
	require.Equal(t, n+1, tok.EOS())
	require.Equal(t, []int32{n + 1}, tok.EOGs())
	require.Equal(t, []string{"▁", "<0xC3>", "<0xA9>", "▁▁", "hello"}, pieces(tok, tok.Encode("é  hello", EncodeOptions{})))
	require.Equal(t, "[PAD270]", tok.Piece(n))

	m = tinySPM()
	m.squeeze = true
	dir := spmDir(t, "tokenizer.model", m.encode(), nil)
	tok, err = FromDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"▁hello", "▁hello"}, pieces(tok, tok.Encode("  hello   hello ", EncodeOptions{})))
	_, err = ExportDir(dir, 0)
	require.ErrorContains(t, err, "a tokenizer that GGUF cannot express")

	m = tinySPM()
	m.kind, m.squeeze = spmUnigram, true
	dir = spmDir(t, "spiece.model", m.encode(), nil)
	_, err = ExportDir(dir, 0)
	require.NoError(t, err)
	tok, err = FromDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"▁hello", "▁", "<0xC3>", "<0xA9>", "</s>"}, pieces(tok, tok.Encode("hello é", EncodeOptions{AddSpecial: true})))
	require.Equal(t, "hello é", tok.Decode(tok.Encode("hello é", EncodeOptions{}), false))
}

func TestSPMThatIsWrong(t *testing.T) {
	change := func(f func(m *spmModel)) []byte {
		m := tinySPM()
		f(m)
		return m.encode()
	}
	for want, data := range map[string][]byte{
		"no pieces":                                   nil,
		"offset 0: no field begins there":             []byte("\x00\x01"),
		"wire type 3 is not supported":                {1<<3 | 3},
		"field 1: 100 bytes, but 1 are left":          {1<<3 | 2, 100, 0},
		"want 4 bytes, 1 are left":                    {9<<3 | 5, 0},
		"field 1: of another type than expected":      {1<<3 | 0, 7},
		"piece 0: \"\\xff\" is not UTF-8":             message(nil).bytes(1, message(nil).bytes(1, []byte("\xff"))),
		"piece 3: score NaN":                          change(func(m *spmModel) { m.scores[3] = float32(math.NaN()) }),
		"piece 4: type 7, want 1 to 6":                change(func(m *spmModel) { m.types[4] = 7 }),
		"trainer_spec.model_type is 4":                change(func(m *spmModel) { m.kind = 4 }),
		"trainer_spec.unk_id is 9000, want 0 to":      change(func(m *spmModel) { m.unk = 9000 }),
		"trainer_spec.unk_id is -1":                   change(func(m *spmModel) { m.unk = -1 }),
		"trainer_spec.treat_whitespace_as_suffix":     change(func(m *spmModel) { m.suffix = true }),
		"normalizer_spec.escape_whitespaces is false": change(func(m *spmModel) { m.escape = false }),
		"want one of tokenizer.json":                  nil,
	} {
		dir := spmDir(t, "tokenizer.model", data, nil)
		if want == "want one of tokenizer.json" {
			want = "tokenizer.json is missing, and so is a SentencePiece file (tokenizer.model, "
			require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.model")))
		}
		tok, err := FromDir(dir)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, dir)
		require.Nil(t, tok)
	}
	for want, config := range map[string]any{
		"extra_ids is -1":                     map[string]any{"extra_ids": -1},
		`"x" is not a token id`:               map[string]any{"added_tokens_decoder": map[string]any{"x": map[string]any{"content": "a"}}},
		`added token "a": id -4, want 0 to`:   map[string]any{"added_tokens_decoder": map[string]any{"-4": map[string]any{"content": "a"}}},
		`added token "a": id 9000000, want`:   map[string]any{"added_tokens_decoder": map[string]any{"9000000": map[string]any{"content": "a"}}},
		`added token 300: "" is not a text`:   map[string]any{"added_tokens_decoder": map[string]any{"300": map[string]any{}}},
		"eos_token_id: 7 is neither a string": map[string]any{"eos_token": 7},
	} {
		dir := spmDir(t, "tokenizer.model", tinySPM().encode(), config)
		_, err := FromDir(dir)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, dir)
	}
}

// TestSPMCutOff cuts a file at every byte: an error, or a model of the pieces before the cut.
func TestSPMCutOff(t *testing.T) {
	m := tinySPM()
	data := m.encode()
	whole := 0
	for n := range data {
		got, err := parseSPM(data[:n])
		if err != nil {
			require.Nil(t, got)
			continue
		}
		whole++
		require.LessOrEqual(t, len(got.pieces), len(m.pieces))
		require.Equal(t, m.pieces[:len(got.pieces)], got.pieces)
	}
	require.GreaterOrEqual(t, whole, len(m.pieces)-1, "a cut between two pieces is none")
	require.Less(t, whole, len(data)/2)
}
