package drafter

// Costs is a measured table of seconds by a count: tokens of a target pass, or levels of a draft. Reading it gives a curve
// that never falls, because more work never takes less time and noise must not say so.
type Costs struct {
	fromZero bool      // nothing costs nothing: unmeasured counts are proportional rather than flat below what was measured
	raw      []float64 // (limit) smoothed seconds of count i+1; 0: never measured
	weight   []float64 // (limit) observations behind raw, at most fullWeight
	clean    []float64 // (limit) what At reads; rebuilt when stale
	// steps, where nothing but count 1 was measured: how much of its value each further count is taken to cost.
	steps  func(count int) float64
	stale  bool
	known  int // counts measured
	blocks []costBlock
}

// costBlock is a run of measured counts that share one value.
type costBlock struct{ sum, weight float64 }

const (
	costAlpha  = 0.2 // share of a new observation
	costSpread = 0.5 // share of its correction that the other counts take: machines drift as a whole
	costClip   = 2.0 // an observation moves nothing by more than this factor before smoothing
	fullWeight = 16
	settled    = 4 // observations after which a deviation speaks of the machine and not of what was believed
)

// NewCosts makes an empty table for counts 1 to limit.
func NewCosts(limit int, fromZero bool) *Costs {
	return &Costs{
		fromZero: fromZero, raw: make([]float64, limit), weight: make([]float64, limit), clean: make([]float64, limit),
		blocks: make([]costBlock, 0, limit),
	}
}

// Known reports whether anything was measured.
func (c *Costs) Known() bool { return c.known > 0 }

// Set replaces the value of a count, as a calibration does.
func (c *Costs) Set(n int, seconds float64) {
	if n < 1 || n > len(c.raw) || !(seconds > 0) {
		return
	}
	if c.raw[n-1] == 0 {
		c.known++
	}
	c.raw[n-1], c.weight[n-1], c.stale = seconds, max(c.weight[n-1], 2), true
}

// trust is how well a count is known, from 0 to 1.
func (c *Costs) trust(n int) float64 {
	if n < 1 || n > len(c.weight) {
		return 1
	}
	return c.weight[n-1] / fullWeight
}

// Observe takes in one measurement. Counts beyond the table and times that are not positive are ignored.
func (c *Costs) Observe(n int, seconds float64) {
	if n < 1 || n > len(c.raw) || !(seconds > 0) {
		return
	}
	if c.known == 0 {
		c.Set(n, seconds)
		return
	}
	expected := c.At(n)
	if c.raw[n-1] == 0 {
		if c.weight[n-1] = 1; c.steps != nil && n > c.widest() {
			c.weight[n-1] = 0 // nothing speaks for what was expected
		}
		c.raw[n-1] = expected
		if c.known++; expected <= 0 {
			c.raw[n-1] = seconds
		}
	}
	ratio := min(max(seconds/expected, 1/costClip), costClip)
	alpha := max(costAlpha, 1/(c.weight[n-1]+1))
	spread := float64(costSpread*costAlpha) * min(1, c.weight[n-1]/settled)
	for i := range c.raw {
		share := spread
		if i == n-1 {
			share = alpha
		}
		c.raw[i] *= 1 + float64(share*(ratio-1))
	}
	c.weight[n-1] = min(c.weight[n-1]+1, fullWeight)
	c.stale = true
}

// At returns the seconds of a count: 0 for none or where nothing is known, linear between measured counts and beyond them.
func (c *Costs) At(n int) float64 {
	if n < 1 || c.known == 0 {
		return 0
	}
	if c.stale {
		c.rebuild()
	}
	if n <= len(c.clean) {
		return c.clean[n-1]
	}
	last := len(c.clean)
	return c.clean[last-1] + float64(max(c.slope(last), c.leastRise(last, n))*float64(n-last))
}

// slope is the cost of one more beyond count n, from the upper half of what lies below it.
func (c *Costs) slope(n int) float64 {
	half := n / 2
	if c.known == 1 || half < 1 {
		return c.clean[n-1] / float64(n) // nothing else is known: as if each cost the same
	}
	return (c.clean[n-1] - c.clean[half-1]) / float64(n-half)
}

// slopeAt is the mean cost of one more up to count n.
func (c *Costs) slopeAt(n int) float64 { return (c.At(n) - c.At(1)) / float64(n-1) }

// rebuild pools measured neighbours that fall until none does (isotonic regression), and fills the gaps.
func (c *Costs) rebuild() {
	c.stale = false
	c.blocks = c.blocks[:0]
	var size [maxCounts]int
	for i, x := range c.raw {
		if x == 0 {
			continue
		}
		c.blocks = append(c.blocks, costBlock{float64(x * c.weight[i]), c.weight[i]})
		size[len(c.blocks)-1] = 1
		for k := len(c.blocks) - 1; k > 0 && c.blocks[k-1].mean() > c.blocks[k].mean(); k-- {
			c.blocks[k-1].sum += c.blocks[k].sum
			c.blocks[k-1].weight += c.blocks[k].weight
			size[k-1] += size[k]
			c.blocks = c.blocks[:k]
		}
	}
	if c.known == 1 && c.steps != nil && c.raw[0] > 0 {
		c.guess()
		return
	}
	block, used := 0, 0
	before := 0 // the last measured count
	for i, x := range c.raw {
		if x == 0 {
			continue
		}
		if used == size[block] {
			block, used = block+1, 0
		}
		used++
		c.clean[i] = c.blocks[block].mean()
		c.fill(before, i+1)
		before = i + 1
	}
	rise := c.slope(before)
	for i := before; i < len(c.clean); i++ {
		c.clean[i] = c.clean[i-1] + max(rise, c.leastRise(before, i+1))
	}
}

// leastRise is what count n costs more than the one before at the least, where nothing beyond widest was measured: of two
// noisy passes the wider one may have been the shorter, and many more tokens are not free because of that. Once a pass is
// bound by arithmetic each token costs its share; half of that is believed without having been seen.
func (c *Costs) leastRise(widest, n int) float64 {
	if c.steps == nil || n <= firstRound {
		return 0
	}
	return c.clean[widest-1] / float64(2*max(widest, firstRound))
}

// widest returns the largest count that was measured, 0 when none was.
func (c *Costs) widest() int {
	for n := len(c.raw); n > 0; n-- {
		if c.raw[n-1] > 0 {
			return n
		}
	}
	return 0
}

// guess fills the curve from count 1 alone.
func (c *Costs) guess() {
	for i := range c.clean {
		if c.clean[i] = c.raw[0]; i > 0 {
			c.clean[i] = c.clean[i-1] + float64(c.raw[0]*c.steps(i+1))
		}
	}
}

func (b costBlock) mean() float64 { return b.sum / b.weight }

// fill interpolates the counts between two measured ones; lo is 0 below the first.
func (c *Costs) fill(lo, hi int) {
	top := c.clean[hi-1]
	bottom := top
	if lo > 0 {
		bottom = c.clean[lo-1]
	} else if c.fromZero {
		bottom = 0
	}
	for n := lo + 1; n < hi; n++ {
		c.clean[n-1] = bottom + float64((top-bottom)*float64(n-lo))/float64(hi-lo)
	}
}

// maxCounts bounds a table.
const maxCounts = 256
