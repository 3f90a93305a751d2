package kvcache

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
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
		"must not be with F32":       func(c *Config) { c.F32, c.K8 = true, true },
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
	seq  *Seq
	ids  []int32 // committed
	rows []row   // committed
}

// rowOf is what a pass computes for the last of ids: a function of all of them, as law 1 has it.
func rowOf(ids []int32, n int) row {
	h := fnv.New64a()
	for _, id := range ids {
		_, _ = h.Write([]byte{byte(id)})
	}
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(len(ids))))
	r := row{make([]float32, n), make([]float32, n)}
	for i := range n {
		r.k[i] = quant.HalfToFloat(quant.FloatToHalf(float32(rng.NormFloat64())))
		r.v[i] = quant.HalfToFloat(quant.FloatToHalf(float32(rng.NormFloat64())))
	}
	return r
}

// value reads from the store that is there; scale is the index of the scale.
func value(half []uint16, full []float32, eight tensor.KV8, at, scale int) float32 {
	switch {
	case full != nil:
		return full[at]
	case half != nil:
		return quant.HalfToFloat(half[at])
	}
	return float32(eight.Codes[at]) * quant.HalfToFloat(eight.Scales[scale])
}

// stored is what a store makes of one token's row.
func stored(row []float32, cfg *Config, eight bool) []float32 {
	if !eight {
		return row
	}
	out := make([]float32, len(row))
	for first := 0; first < len(row); first += cfg.HeadDim {
		for g := 0; g < cfg.HeadDim; g += tensor.KV8Group {
			group := row[first+g : first+min(g+tensor.KV8Group, cfg.HeadDim)]
			d := quant.HalfToFloat(quant.FloatToHalf(max(slices.Max(group), -slices.Min(group)) / 127))
			for i, x := range group {
				out[first+g+i] = float32(math.RoundToEven(float64(x/d))) * d
			}
		}
	}
	return out
}

// check reads everything back through the views; appended rows follow the committed ones.
func (m *model) check(t require.TestingT, appended []row) {
	cfg := m.seq.cache.cfg
	width := cfg.KVHeads * cfg.HeadDim
	all := append(append([]row(nil), m.rows...), appended...)
	require.Equal(t, len(m.rows), m.seq.Len())
	for layer := range cfg.Layers {
		view := m.seq.View(layer, len(appended))
		require.Equal(t, len(all), view.Len)
		require.Zero(t, view.First%BlockTokens)
		want := 0
		if w := cfg.Windows[layer]; w > 0 {
			want = max(len(m.rows)+1-w, 0) / BlockTokens * BlockTokens
		}
		require.Equal(t, want, view.First)
		if capacity := int32(cfg.blocks(layer)); cfg.Contiguous {
			for i, b := range view.Blocks {
				require.Equal(t, (int32(view.First/BlockTokens)+int32(i))%capacity, b, "the place of block %d", i)
			}
		}
		for pos := view.First; pos < view.Len; pos++ {
			block := int(view.Blocks[(pos-view.First)/BlockTokens])
			at := block * width * BlockTokens
			k, v := stored(all[pos].k[layer*width:][:width], &cfg, cfg.K8), stored(all[pos].v[layer*width:][:width], &cfg, cfg.V8)
			for i := range width {
				head, d := i/cfg.HeadDim, i%cfg.HeadDim
				atK, atV := at+i*BlockTokens+pos%BlockTokens, at+(head*BlockTokens+pos%BlockTokens)*cfg.HeadDim+d
				groups := (cfg.HeadDim + 31) / 32
				scale := ((block*cfg.KVHeads+head)*groups+d/32)*BlockTokens + pos%BlockTokens
				if k[i] != value(view.K, view.K32, view.K8, atK, scale) || v[i] != value(view.V, view.V32, view.V8, atV, scale) {
					require.Failf(t, "content", "position %d of %d, layer %d, value %d", pos, view.Len, layer, i)
				}
			}
		}
	}
}

// append writes rows behind the committed ones.
func (m *model) append(rows []row) {
	cfg := m.seq.cache.cfg
	width := cfg.KVHeads * cfg.HeadDim
	for layer := range cfg.Layers {
		k, v := tensor.NewF32(len(rows), width), tensor.NewF32(len(rows), width)
		for i, r := range rows {
			copy(k.Row(i), r.k[layer*width:])
			copy(v.Row(i), r.v[layer*width:])
		}
		m.seq.Append(layer, k, v)
	}
}

// grow is a pass over n random tokens, of which some are accepted; junk is the number of other rows of a tree, which lie
// before some of them until they are moved.
func (m *model) grow(t *rapid.T, n, accepted, junk int) {
	width := m.seq.cache.cfg.KVHeads * m.seq.cache.cfg.HeadDim * m.seq.cache.cfg.Layers
	free := freeOf(m.seq.cache)
	taken := m.seq.cache.taken(m.seq)
	if err := m.seq.Reserve(n + junk); err != nil || taken {
		want := "are free"
		if taken {
			want = "in a contiguous cache, which another sequence of"
		}
		require.ErrorContains(t, err, want)
		require.Equal(t, free, freeOf(m.seq.cache), "a refusal takes nothing")
		return
	}
	ids := append([]int32(nil), m.ids...)
	var rows []row
	var at []int
	for range n {
		if junk > 0 && rapid.Bool().Draw(t, "junk") {
			rows = append(rows, rowOf([]int32{9, int32(junk)}, width))
			junk--
		}
		ids = append(ids, int32(rapid.IntRange(0, 1).Draw(t, "token")*rapid.IntRange(0, 1).Draw(t, "rare")))
		at = append(at, len(rows))
		rows = append(rows, rowOf(ids, width))
	}
	m.append(rows)
	m.check(t, rows)
	for i, from := range at {
		m.seq.Move(from, i)
		rows[i] = rows[from]
	}
	m.check(t, rows)
	m.seq.Commit(accepted)
	m.ids, m.rows = ids[:len(m.ids)+accepted], append(m.rows[:len(m.rows):len(m.rows)], rows[:accepted]...)
}

