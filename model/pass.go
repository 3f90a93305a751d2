package model

import (
	"fmt"
	"runtime/debug"
	"strings"

	"quickdraft/kvcache"
	"quickdraft/machine"
	"quickdraft/quant"
	"quickdraft/tensor"
)

// Span is a run of tokens of one sequence in a batch.
type Span struct {
	Seq *kvcache.Seq
	N   int // tokens
	// Parents makes the span a tree of guesses: for each token the index in the span of the token before it, -1 for the
	// last committed one. Parents come before their children. Nil is a chain.
	Parents []int32
	// Prompt is the length of the prompt that the sequence begins with, for models whose rope depends on it (Phi-3 with
	// long contexts): it must not change between the passes of a sequence. 0 is the length of its first pass.
	Prompt int
}

// Batch is one pass: tokens of one or more sequences.
type Batch struct {
	Tokens []int32 // of all spans, in their order
	Spans  []Span
	Logits []int32 // indexes into Tokens of the rows whose logits are wanted
	Layers []bool  // (Config.Layers) whether a decoder layer takes part; nil: all do. The others append nothing.
	// Shortlist, of this model, makes the rows of logits those of its tokens; nil: rows are (Vocab).
	Shortlist *Shortlist
}

// NaNError says that a pass made logits that are not numbers.
type NaNError struct {
	Rows  []int32 // indexes into Batch.Tokens
	Layer int     // the first layer after which such values appear; -1: in the embedding, Config.Layers: in the output
}

// Error names the rows and the place where such values were first seen.
func (e *NaNError) Error() string {
	where := fmt.Sprintf("after layer %d", e.Layer)
	if e.Layer < 0 {
		where = "in the embedding"
	}
	return fmt.Sprintf("logits of batch rows %s are NaN or infinite; first seen %s", strings.Trim(fmt.Sprint(e.Rows), "[]"), where)
}

// pass is the state of one forward pass: what Forward's caller asked for and the activations, one row a token. Everything
// is allocated once, for max tokens; the matrices below are cut to the batch's rows.
type pass struct {
	cpu   *tensor.CPU
	max   int // tokens
	arena *tensor.Arena

	tokens      []int32
	pos         []int32         // absolute position of each token
	posFull     []int32         // with max rows
	reachFull   []int32         // with max rows: see reach
	spans       []tensor.KVSpan // one a sequence
	seqs        []*kvcache.Seq  // of the spans
	want        []int32         // rows whose logits are wanted
	layers      []bool          // Batch.Layers
	short       *Shortlist      // Batch.Shortlist
	full        activations     // with max rows
	activations                 // with the batch's rows

	hidden tensor.F32 // (len(want), Dim), after the last norm
	logits tensor.F32 // (len(want), Vocab), or as many columns as the shortlist has tokens
	// The two grow to the most rows that were ever wanted: a row of logits is large and a prompt wants one.
	hiddenFull, logitsFull tensor.F32

	firsts []int32 // rows at position 0, when their activations are quantised
	codes  []byte  // of one row

	tracing  bool // look for the first layer that makes NaN
	firstNaN int
}

// activations are the buffers that decoder layers share.
type activations struct {
	x, h     tensor.F32 // (n, Dim): the residual stream; a layer's input or output
	ffn      tensor.F32 // (n, Dim): what a mixture makes of h
	q, att   tensor.F32 // (n, Heads*HeadDim)
	k, v     tensor.F32 // (n, KVHeads*HeadDim)
	gate, up tensor.F32 // (n, FF)
}

func (a *activations) each(f func(*tensor.F32)) {
	for _, m := range []*tensor.F32{&a.x, &a.h, &a.ffn, &a.q, &a.att, &a.k, &a.v, &a.gate, &a.up} {
		f(m)
	}
}

// newPass allocates the activations for passes of up to maxTokens tokens.
func (m *Model) newPass(maxTokens int) error {
	c := &m.config
	widths := []int{c.Dim, c.Dim, c.Dim, c.Heads * c.HeadDim, c.Heads * c.HeadDim, c.KVHeads * c.HeadDim, c.KVHeads * c.HeadDim, c.FF, c.FF}
	bytes := 0
	for _, w := range widths {
		bytes += tensor.F32Bytes(2*maxTokens, w)
	}
	arena, err := tensor.NewArena(bytes)
	if err != nil {
		return err
	}
	// Twice the rows: each first token of a sequence may take another (see gateUp).
	m.cpu = tensor.NewCPU(m.pool, 2*maxTokens, max(c.Dim, c.FF, c.Heads*c.HeadDim, c.ExpertFF, c.SharedFF))
	m.pass = pass{
		cpu: m.cpu, max: maxTokens, arena: arena, posFull: make([]int32, maxTokens), reachFull: make([]int32, maxTokens),
		codes: make([]byte, quant.ActBytes(c.Dim+quant.ActBlockCols)),
	}
	i := 0
	m.pass.full.each(func(b *tensor.F32) {
		*b = arena.F32(2*maxTokens, widths[i])
		i++
	})
	return nil
}

