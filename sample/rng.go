package sample

// Purpose separates the random numbers that one position of one request may need.
type Purpose uint32

const (
	PurposeSample   Purpose = iota // the draw of the token itself
	PurposeXTC                     // whether XTC acts at this position
	PurposeAccept                  // whether a proposed token is accepted; add the index of the attempt times PurposeStride
	PurposeResidual                // the draw after a rejection
	PurposeDraft                   // the draw of a proposal
	PurposeStride                  // number of purposes
)

// mix is a bijection of 64 bits in which every input bit reaches every output bit (two multiplications, three shifts).
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xe9846af9b1a615d
	x ^= x >> 32
	x *= 0xe9846af9b1a615d
	return x ^ x>>28
}

// Uniform returns the number in [0, 1), a multiple of 2^-53, that belongs to a seed, a position and a purpose. It keeps no state:
// the same arguments give the same number whatever was drawn before, so a request's tokens do not depend on its neighbours.
func Uniform(seed uint64, position int, purpose Purpose) float64 {
	x := mix(seed + 0x9e3779b97f4a7c15)
	x = mix(x ^ (uint64(position)*0xd1342543de82ef95 + 0x632be59bd9b4e019))
	x = mix(x ^ (uint64(purpose)*0xaf251af3b0f025b5 + 0x2545f4914f6cdd1d))
	return float64(x>>11) * 0x1p-53
}

// ChoiceSeed returns the seed of the i-th of several answers to one request; choice 0 keeps the request's own.
func ChoiceSeed(seed uint64, i int) uint64 {
	if i == 0 {
		return seed
	}
	return mix(seed ^ mix(uint64(i)*0x9e3779b97f4a7c15))
}
