package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"
)

// Limits of a template. The largest of 87 public templates has 17 kB and about 2,000 nodes, nested 20 deep.
const (
	maxSource = 256 << 10 // bytes of template text
	maxNodes  = 20_000    // expressions and statements
	maxNest   = 150       // brackets, signs and blocks inside each other in the text
	maxTree   = 300       // statements and expressions inside each other, chains like a.b.c and a|f|g included
)

// Limits of one rendering. They grow with the input, so that a long conversation is served and a small request cannot make
// a hostile template run long: the goldens use at most a twentieth of them. A step is one operation, or 32 bytes or one
// list item handled by it, and costs 50 to 300 ns and about as many bytes of garbage.
const (
	baseSteps     = 150_000
	stepsPerNode  = 2_000 // and steps for every pair of nodes, because some templates look back from each message
	stepsPerPair  = 4
	baseBytes     = 6 << 20 // bytes of strings and lists made
	bytesPerByte  = 32
	maxRangeItems = 100_000 // as in jinja2's sandbox
	maxDepth      = 3_000   // statements and expressions inside each other, summed over macro calls; about 1 KB of stack each
	maxValueDepth = 200     // lists and dicts inside each other
	baseTime      = 500 * time.Millisecond
	timePerNode   = 250 * time.Microsecond
	clockEvery    = 2_048 // steps between two looks at the clock
)

// run is one rendering: what it may still use, and what the template's values are beyond what the library's types say.
type run struct {
	ctx      context.Context
	time     time.Duration // allowed
	deadline time.Time
	steps    int64 // left
	bytes    int64 // left
	nextLook int64 // look at the clock when steps falls below it
	depth    int

	tags map[any]tag // *jinja.List and *jinja.Dict that are not plain lists and dicts
	now  func() time.Time

	grownText grower[byte]
	grownList grower[jinja.Value]

	texts []jinja.Value
	sites []site
}

func newRun(ctx context.Context, t *Template, in Input) (*run, error) {
	r := &run{ctx: ctx, now: in.Now, texts: t.texts, sites: t.sites}
	if r.now == nil {
		r.now = time.Now
	}
	var size inputSize
	values := []jinja.Value{in.Messages, in.Tools, in.Documents}
	for _, v := range in.Vars {
		values = append(values, v.Value)
	}
	for _, v := range values {
		if err := size.add(v, 0); err != nil {
			return nil, err
		}
	}
	pairs := min(size.nodes, 1<<20) * min(size.nodes, 1<<20)
	r.steps = baseSteps + stepsPerNode*size.nodes + stepsPerPair*pairs + size.bytes
	r.time = baseTime + timePerNode*time.Duration(min(size.nodes, 1<<20))
	r.deadline = time.Now().Add(r.time)
	r.bytes = baseBytes + bytesPerByte*(size.bytes+64*size.nodes)
	r.nextLook = r.steps - clockEvery
	return r, nil
}

// inputSize counts the values and the text of an input.
type inputSize struct{ nodes, bytes int64 }

func (s *inputSize) add(v jinja.Value, depth int) error {
	if depth > maxValueDepth {
		return &Error{Msg: fmt.Sprintf("input nests lists and objects deeper than %d", maxValueDepth)}
	}
	s.nodes++
	switch {
	case v.IsString():
		s.bytes += int64(len(v.AsString()))
	case v.IsList():
		for _, item := range v.AsList().Items {
			if err := s.add(item, depth+1); err != nil {
				return err
			}
		}
	case v.IsDict():
		d := v.AsDict()
		for _, key := range d.Keys {
			s.bytes += int64(len(key))
			if err := s.add(d.Data[key], depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	errSteps = errors.New("takes more steps than its input allows")
	errBytes = errors.New("makes more text than its input allows")
	errDepth = errors.New("calls itself too deeply")
	errNest  = fmt.Errorf("nests a value deeper than %d", maxValueDepth)
)

// spend takes n steps from what is left.
func (r *run) spend(n int) error {
	r.steps -= int64(n) + 1
	if r.steps < 0 {
		return errSteps
	}
	if r.steps < r.nextLook {
		r.nextLook = r.steps - clockEvery
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(r.deadline) {
			return fmt.Errorf("takes longer than %v", r.time)
		}
	}
	return nil
}

// alloc takes n bytes from what is left; call it before making them.
func (r *run) alloc(n int) error {
	if n < 0 || int64(n) > r.bytes {
		r.bytes = 0
		return errBytes
	}
	r.bytes -= int64(n)
	return r.spend(n / 32)
}

// allocTimes is alloc(count*size) without the overflow.
func (r *run) allocTimes(count, size int) error {
	if count > 0 && size > 0 && int64(count) > r.bytes/int64(size) {
		r.bytes = 0
		return errBytes
	}
	return r.alloc(max(count, 0) * size)
}

// enter opens a call made at a site nested n deep; close it with leave.
func (r *run) enter(n int) error {
	if r.depth+n+1 > maxDepth {
		return errDepth
	}
	r.depth += n + 1
	return r.spend(1)
}

func (r *run) leave(n int) { r.depth -= n + 1 }