// Forward runs the batch and returns logits, (len(b.Logits), Vocab or tokens of b.Shortlist), one row for each wanted token in the order asked for;
// they stay valid until the next call. Keys and values of all tokens are appended to their sequences but not committed:
// the caller commits what it keeps. It returns an error, and nothing is appended for good, when the batch is malformed,
// when a sequence has no room, as *NaNError when logits are not numbers, or as *machine.ChangedError, from then on, when the
// file that the weights are mapped from lost some of them.
func (m *Model) Forward(b *Batch) (_ tensor.F32, err error) {
	if m.broken != nil {
		return tensor.F32{}, m.broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, m.changed)
	p := &m.pass
	if err := p.prepare(b, &m.config); err != nil {
		return tensor.F32{}, err
	}
	if e, ok := m.arch.(encoderDecoder); ok {
		for i, seq := range p.seqs {
			if !e.encoded(seq) {
				return tensor.F32{}, fmt.Errorf("batch span %d: its sequence has no input: Encode it first", i)
			}
		}
	}
	p.tracing = false
	m.arch.forward(p)
	if bad := p.badRows(); bad != nil {
		p.tracing, p.firstNaN = true, m.config.Layers
		m.arch.forward(p)
		return tensor.F32{}, &NaNError{Rows: bad, Layer: p.firstNaN}
	}
	return p.logits, nil
}

// maxInput is the most tokens that an encoder takes: its attention is quadratic.
const maxInput = 1 << 14

