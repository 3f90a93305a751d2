package tensor

// KVBlock is the number of positions of a block of keys and values; position p is lane p mod KVBlock of its block.
const KVBlock = Lanes

// KVView is what one layer sees of one sequence's keys and values, in float16, or in float32 when K32 is not nil.
//
// Block b of the view holds positions First+16*b and the 15 after. It lies at Blocks[b]*KVHeads*headDim*16 in K and V:
//
//	K block  (KVHeads, headDim, 16)   lane = position mod 16
//	V block  (KVHeads, 16, headDim)
type KVView struct {
	K, V     []uint16  // the layer's whole store
	K32, V32 []float32 // the same in float32; nil for float16
	Blocks   []int32   // block numbers in K and V
	First    int       // position of the first slot of Blocks[0], a multiple of 16
	Len      int       // positions First..Len-1 are stored
}

// keys returns values [at, at+n) of the keys: decoded into block, or in place.
func (v *KVView) keys(block []float32, at, n int) []float32 {
	if v.K32 != nil {
		return v.K32[at : at+n]
	}
	fromHalves(block, v.K[at:at+n])
	return block
}

// values is keys for the values.
func (v *KVView) values(block []float32, at, n int) []float32 {
	if v.V32 != nil {
		return v.V32[at : at+n]
	}
	fromHalves(block, v.V[at:at+n])
	return block
}

// KVSpan is the rows of one sequence in a batch. Its N rows are stored at the last N positions of the view,
// base = View.Len-N. In a chain row i sees the positions up to its own, base+i. In a tree row i sees what was stored
// before base, its ancestors and itself; its position is base plus the number of its ancestors.
type KVSpan struct {
	Row0, N int // rows of the batch
	View    KVView
	Parents []int32 // (N): parent's row inside the span, smaller than the own, or -1 for none; nil is a chain
}
