package chat

import (
	"strings"
	"unsafe"

	"github.com/ardanlabs/jinja"
)

// Templates collect output in a variable, ns.out = ns.out ~ piece, and a copy each time would make a long conversation cost
// the square of its length. grower keeps the newest results with room behind them: appending to one of those costs only the
// piece. What earlier results see of the memory never changes, since only the room behind the newest is written.
type grower[T any] struct {
	bufs [2][]T
	next int // the one to give up
}

// Sizes from which a result is kept.
const (
	growText = 1 << 10 // bytes
	growList = 1 << 6  // items
)

// find returns the buffer whose content x is, or -1.
func (g *grower[T]) find(x []T) int {
	for i, b := range g.bufs {
		if len(b) == len(x) && unsafe.SliceData(b) == unsafe.SliceData(x) {
			return i
		}
	}
	return -1
}

// cost is how many elements must be written or made to append n to x.
func (g *grower[T]) cost(x []T, n int) int {
	if at := g.find(x); at >= 0 && cap(g.bufs[at])-len(x) >= n {
		return n
	}
	return n + grownCap(len(x)+n)
}

func grownCap(n int) int { return n + n/4 }

// open returns x with room for n more behind it, and the buffer to give to close.
func (g *grower[T]) open(x []T, n int) ([]T, int) {
	at := g.find(x)
	if at < 0 {
		at = g.next
		g.next = 1 - at
	} else if b := g.bufs[at]; cap(b)-len(b) >= n {
		return b, at
	}
	return append(make([]T, 0, grownCap(len(x)+n)), x...), at
}

func (g *grower[T]) close(at int, out []T) { g.bufs[at] = out }

// concat joins texts and pays for the result.
func (r *run) concat(x string, rest ...string) (jinja.Value, error) {
	n := 0
	for _, s := range rest {
		n += len(s)
	}
	if len(x) < growText {
		if err := r.alloc(len(x) + n); err != nil {
			return jinja.Value{}, err
		}
		var b strings.Builder
		b.Grow(len(x) + n)
		b.WriteString(x)
		for _, s := range rest {
			b.WriteString(s)
		}
		return jinja.NewString(b.String()), nil
	}
	bytes := unsafe.Slice(unsafe.StringData(x), len(x))
	if err := r.alloc(r.grownText.cost(bytes, n)); err != nil {
		return jinja.Value{}, err
	}
	b, at := r.grownText.open(bytes, n)
	for _, s := range rest {
		b = append(b, s...)
	}
	r.grownText.close(at, b)
	return jinja.NewString(unsafe.String(unsafe.SliceData(b), len(b))), nil
}

// extend joins lists and pays for the result.
func (r *run) extend(x, y []jinja.Value) ([]jinja.Value, error) {
	if len(x) < growList {
		if err := r.allocTimes(len(x)+len(y)+2, valueBytes); err != nil {
			return nil, err
		}
		return append(append(make([]jinja.Value, 0, len(x)+len(y)), x...), y...), nil
	}
	if err := r.allocTimes(r.grownList.cost(x, len(y))+2, valueBytes); err != nil {
		return nil, err
	}
	out, at := r.grownList.open(x, len(y))
	out = append(out, y...)
	r.grownList.close(at, out)
	return out, nil
}
