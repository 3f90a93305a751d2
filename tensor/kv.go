package tensor

// KVBlock is the number of positions of a block of keys and values; position p is lane p mod KVBlock of its block.
const KVBlock = Lanes

// KVView is what one layer sees of one sequence's keys and values: in float16, or in float32 when K32 is not nil; either of
// the two in 8 bits when K8 or V8 has codes.
//
// Block b of the view holds positions First+16*b and the 15 after. It lies at Blocks[b]*KVHeads*headDim*16 in K and V:
//
//	K block  (KVHeads, headDim, 16)   lane = position mod 16
//	V block  (KVHeads, 16, headDim)
type KVView struct {
	K, V     []uint16  // the layer's whole store
	K32, V32 []float32 // the same in float32; nil for float16
	K8, V8   KV8       // the same in 8 bits; without codes for the others
	Blocks   []int32   // block numbers in K and V
	First    int       // position of the first slot of Blocks[0], a multiple of 16
	Len      int       // positions First..Len-1 are stored
}

// KV8Group is the number of neighbouring values of a head, of one token, that share a scale in a KV8.
const KV8Group = 32

// KV8 is a layer's keys or values in 8 bits: codes in the layout of K or V, and for every block the float16 scales
// (KVHeads, ceil(headDim/32), 16), lane = position mod 16. A value is its code times the scale, which float32 holds exactly;
// so a token's values depend on nothing else in the block.
type KV8 struct {
	Codes  []int8
	Scales []uint16
}

// keys returns values [at, at+n) of the keys, all of one head's block: decoded into block, or in place.
func (v *KVView) keys(block []float32, at, n int) []float32 {
	switch {
	case v.K8.Codes != nil:
		codes, scales := v.K8.head(at, n)
		for d := range n / KVBlock {
			s := scales[d/KV8Group*KVBlock:][:KVBlock]
			c := codes[d*KVBlock:][:KVBlock]
			for lane := range KVBlock {
				block[d*KVBlock+lane] = float32(float32(c[lane]) * halves[s[lane]])
			}
		}
	case v.K32 != nil:
		return v.K32[at : at+n]
	default:
		fromHalves(block, v.K[at:at+n])
	}
	return block
}

// values is keys for the values.
func (v *KVView) values(block []float32, at, n int) []float32 {
	switch {
	case v.V8.Codes != nil:
		codes, scales := v.V8.head(at, n)
		dim := n / KVBlock
		for lane := range KVBlock {
			for d, c := range codes[lane*dim:][:dim] {
				block[lane*dim+d] = float32(float32(c) * halves[scales[d/KV8Group*KVBlock+lane]])
			}
		}
	case v.V32 != nil:
		return v.V32[at : at+n]
	default:
		fromHalves(block, v.V[at:at+n])
	}
	return block
}

// head returns one head's block of n codes at a place, and its scales, (groups, 16).
func (s *KV8) head(at, n int) ([]int8, []uint16) {
	groups := ceilDiv(n/KVBlock, KV8Group) * KVBlock
	return s.Codes[at : at+n], s.Scales[at/n*groups:][:groups]
}

// KVSpan is the rows of one sequence in a batch. Its N rows are stored at the last N positions of the view,
// base = View.Len-N. In a chain row i sees the positions up to its own, base+i. In a tree row i sees what was stored
// before base, its ancestors and itself; its position is base plus the number of its ancestors.
type KVSpan struct {
	Row0, N int // rows of the batch
	View    KVView
	Parents []int32 // (N): parent's row inside the span, smaller than the own, or -1 for none; nil is a chain
}
