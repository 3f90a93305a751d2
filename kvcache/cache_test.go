package kvcache

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"quickdraft/quant"
	"quickdraft/tensor"
)

func TestNewRefuses(t *testing.T) {
	good := Config{Layers: 2, KVHeads: 3, HeadDim: 8, Blocks: 4}
	for want, change := range map[string]func(*Config){
		"Layers is 0":                func(c *Config) { c.Layers = 0 },
		"KVHeads is -1":              func(c *Config) { c.KVHeads = -1 },
		"HeadDim is 0":               func(c *Config) { c.HeadDim = 0 },
		"Blocks is 4294967296":       func(c *Config) { c.Blocks = 1 << 32 },
		"Windows has 1 entries":      func(c *Config) { c.Windows = []int{0} },
		"more than any machine maps": func(c *Config) { c.HeadDim, c.Blocks, c.Layers = 1<<30, 1<<30, 1<<30 },
	} {
		cfg := good
		change(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, want)
	}
	c, err := New(good)
	require.NoError(t, err)
	require.Equal(t, 4, c.Blocks())
	require.EqualValues(t, 2*2*2*3*8*16*4, c.Bytes())
	c.Close()
}

func TestReserve(t *testing.T) {
	c, err := New(Config{Layers: 1, KVHeads: 1, HeadDim: 2, Blocks: 3})
	require.NoError(t, err)
	defer c.Close()
	a, b := c.NewSeq(), c.NewSeq()
	require.NoError(t, a.Reserve(17))
	require.Equal(t, 1, c.FreeBlocks())
	require.NoError(t, a.Reserve(32), "room that is there is not taken twice")
	require.Equal(t, 1, c.FreeBlocks())
	require.EqualError(t, b.Reserve(17), "kvcache: 17 more tokens after 0 need 2 blocks of 16 tokens, 1 of 3 are free")
	require.Equal(t, 1, c.FreeBlocks(), "a refusal takes nothing")
	require.Error(t, b.Reserve(-1))
	require.NoError(t, b.Reserve(16))
	a.Truncate(0)
	require.Equal(t, 2, c.FreeBlocks(), "reserved blocks come back too")
	b.Free()
	require.Equal(t, 3, c.FreeBlocks())

	require.Panics(t, func() { a.Append(0, tensor.NewF32(1, 2), tensor.NewF32(1, 2)) })
	require.Panics(t, func() { a.Commit(1) })
	require.Panics(t, func() { a.View(0, 1) })
	require.Panics(t, func() { a.Truncate(1) })
	require.NoError(t, a.Reserve(1))
	require.Panics(t, func() { a.Append(0, tensor.NewF32(1, 3), tensor.NewF32(1, 3)) })
	require.Panics(t, func() { a.Append(0, tensor.NewF32(1, 2), tensor.NewF32(2, 2)) })
}

// row is what the model of a sequence remembers of a token: keys and values of all layers.
type row struct{ k, v []float32 } // (Layers*KVHeads*HeadDim), as float16 keeps them

// model is the plain twin of a Seq.
type model struct {
	seq      *Seq
	rows     []row // committed
	appended []row
}

func randomRow(rng *rand.Rand, n int) row {
	r := row{make([]float32, n), make([]float32, n)}
	for i := range n {
		r.k[i] = quant.HalfToFloat(quant.FloatToHalf(float32(rng.NormFloat64())))
		r.v[i] = quant.HalfToFloat(quant.FloatToHalf(float32(rng.NormFloat64())))
	}
	return r
}

// value reads from the one of the two stores that is there.
func value(half []uint16, full []float32, at int) float32 {
	if full != nil {
		return full[at]
	}
	return quant.HalfToFloat(half[at])
}

