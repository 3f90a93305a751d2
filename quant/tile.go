package quant

// LayoutVersion numbers the layout of tiles over all formats. Files of tiles carry it: raise it whenever a tile's bytes
// for the same weights change.
const LayoutVersion = 1

// A tile block is cut into parts of 32 columns. A part is made of planes, which hold some bits of the unsigned codes of
// 16 rows x 32 columns. Columns come in groups of four: group g holds columns 4g..4g+3, g = 0..7. All planes are made of
// lines of 64 bytes, and byte r*4+i of a line always belongs to row r and to column i of some groups, so that a 32-bit
// lane of a register is a row, and bytes 0..31 and 32..63 are rows 0..7 and 8..15:
//
//	      row 0       row 1             row 15
//	    +--+--+--+--+--+--+--+--+-   -+--+--+--+--+
//	    |c0|c1|c2|c3|c0|c1|c2|c3| ... |c0|c1|c2|c3|     64 bytes
//	    +--+--+--+--+--+--+--+--+-   -+--+--+--+--+
//
//	plane  lines  bytes   what line holds which group in which bits of its bytes
//	P8     8      512     line g: group g, whole bytes
//	P4     4      256     line p: group p in bits 0..3, group p+4 in bits 4..7
//	P2     2      128     line h: group 4h+k in bits 2k, 2k+1, k = 0..3
//	P1     1       64     line 0: group g in bit g
//
// One group of codes is one shift and one AND away from each plane: line>>4 & 0x0f of P4, line<<4 & 0x30 of P2 for k = 0
// of a format that puts these two bits above a P4 nibble. Shifts of 16, 32 or 64 bit lanes do: the mask removes what came
// from neighbouring bytes. Groups 0..3 are columns 0..15 and groups 4..7 columns 16..31, the halves of 16 that Q2_K, Q3_K
// and Q6_K scale apart; low nibbles of a P4 plane are the first half, high ones the second.
const (
	lineBytes = 64
	p8Bytes   = 8 * lineBytes
	p4Bytes   = 4 * lineBytes
	p2Bytes   = 2 * lineBytes
	p1Bytes   = lineBytes

	// bytes of one scale for each of the 16 rows
	halves16 = 2 * TileRows
	bytes16  = TileRows

	mask1 = 0x01010101
	mask2 = 0x03030303
	mask4 = 0x0f0f0f0f

	wide1 = 0x0101010101010101
	wide2 = 0x0303030303030303
	wide4 = 0x0f0f0f0f0f0f0f0f
)

// codes holds 32 unsigned codes of one row: word g has columns 4g..4g+3, the first in the low byte.
type codes [8]uint32

// at returns the code of column c.
func (u *codes) at(c int) uint32 { return u[c>>2] >> (c & 3 * 8) & 0xff }

// set stores the code of column c, which must be zero before.
func (u *codes) set(c int, code uint32) { u[c>>2] |= code << (c & 3 * 8) }

// put4 writes bits 0..3 of the codes to row r of a P4 plane.
func (u *codes) put4(plane []byte, r int) {
	for p := range 4 {
		le.PutUint32(plane[p*lineBytes+r*4:], u[p]&mask4|u[p+4]&mask4<<4)
	}
}

// get4 reads row r of a P4 plane.
func (u *codes) get4(plane []byte, r int) {
	for p := range 4 {
		x := le.Uint32(plane[p*lineBytes+r*4:])
		u[p], u[p+4] = x&mask4, x>>4&mask4
	}
}

// put2 writes bits at and at+1 of the codes to row r of a P2 plane.
func (u *codes) put2(plane []byte, r int, at uint) {
	for h := range 2 {
		v := (*[4]uint32)(u[4*h:])
		x := v[0]>>at&mask2 | v[1]>>at&mask2<<2 | v[2]>>at&mask2<<4 | v[3]>>at&mask2<<6
		le.PutUint32(plane[h*lineBytes+r*4:], x)
	}
}

// or2 reads row r of a P2 plane into bits at and at+1 of the codes.
func (u *codes) or2(plane []byte, r, at int) {
	for h := range 2 {
		x := le.Uint32(plane[h*lineBytes+r*4:])
		for k := range 4 {
			u[4*h+k] |= x >> (2 * k) & mask2 << at
		}
	}
}

