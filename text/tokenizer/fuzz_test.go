package tokenizer

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"quickdraft/modelfile/gguf"
)

func joined(tok *Tokenizer, ids []int32) []byte {
	var b []byte
	for _, id := range ids {
		b = append(b, tok.Bytes(id)...)
	}
	return b
}

// FuzzRoundTrip encodes any text with each kind of model and demands the same bytes back, and that streams agree.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", " hello", "héllo <|im_end|><think>", "\xff\xfe é", "a\r\n\n  b", "▁ x", "日本語", strings.Repeat("hell", 60)} {
		f.Add(s, true)
		f.Add(s, false)
	}
	level := small(f)
	spm, err := FromGGUF(smallSPM(f, nil))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, special bool) {
		o := EncodeOptions{ParseSpecial: special}
		ids := level.Encode(text, o)
		require.Equal(t, text, string(joined(level, ids)))
		checkStream(t, level, ids)
		if utf8.ValidString(text) {
			require.Equal(t, text, level.Decode(ids, false))
		}
		ids = spm.Encode(text, o)
		checkStream(t, spm, ids)
		if !special && !strings.Contains(text, "<tool>") {
			want := strings.ReplaceAll(text, spaceMark, " ")
			if want != "" {
				want = " " + want
			}
			require.Equal(t, want, string(joined(spm, ids)))
		}
	})
}

// FuzzFromJSON reads any bytes as a tokenizer.json: an error or a tokenizer that works, never a panic.
func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"added_tokens":[{"id":9,"content":"é","rstrip":true,"normalized":true}],"model":{"vocab":{"a":0,"b":1,"ab":2,"Ġ":7}},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"ByteLevel"}]},"decoder":{"type":"ByteLevel"}}`))
	f.Add([]byte(`{"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"Metaspace"},"model":{"type":"Unigram","unk_id":0,"vocab":[["u",0],["▁a",-1.5]]},"decoder":{"type":"Metaspace"}}`))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]],"unk_token":"a","fuse_unk":true},"decoder":{"type":"Fuse"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := FromJSON(data, data)
		if err != nil {
			require.Nil(t, tok)
			return
		}
		for _, text := range []string{"hello ab  é\n", string(data[:min(len(data), 200)])} {
			ids := tok.Encode(text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
			for _, id := range ids {
				require.True(t, tok.vocab.has(id), "id %d", id)
			}
			checkStream(t, tok, ids)
		}
	})
}

// FuzzFromGGUF reads any bytes as a model file's metadata.
func FuzzFromGGUF(f *testing.F) {
	for _, set := range []func(*gguf.Writer){
		nil,
		func(w *gguf.Writer) { w.Set("tokenizer.ggml.model", "t5") },
		func(w *gguf.Writer) {
			w.Set("tokenizer.ggml.model", "gpt2")
			w.Set("tokenizer.ggml.pre", "qwen2")
			w.Set("tokenizer.ggml.merges", []string{"h e", "l l"})
		},
	} {
		w := gguf.NewWriter()
		w.Set("tokenizer.ggml.model", "llama")
		w.Set("tokenizer.ggml.tokens", []string{"<unk>", "h", "e", "l", "he", "ll", "▁"})
		w.Set("tokenizer.ggml.token_type", []int32{2, 1, 1, 1, 1, 1, 4})
		w.Set("tokenizer.ggml.scores", []float32{0, -1, -2, -3, -4, -5, -6})
		if set != nil {
			set(w)
		}
		var b bytes.Buffer
		_, err := w.WriteTo(&b)
		require.NoError(f, err)
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse("fuzz.gguf", data)
		if err != nil {
			return
		}
		tok, err := FromGGUF(file)
		if err != nil {
			return
		}
		checkStream(t, tok, tok.Encode("hell  é\xff", EncodeOptions{AddSpecial: true, ParseSpecial: true}))
	})
}

// FuzzSPM reads any bytes as a SentencePiece file.
func FuzzSPM(f *testing.F) {
	m := tinySPM()
	m.pieces, m.scores, m.types = m.pieces[250:], m.scores[250:], m.types[250:]
	f.Add(m.encode())
	m.kind, m.charsmap = spmUnigram, []byte{4, 0, 0, 0, 0, 4, 0, 0, 'x', 0}
	f.Add(m.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseSPM(data)
		if err != nil {
			return
		}
		keys, err := m.keys(&spmConfig{added: map[int]spmAdded{}}, 0)
		require.NoError(t, err)
		tok, err := fromKeys("fuzz.model", keys)
		if err != nil || m.beyondGGUF(tok) != nil {
			return
		}
		checkStream(t, tok, tok.Encode("hell  é\xff", EncodeOptions{AddSpecial: true, ParseSpecial: true}))
	})
}
