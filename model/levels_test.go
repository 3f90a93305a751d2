package model

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"quickdraft/asm/cpu"
	"quickdraft/kvcache"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// levelModels writes the models of TestLogitsOfEveryLevel into a folder: every architecture with all formats in turn, every
// format alone, and int8 keys and values.
func levelModels(t *testing.T, dir string) {
	models := map[string]*tinyFile{"int8 KV": tinyGGUF("qwen2")}
	for name := range tinyArchs {
		models[name] = tinyOf(name)
	}
	for _, f := range quant.All() {
		models[f.Name] = tinyGGUF("llama", f.Type)
	}
	for name, f := range models {
		require.NoError(t, os.Rename(f.write(t), levelPath(dir, name)))
	}
}

func levelPath(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".gguf")
}

// levelBits are the hashes of the logits. They are the same for every instruction set, GOAMD64 and number of threads.
var levelBits = map[string]uint32{
	"BF16": 0x3835b429, "F16": 0xdd6d4907, "F32": 0x66b991d6, "IQ4_NL": 0x05e27179, "IQ4_XS": 0xd887aa41,
	"MXFP4": 0x21824947, "Q2_K": 0xb10df1af, "Q3_K": 0x0157320c, "Q4_0": 0xf03402b0, "Q4_1": 0x6f318d4c,
	"Q4_K": 0x04e744f7, "Q5_0": 0x2e852430, "Q5_1": 0x9fd8a0e4, "Q5_K": 0xb6610ea1, "Q6_K": 0xe49458bf,
	"Q8_0": 0x578270a4, "gemma3": 0x02629d24, "int8 KV": 0x3c89e3ad, "llama": 0xb141b1c7,
	"llama/window": 0xf725813a, "qwen2": 0x016fe586, "qwen3": 0x4b9a471b,
}

const levelVariable = "MODEL_TEST_LEVEL_MODELS" // the folder of levelModels

// TestLogitsOfEveryLevel runs a prompt in passes of 1 to 17 tokens and a tree, with one and two threads, and compares the
// bits of all logits with those written down here. Without QUICKDRAFT_ISA it does so in a process for each instruction set
// that the processor has.
func TestLogitsOfEveryLevel(t *testing.T) {
	isa, dir := os.Getenv(cpu.EnvISA), os.Getenv(levelVariable)
	if dir == "" {
		dir = t.TempDir()
		levelModels(t, dir)
	}
	if isa == "" {
		for _, level := range cpu.Levels() {
			if cpu.Has(level) {
				cmd := exec.Command(os.Args[0], "-test.run=^TestLogitsOfEveryLevel$")
				cmd.Env = append(os.Environ(), cpu.EnvISA+"="+level.String(), levelVariable+"="+dir)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s: %s", level, out)
			}
		}
		return
	}
	require.NoError(t, cpu.Err())
	require.Equal(t, isa, cpu.Best().String())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, len(levelBits))
	got := make(map[string]uint32)
	for name := range levelBits {
		got[name] = bitsOf(t, name, levelPath(dir, name))
	}
	require.Equal(t, levelBits, got)
}

// passSizes are the numbers of tokens in a pass. The reference has one loop for all numbers, so that some of them do.
func passSizes() []int {
	if cpu.Best() == cpu.Go {
		return []int{17, 1, 7, 9}
	}
	return []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}
}

// bitsOf hashes the logits of a prompt and of a tree of guesses after it.
func bitsOf(t *testing.T, name, path string) uint32 {
	ids, parents := tokensOf(11, 18), []int32{-1, 0, 0, 1, 2, -1, 5}
	var want, wantTree [][]float32
	for _, threads := range []int{1, 2} {
		pool := tensor.NewPool(threads)
		defer pool.Close()
		m := loadModel(t, path, Options{Pool: pool, MaxBatch: 64})
		for _, n := range passSizes() {
			config := m.CacheConfig(8)
			config.K8, config.V8 = name == "int8 KV", name == "int8 KV"
			cache, err := kvcache.New(config)
			require.NoError(t, err)
			seq := cache.NewSeq()
			var got [][]float32
			for at := 0; at < len(ids); at += n {
				got = append(got, feed(t, m, seq, ids[at:min(at+n, len(ids))])...)
			}
			tree, err := m.Forward(&Batch{Tokens: ids[:7], Spans: []Span{{Seq: seq, N: 7, Parents: parents}}, Logits: []int32{0, 1, 2, 3, 4, 5, 6}})
			require.NoError(t, err)
			if want == nil {
				want, wantTree = got, rows(tree)
			}
			require.Equal(t, want, got, "%s: %d threads, %d tokens a pass", name, threads, n)
			require.Equal(t, wantTree, rows(tree), "%s: a tree after passes of %d", name, n)
			cache.Close()
		}
	}
	h := fnv.New32a()
	for _, row := range append(want, wantTree...) {
		for _, v := range row {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
	}
	return h.Sum32()
}