// check reads everything back through the views.
func (m *model) check(t *rapid.T) {
	cfg := m.seq.cache.cfg
	width := cfg.KVHeads * cfg.HeadDim
	all := append(append([]row(nil), m.rows...), m.appended...)
	require.Equal(t, len(m.rows), m.seq.Len())
	for layer := range cfg.Layers {
		view := m.seq.View(layer, len(m.appended))
		require.Equal(t, len(all), view.Len)
		require.Zero(t, view.First%BlockTokens)
		want := 0
		if w := cfg.Windows[layer]; w > 0 {
			want = max(len(m.rows)+1-w, 0) / BlockTokens * BlockTokens
		}
		require.Equal(t, want, view.First)
		for pos := view.First; pos < view.Len; pos++ {
			at := int(view.Blocks[(pos-view.First)/BlockTokens]) * width * BlockTokens
			for i := range width {
				head, d := i/cfg.HeadDim, i%cfg.HeadDim
				atK, atV := at+i*BlockTokens+pos%BlockTokens, at+(head*BlockTokens+pos%BlockTokens)*cfg.HeadDim+d
				require.Equal(t, all[pos].k[layer*width+i], value(view.K, view.K32, atK))
				require.Equal(t, all[pos].v[layer*width+i], value(view.V, view.V32, atV))
			}
		}
	}
}

func (m *model) append(rng *rand.Rand, n int) {
	cfg := m.seq.cache.cfg
	width := cfg.KVHeads * cfg.HeadDim
	m.appended = nil
	for range n {
		m.appended = append(m.appended, randomRow(rng, cfg.Layers*width))
	}
	for layer := range cfg.Layers {
		k, v := tensor.NewF32(n, width), tensor.NewF32(n, width)
		for i, r := range m.appended {
			copy(k.Row(i), r.k[layer*width:])
			copy(v.Row(i), r.v[layer*width:])
		}
		m.seq.Append(layer, k, v)
	}
}

// TestAgainstModel does random operations on several sequences of one cache that is too small for all of them.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Layers: 2, KVHeads: 2, HeadDim: 3, Windows: []int{0, 20}, Blocks: 12, F32: rapid.Bool().Draw(t, "float32")}
		c, err := New(cfg)
		require.NoError(t, err)
		defer c.Close()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		models := []*model{{seq: c.NewSeq()}, {seq: c.NewSeq()}, {seq: c.NewSeq()}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			m := models[rapid.IntRange(0, 2).Draw(t, "sequence")]
			switch rapid.SampledFrom([]string{"append", "append", "commit", "truncate", "move", "free"}).Draw(t, "op") {
			case "append":
				n := rapid.IntRange(1, 40).Draw(t, "rows")
				free := c.FreeBlocks()
				if err := m.seq.Reserve(n); err != nil {
					require.ErrorContains(t, err, "are free")
					require.Equal(t, free, c.FreeBlocks())
					continue
				}
				m.append(rng, n)
			case "commit":
				n := rapid.IntRange(0, len(m.appended)).Draw(t, "accepted")
				m.seq.Commit(n)
				m.rows, m.appended = append(m.rows, m.appended[:n]...), m.appended[n:]
			case "truncate":
				n := rapid.IntRange(0, len(m.rows)).Draw(t, "length")
				m.seq.Truncate(n)
				m.rows, m.appended = m.rows[:n], nil
			case "move":
				if len(m.appended) > 1 {
					from := rapid.IntRange(1, len(m.appended)-1).Draw(t, "from")
					to := rapid.IntRange(0, from).Draw(t, "to")
					m.seq.Move(from, to)
					m.appended[to] = m.appended[from]
				}
			case "free":
				m.seq.Free()
				m.rows, m.appended = nil, nil
			}
			held := 0
			for _, m := range models {
				m.check(t)
				held += len(m.seq.blocks)
			}
			require.Equal(t, cfg.Blocks, held+c.FreeBlocks())
		}
		for _, m := range models {
			m.seq.Free()
		}
		require.Equal(t, cfg.Blocks, c.FreeBlocks())
	})
}

func TestPassAllocatesNothing(t *testing.T) {
	c, err := New(Config{Layers: 3, KVHeads: 2, HeadDim: 16, Blocks: 8})
	require.NoError(t, err)
	defer c.Close()
	s := c.NewSeq()
	x := tensor.NewF32(5, 32)
	total := 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		if s.Len() > 100 {
			s.Truncate(3)
		}
		require.NoError(t, s.Reserve(5))
		for layer := range 3 {
			s.Append(layer, x, x)
			total += s.View(layer, 5).Len
		}
		s.Move(4, 1)
		s.Commit(2)
		s.Truncate(s.Len())
	}))
	require.Positive(t, total)
}
