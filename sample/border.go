package sample

import (
	"cmp"
	"math"
	"slices"
)

// cut is the border of a selection in descending order of a key, where among equal keys the higher id comes first: everything above
// key stays, and of the `equal` entries that are key the last `ties` in id order.
type cut struct {
	key         float64
	ties, equal int
}

// ranked is an entry of a border's bin.
type ranked struct {
	key, weight float64
	index       int32
}

const (
	nBins    = 512
	sortable = 1024 // entries that are sorted rather than split again
)

// selector finds borders without sorting everything: it splits the range of the keys into bins, finds the bin in which the sum of
// weights reaches the target, and looks at that bin alone. Sums run over a bin in id order and over the bins in descending order.
type selector struct {
	mass    [nBins]float64
	count   [nBins]int32
	entries []ranked // (vocab)
	best    [2 * maxKth]float64
}

// border returns the cut of the shortest descending run of keys whose weights sum up to target or more. A nil weights counts
// entries. All keys are finite; span is a guess of how far below the highest key the border lies. ok is false when all entries
// together stay below target.
func (s *selector) border(keys, weights []float64, span, target float64) (c cut, ok bool) {
	hi := math.Inf(-1)
	for _, k := range keys {
		if k > hi {
			hi = k
		}
	}
	bin, acc, ok := s.split(keys, weights, hi, span, target)
	if !ok {
		return cut{}, false
	}
	scale := nBins / span
	in := s.entries[:0]
	for i, k := range keys {
		if binOf(hi-k, scale) == bin {
			in = append(in, ranked{k, weightOf(weights, i), int32(i)})
		}
	}
	return s.within(in, acc, target), true
}

// within is the cut inside entries before which the sum is acc.
func (s *selector) within(in []ranked, acc, target float64) cut {
	for len(in) > sortable {
		top, low := bounds(in)
		if top == low {
			return equalCut(in, acc, target)
		}
		scale := nBins / (top - low)
		if math.IsInf(scale, 1) {
			break // too close together to be split
		}
		in, acc = s.narrow(in, top, scale, acc, target)
	}
	return sortedCut(in, acc, target)
}

// flatMargin is by which part of the target a sample of every sampleStep-th weight may be wrong: four standard deviations where
// 10,000 weights count that differ by their own size.
const flatMargin = 0.04

// bracket returns keys between which, by a sample, the sum of weights in descending order of keys reaches target. hi is the
// highest key and span a guess of how far below it the border lies.
func (s *selector) bracket(keys, weights []float64, hi, span, target float64) (above, below float64, ok bool) {
	scale := nBins / span
	clear(s.mass[:])
	for lo := 0; lo < len(keys); lo += sampleRun * sampleStep {
		for i := lo; i < min(lo+sampleRun, len(keys)); i++ {
			s.mass[binOf(hi-keys[i], scale)] += weights[i]
		}
	}
	first, _, _ := s.reach(0, float64(target*((1-flatMargin)/sampleStep)))
	last, _, ok := s.reach(0, float64(target*((1+flatMargin)/sampleStep)))
	return hi - float64(first)/scale, hi - float64(last+1)/scale, ok && last < nBins-1
}

func weightOf(weights []float64, i int) float64 {
	if weights == nil {
		return 1
	}
	return weights[i]
}

// binOf is monotone in distance, so bins are in descending order of the keys whatever the rounding.
func binOf(distance, scale float64) int {
	x := float64(distance * scale)
	if !(x < nBins-1) {
		return nBins - 1
	}
	return int(x)
}

// split fills the bins and returns the first one in which the sum reaches target, with the sum before it.
func (s *selector) split(keys, weights []float64, hi, span, target float64) (bin int, acc float64, ok bool) {
	scale := nBins / span
	if weights == nil {
		clear(s.count[:])
		for _, k := range keys {
			s.count[binOf(hi-k, scale)]++
		}
		for b, n := range s.count {
			s.mass[b] = float64(n)
		}
	} else {
		clear(s.mass[:])
		for i, k := range keys {
			s.mass[binOf(hi-k, scale)] += weights[i]
		}
	}
	return s.reach(0, target)
}

// reach returns the bin in which the running sum reaches target and the sum before it; if rounding kept the sum below target, the
// last filled bin and false.
func (s *selector) reach(acc, target float64) (bin int, before float64, ok bool) {
	for b, m := range s.mass {
		if m == 0 {
			continue
		}
		bin, before = b, acc
		if acc += m; acc >= target {
			return bin, before, true
		}
	}
	return bin, before, false
}

// narrow replaces the entries by those of the bin that holds the border.
func (s *selector) narrow(in []ranked, hi, scale, acc, target float64) ([]ranked, float64) {
	clear(s.mass[:])
	for i := range in {
		s.mass[binOf(hi-in[i].key, scale)] += in[i].weight
	}
	bin, before, _ := s.reach(acc, target)
	out := in[:0]
	for _, e := range in {
		if binOf(hi-e.key, scale) == bin {
			out = append(out, e)
		}
	}
	return out, before
}

func bounds(in []ranked) (top, low float64) {
	top, low = in[0].key, in[0].key
	for i := range in {
		if key := in[i].key; key > top {
			top = key
		} else if key < low {
			low = key
		}
	}
	return top, low
}

// equalCut is the cut inside entries of one key.
func equalCut(in []ranked, acc, target float64) cut {
	for i := len(in) - 1; i >= 0; i-- {
		if acc += in[i].weight; acc >= target {
			return cut{in[0].key, len(in) - i, len(in)}
		}
	}
	return cut{in[0].key, len(in), len(in)}
}

// sortedCut is the cut inside a few entries.
func sortedCut(in []ranked, acc, target float64) cut {
	slices.SortFunc(in, func(a, b ranked) int {
		if a.key != b.key {
			return cmp.Compare(b.key, a.key)
		}
		return cmp.Compare(b.index, a.index)
	})
	at := len(in) - 1
	for i := range in {
		if acc += in[i].weight; acc >= target {
			at = i
			break
		}
	}
	c := cut{key: in[at].key}
	for i := range in {
		if in[i].key == c.key {
			c.equal++
			if i <= at {
				c.ties++
			}
		}
	}
	return c
}

// nth returns the k-th largest of keys, which are finite; 1 <= k <= len(keys).
func (s *selector) nth(keys []float64, k int) float64 {
	if k <= maxKth {
		return s.kth(keys, k)
	}
	cut, _ := s.border(keys, nil, 32, float64(k))
	return cut.key
}

// maxKth is the largest k of kth.
const maxKth = 256

// kth returns the k-th largest key, 1 <= k <= min(len(keys), maxKth). Of random keys nearly all fail the first comparison.
func (s *selector) kth(keys []float64, k int) float64 {
	buf := s.best[:0]
	low := math.Inf(-1)
	for _, key := range keys {
		if !(key > low) {
			continue
		}
		buf = append(buf, key)
		if len(buf) == 2*k {
			slices.Sort(buf)
			buf = buf[:copy(buf, buf[k:])]
			low = buf[0]
		}
	}
	if len(buf) < k {
		return low
	}
	slices.Sort(buf)
	return buf[len(buf)-k]
}
