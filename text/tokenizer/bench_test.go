package tokenizer

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// english returns about 4 MB of English: the comments of Go's standard library, as paragraphs.
func english(b *testing.B) string {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Skipf("go env GOROOT: %v", err)
	}
	var text strings.Builder
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || text.Len() > 4<<20 {
			return err
		}
		data, err := os.ReadFile(path)
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if line, ok := strings.CutPrefix(lines.Text(), "// "); ok && strings.Count(line, " ") > 5 {
				text.WriteString(line)
				text.WriteByte(' ')
			} else if ok {
				text.WriteString("\n")
			}
		}
		return err
	})
	if err != nil || text.Len() < 1<<20 {
		b.Skipf("too little text in Go's sources: %d bytes, %v", text.Len(), err)
	}
	return text.String()
}

// BenchmarkEncode measures English text on one core; the goal is 10 MB/s or more.
func BenchmarkEncode(b *testing.B) {
	text := english(b)
	for _, name := range []string{"llama3", "qwen2_5", "smollm2", "mistral_nemo", "llama2", "gemma3", "t5"} {
		b.Run(name, func(b *testing.B) {
			tok := loadGolden(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, EncodeOptions{ParseSpecial: true})
			}
		})
	}
}

// BenchmarkDecode measures decoding ids to text one by one.
func BenchmarkDecode(b *testing.B) {
	tok := loadGolden(b, "smollm2")
	ids := tok.Encode(english(b), EncodeOptions{})
	b.SetBytes(int64(len(ids)))
	s := tok.NewStream(true)
	for b.Loop() {
		for _, id := range ids {
			s.Push(id)
		}
	}
}

// BenchmarkFromJSON measures building a tokenizer of 150,000 pieces.
func BenchmarkFromJSON(b *testing.B) {
	data, _ := goldenJSON(b, "qwen2_5")
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := FromJSON(data, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFromGGUF measures building a tokenizer from a file's metadata.
func BenchmarkFromGGUF(b *testing.B) {
	for _, name := range []string{"qwen2_5", "gemma3"} {
		b.Run(name, func(b *testing.B) {
			f := asGGUF(b, name)
			for b.Loop() {
				if _, err := FromGGUF(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
