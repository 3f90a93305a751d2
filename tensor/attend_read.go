package tensor

// blockReader hands out one KV head of a group's blocks to the kernels.
type blockReader struct {
	k               *kernelSet
	v               *KVView
	size            int // values of a head's block
	kvHead, kvHeads int
	blocks          []int32
	memory          []float32 // for what is converted
}

// ascending numbers the blocks of converted memory.
var ascending = func() (n [runFloats / KVBlock]int32) {
	for i := range n {
		n[i] = int32(i)
	}
	return n
}()

// run is the number of blocks that are converted at a time.
func (r *blockReader) run() int { return max(runFloats/r.size, 1) }

// at is the place of a block's head in the store.
func (r *blockReader) at(b int) int { return (int(r.blocks[b])*r.kvHeads + r.kvHead) * r.size }

// stored returns the values of a block as they are, in float16 or float32.
func (r *blockReader) stored(b int) (halves []uint16, floats []float32) {
	at := r.at(b)
	if r.v.V32 != nil {
		return nil, r.v.V32[at : at+r.size]
	}
	return r.v.V[at : at+r.size], nil
}

// keys converts the keys of n blocks from b on, one after the other.
func (r *blockReader) keys(b, n int) []float32 {
	for i := range n {
		at, dst := r.at(b+i), &r.memory[i*r.size]
		if r.v.K8.Codes != nil {
			codes, scales := r.v.K8.head(at, r.size)
			r.k.decodeKeys8(dst, &codes[0], &scales[0], r.size/KVBlock)
		} else {
			r.k.halves(dst, &r.v.K[at], r.size/Lanes)
		}
	}
	return r.memory
}

// values converts the values of n blocks from b on, one after the other.
func (r *blockReader) values(b, n int) []float32 {
	for i := range n {
		at, dst := r.at(b+i), &r.memory[i*r.size]
		if r.v.V8.Codes != nil {
			codes, scales := r.v.V8.head(at, r.size)
			r.k.decodeValues8(dst, &codes[0], &scales[0], r.size/KVBlock)
		} else {
			r.k.halves(dst, &r.v.V[at], r.size/Lanes)
		}
	}
	return r.memory[:n*r.size]
}