// freeOf is what every pool has left.
func freeOf(c *Cache) (free []int) {
	for _, p := range c.pools {
		free = append(free, p.available())
	}
	return free
}

// truncate cuts, by how much the windows allow.
func (m *model) truncate(t *rapid.T, n int) {
	left := m.seq.Truncate(n)
	if left != n {
		require.Zero(t, left)
	}
	m.ids, m.rows = m.ids[:left], m.rows[:left]
}

// adopt fills an empty sequence from the prefix cache.
func (m *model) adopt(t *rapid.T, ids []int32) int {
	taken := m.seq.cache.taken(m.seq)
	n := m.seq.Adopt(ids)
	require.LessOrEqual(t, n, len(ids))
	require.False(t, taken && n > 0)
	cfg := m.seq.cache.cfg
	m.ids, m.rows = append([]int32(nil), ids[:n]...), nil
	for i := range n {
		m.rows = append(m.rows, rowOf(ids[:i+1], cfg.KVHeads*cfg.HeadDim*cfg.Layers))
	}
	return n
}

// TestAgainstModel does random operations on several sequences of one cache that is too small for all of them, with a
// good hash and with one under which everything collides.
func TestAgainstModel(t *testing.T) {
	for name, hash := range map[string]func(uint64, []int32) uint64{
		"chained": chainHash, "colliding": func(uint64, []int32) uint64 { return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { againstModel(t, hash) })
		})
	}
}

func againstModel(t *rapid.T, hash func(uint64, []int32) uint64) {
	cfg := Config{
		Layers: 2, KVHeads: 2, HeadDim: 3, Windows: rapid.SampledFrom([][]int{{0, 20}, {0, 0}, {20, 5}}).Draw(t, "windows"),
		Blocks: rapid.IntRange(8, 40).Draw(t, "blocks"), WindowBlocks: 25,
	}
	switch rapid.IntRange(0, 3).Draw(t, "format") {
	case 1:
		cfg.F32 = true
	case 2:
		cfg.K8, cfg.V8, cfg.HeadDim = true, true, 35
	case 3:
		cfg.V8 = true
	}
	cfg.Contiguous = rapid.Bool().Draw(t, "contiguous")
	c, err := New(cfg)
	require.NoError(t, err)
	defer c.Close()
	c.prefix.hash = hash
	all := freeOf(c)
	models := make([]*model, 4)
	for i := range models {
		models[i] = &model{seq: c.NewSeq()}
	}
	var known []int32 // some published tokens
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		i := rapid.IntRange(0, 3).Draw(t, "sequence")
		if cfg.Contiguous && len(c.live) > 0 && rapid.IntRange(0, 9).Draw(t, "other") > 0 {
			i = slices.IndexFunc(models, func(m *model) bool { return m.seq == c.live[0] })
		}
		m := models[i]
		switch rapid.SampledFrom([]string{"grow", "grow", "grow", "tree", "truncate", "fork", "publish", "release", "adopt", "free"}).Draw(t, "op") {
		case "grow":
			n := rapid.IntRange(1, 40).Draw(t, "rows")
			m.grow(t, n, n, 0)
		case "tree":
			n := rapid.IntRange(1, 20).Draw(t, "rows")
			m.grow(t, n, rapid.IntRange(0, n).Draw(t, "accepted"), rapid.IntRange(0, 10).Draw(t, "others"))
		case "truncate":
			m.truncate(t, rapid.IntRange(0, len(m.rows)).Draw(t, "length"))
		case "fork":
			if cfg.Contiguous {
				require.PanicsWithValue(t, fmt.Sprintf("kvcache: fork of %d tokens in a contiguous cache, which holds one sequence", len(m.rows)), func() { m.seq.Fork() })
				break
			}
			j := (i + 1) % 4
			models[j].seq.Free()
			models[j] = &model{seq: m.seq.Fork(), ids: m.ids[:len(m.ids):len(m.ids)], rows: m.rows[:len(m.rows):len(m.rows)]}
		case "publish":
			m.seq.Publish(m.ids)
			known = m.ids
		case "release":
			known = m.ids
			m.seq.Release(m.ids)
			m.ids, m.rows = nil, nil
		case "adopt":
			m.seq.Free()
			m.adopt(t, append(slices.Clone(known[:rapid.IntRange(0, len(known)).Draw(t, "same")]), 0, 1, 0))
		case "free":
			m.seq.Free()
			m.ids, m.rows = nil, nil
		}
		for _, m := range models {
			m.check(t, nil)
		}
		require.NoError(t, c.CheckIntegrity())
	}
	for _, m := range models {
		m.seq.Free()
	}
	require.Equal(t, all, freeOf(c))
	require.NoError(t, c.CheckIntegrity())
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
