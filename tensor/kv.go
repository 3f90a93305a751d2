package tensor

// KVBlock is the number of positions of a block of keys and values; position p is lane p mod KVBlock of its block.
const KVBlock = Lanes

// KVView is what one layer sees of one sequence's keys and values, in float16.
//
// Block b of the view holds positions First+16*b and the 15 after. It lies at Blocks[b]*KVHeads*headDim*16 in K and V:
//
//	K block  (KVHeads, headDim, 16)   lane = position mod 16
//	V block  (KVHeads, 16, headDim)
type KVView struct {
	K, V   []uint16 // the layer's whole store
	Blocks []int32  // block numbers in K and V
	First  int      // position of the first slot of Blocks[0], a multiple of 16
	Len    int      // positions First..Len-1 are stored
}

// KVSpan is the rows of one sequence in a batch. Its N rows are stored at the last N positions of the view,
// base = View.Len-N. In a chain row i sees the positions up to its own, base+i. In a tree row i sees what was stored
// before base, its ancestors and itself; its position is base plus the number of its ancestors.
type KVSpan struct {
	Row0, N int // rows of the batch
	View    KVView
	Parents []int32 // (N): parent's row inside the span, smaller than the own, or -1 for none; nil is a chain
}