// put1 writes bit at of the codes to row r of a P1 plane.
func (u *codes) put1(plane []byte, r int, at uint) {
	x := u[0]>>at&mask1 | u[1]>>at&mask1<<1 | u[2]>>at&mask1<<2 | u[3]>>at&mask1<<3 |
		u[4]>>at&mask1<<4 | u[5]>>at&mask1<<5 | u[6]>>at&mask1<<6 | u[7]>>at&mask1<<7
	le.PutUint32(plane[r*4:], x)
}

// or1 reads row r of a P1 plane into bit at of the codes.
func (u *codes) or1(plane []byte, r, at int) {
	x := le.Uint32(plane[r*4:])
	for g := range u {
		u[g] |= x >> g & mask1 << at
	}
}

// nibbles reads the 16 bytes of a file block whose low nibbles are columns 0..15 and whose high nibbles are 16..31.
func (u *codes) nibbles(src []byte) {
	for p := range 4 {
		x := le.Uint32(src[p*4:])
		u[p], u[p+4] = x&mask4, x>>4&mask4
	}
}

// field reads one field of each of 32 bytes: bits shift and up, as many as mask keeps.
func (u *codes) field(src []byte, shift int, mask uint32) {
	for g := range u {
		u[g] = le.Uint32(src[g*4:]) >> shift & mask
	}
}

// orField adds one field of each of 32 bytes at bit at of the codes.
func (u *codes) orField(src []byte, shift int, mask uint32, at int) {
	for g := range u {
		u[g] |= le.Uint32(src[g*4:]) >> shift & mask << at
	}
}

// orBits adds bit c of word at bit 4 of the code of column c.
func (u *codes) orBits(word uint32) {
	for g := range u {
		// The product puts bit i of a nibble at bit 8i.
		u[g] |= word >> (4 * g) & 15 * 0x00204081 & mask1 << 4
	}
}

// bits gathers bit 4 of all codes, column c in bit c.
func (u *codes) bits() (word uint32) {
	for c := range 32 {
		word |= u.at(c) >> 4 & 1 << c
	}
	return word
}

// lines holds the unsigned codes of a part for all rows: lines[g][q] has columns 4g..4g+3 of row 2q in its low half and
// of row 2q+1 in its high half.
type lines [8][TileRows / 2]uint64

// load8 reads a P8 plane and flips the bits of flip.
func (w *lines) load8(plane []byte, flip uint64) {
	plane = plane[:p8Bytes]
	for g := range w {
		for q := range w[g] {
			w[g][q] = le.Uint64(plane[g*lineBytes+q*8:]) ^ flip
		}
	}
}

// load4 reads a P4 plane.
func (w *lines) load4(plane []byte) {
	plane = plane[:p4Bytes]
	for p := range 4 {
		for q := range w[p] {
			x := le.Uint64(plane[p*lineBytes+q*8:])
			w[p][q], w[p+4][q] = x&wide4, x>>4&wide4
		}
	}
}

// load2 reads a P2 plane into bits 0 and 1.
func (w *lines) load2(plane []byte) {
	plane = plane[:p2Bytes]
	for g := range w {
		for q := range w[g] {
			w[g][q] = le.Uint64(plane[g>>2*lineBytes+q*8:]) >> (g & 3 * 2) & wide2
		}
	}
}

// or2 reads a P2 plane into bits at and at+1.
func (w *lines) or2(plane []byte, at int) {
	plane = plane[:p2Bytes]
	for g := range w {
		for q := range w[g] {
			w[g][q] |= le.Uint64(plane[g>>2*lineBytes+q*8:]) >> (g & 3 * 2) & wide2 << at
		}
	}
}

// or1 reads a P1 plane into bit at.
func (w *lines) or1(plane []byte, at int) {
	plane = plane[:p1Bytes]
	for q := range w[0] {
		x := le.Uint64(plane[q*8:])
		for g := range w {
			w[g][q] |= x >> g & wide1 << at
		}
	}
}

// pairTable maps two 4-bit codes, the first in the low nibble, to two bytes.
type pairTable [256]uint16

// pairs returns the pairs of entries of a table plus zero.
func pairs(table *[16]int8, zero int) *pairTable {
	var out pairTable
	for i := range out {
		out[i] = uint16(int(table[i&15])+zero) | uint16(int(table[i>>4])+zero)<<8
	}
	return &out
}

// lookup replaces each 4-bit code by its entry in the table.
func (w *lines) lookup(table *pairTable) {
	for g := range w {
		for q, x := range w[g] {
			x |= x >> 4
			w[g][q] = uint64(table[x&0xff]) | uint64(table[x>>16&0xff])<<16 |
				uint64(table[x>>32&0xff])<<32 | uint64(table[x>>48&0xff])<<48
		}
	}
}