// Encode runs the encoder of an encoder-decoder over the input that a sequence answers; Forward then continues from the
// sequence's own tokens, the first of which is Config.DecoderStart. The encoded input is kept until Forget.
func (m *Model) Encode(seq *kvcache.Seq, tokens []int32) (err error) {
	if m.broken != nil {
		return m.broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer machine.CatchFault(&err, m.changed)
	e, ok := m.arch.(encoderDecoder)
	if !ok {
		return fmt.Errorf("%s: architecture %s has no encoder", m.config.File, m.config.Arch)
	}
	if len(tokens) < 1 || len(tokens) > maxInput {
		return fmt.Errorf("input of %d tokens: want 1 to %d", len(tokens), maxInput)
	}
	if err := checkTokens(tokens, m.config.Vocab); err != nil {
		return fmt.Errorf("input %w", err)
	}
	e.encode(&m.pass, seq, tokens)
	return nil
}

// Forget drops the encoded input of a sequence.
func (m *Model) Forget(seq *kvcache.Seq) {
	if e, ok := m.arch.(encoderDecoder); ok {
		e.forget(seq)
	}
}

func checkTokens(tokens []int32, vocab int) error {
	for i, t := range tokens {
		if t < 0 || int(t) >= vocab {
			return fmt.Errorf("token %d has id %d: want 0 to %d", i, t, vocab-1)
		}
	}
	return nil
}

// Hidden returns the wanted rows after the last norm, (len(b.Logits), Dim), of the last Forward.
func (m *Model) Hidden() tensor.F32 { return m.pass.hidden }

// prepare checks a batch and cuts the buffers to it.
func (p *pass) prepare(b *Batch, c *Config) error {
	n := len(b.Tokens)
	if n < 1 || n > p.max {
		return fmt.Errorf("batch of %d tokens: want 1 to %d", n, p.max)
	}
	if err := checkTokens(b.Tokens, c.Vocab); err != nil {
		return fmt.Errorf("batch %w", err)
	}
	for _, row := range b.Logits {
		if row < 0 || int(row) >= n {
			return fmt.Errorf("logits wanted of batch row %d: the batch has %d", row, n)
		}
	}
	if b.Layers != nil && len(b.Layers) != c.Layers {
		return fmt.Errorf("batch chooses among %d layers: the model has %d", len(b.Layers), c.Layers)
	}
	if err := p.placeSpans(b); err != nil {
		return err
	}
	p.layers = b.Layers
	p.tokens, p.want, p.pos = b.Tokens, b.Logits, p.posFull[:n]
	p.activations = p.full
	p.activations.each(func(m *tensor.F32) { *m = m.Head(n) })
	if need := len(b.Logits); need > p.logitsFull.Rows || p.logitsFull.Cols == 0 {
		p.hiddenFull, p.logitsFull = tensor.NewF32(need, c.Dim), tensor.NewF32(need, c.Vocab)
	}
	p.hidden, p.logits, p.short = p.hiddenFull.Head(len(b.Logits)), p.logitsFull.Head(len(b.Logits)), b.Shortlist
	if p.short != nil {
		p.logits.Cols = p.short.part.Rows
		p.logits.Data = p.logits.Data[:p.logits.Rows*p.logits.Cols]
	}
	return nil
}

// placeSpans gives each token its position: one after its parent's.
func (p *pass) placeSpans(b *Batch) error {
	p.spans, p.seqs, p.firsts = p.spans[:0], p.seqs[:0], p.firsts[:0]
	row := 0
	for i, s := range b.Spans {
		if s.N < 1 || s.N > len(b.Tokens)-row {
			return fmt.Errorf("batch span %d has %d tokens: want 1 to %d", i, s.N, len(b.Tokens)-row)
		}
		if s.Parents != nil && len(s.Parents) != s.N {
			return fmt.Errorf("batch span %d has %d tokens and %d parents", i, s.N, len(s.Parents))
		}
		for _, other := range p.seqs {
			if other == s.Seq {
				return fmt.Errorf("batch span %d: its sequence is in the batch twice", i)
			}
		}
		if err := p.place(&s, row); err != nil {
			return fmt.Errorf("batch span %d: %w", i, err)
		}
		if err := s.Seq.Reserve(s.N); err != nil {
			return fmt.Errorf("batch span %d: %w", i, err)
		}
		p.spans = append(p.spans, tensor.KVSpan{Row0: row, N: s.N, Parents: s.Parents})
		p.seqs = append(p.seqs, s.Seq)
		row += s.N
	}
	if row != len(b.Tokens) {
		return fmt.Errorf("batch of %d tokens: its spans hold %d", len(b.Tokens), row)
	}
	return nil
}

// skips reports whether the pass leaves a decoder layer out.
func (p *pass) skips(layer int) bool { return p.layers != nil && !p.layers[layer] }

// place gives the tokens of a span, which begins at a row, their positions and reaches.
func (p *pass) place(s *Span, row int) error {
	pos, base := p.posFull[row:row+s.N], int32(s.Seq.Len())
	prompt := int32(s.Prompt)
	if prompt == 0 && base == 0 {
		prompt = int32(s.N)
	}
	for j := range pos {
		pos[j] = base + int32(j)
		if s.Parents != nil {
			switch parent := s.Parents[j]; {
			case parent == -1:
				pos[j] = base
			case parent >= 0 && int(parent) < j:
				pos[j] = pos[parent] + 1
			default:
				return fmt.Errorf("token %d has parent %d: want -1 to %d", j, parent, j-1)
			}
		}
		if pos[j] == 0 {
			p.firsts = append(p.firsts, int32(row+j))
		}
		p.reachFull[row+j] = max(prompt, pos[j]+1)
	}
	return nil
}

// reach is how long a row's sequence is known to be: its prompt, or up to the row itself.
func (p *pass) reach(row int) int { return int(p.reachFull[row]) }

// append stores a layer's keys and values, (n, KVHeads*HeadDim), behind each sequence's committed ones.
func (p *pass) append(layer int, k, v tensor.F32) {
	for i := range p.spans {
		s := &p.spans[i]
		p.seqs[i].Append(layer, rowsOf(k, s.Row0, s.N), rowsOf(v, s.Row0, s.N))
	}
}

// view is what each sequence sees of a layer: committed rows and this pass's.
func (p *pass) view(layer int) []tensor.KVSpan {
	for i := range p.spans {
		p.spans[i].View = p.seqs[i].View(layer, p.spans[i].N)
	}
	return p.spans
}

// keepWanted copies the rows whose logits are wanted into hidden.
func (p *pass) keepWanted(x tensor.F32) {
	for i, row := range p.want {
		copy(p.hidden.Row(i), x.Row(int(row)))
	}
}

// mark notes, when tracing, that x after a layer holds values that are not numbers.
func (p *pass) mark(layer int, x tensor.F32) {
	if p.tracing && layer < p.firstNaN && !p.cpu.Finite(x.Data) {
		p.firstNaN = layer
	}
}

// badRows are the tokens whose logits are NaN or infinite; nil when there are none.
func (p *pass) badRows() (rows []int32) {
	for i := range p.logits.Rows {
		if !p.cpu.Finite(p.logits.Row(i)) {
			rows = append(rows, p.want[i])
		}
	}
	return rows
}

// rowsOf is rows [from, from+n) of x.
func rowsOf(x tensor.F32, from, n int) tensor.F32 {
	return tensor.F32{Data: x.Data[from*x.Cols : (from+n)*x.Cols], Rows: n, Cols: x.Cols}
}
