package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The Go assembler encodes VPDPBUSD as EVEX always, which faults on processors with AVX-VNNI and without AVX-512. vexDot
// emits a placeholder mnemonic that takes part in register allocation, and encodeVEX replaces the printed line by bytes.
const vexMnemonic = "VPDPBUSD_VEX"

// vexDot is VPDPBUSD x, w, dot with VEX encoding: x signed bytes, w unsigned bytes, dot 8 sums.
func (k *kernel) vexDot(x, w, dot reg.VecVirtual) {
	k.Instruction(&ir.Instruction{
		Opcode:   vexMnemonic,
		Operands: []operand.Op{x, w, dot},
		Inputs:   []operand.Op{x, w, dot},
		Outputs:  []operand.Op{dot},
		ISA:      []string{"AVXVNNI"},
	})
}

var vexLine = regexp.MustCompile(`(?m)^\t` + vexMnemonic + ` +Y(\d+), Y(\d+), Y(\d+)$`)

// encodeVEX replaces placeholder lines by VEX.256.66.0F38.W0 50 /r and a comment with the mnemonic.
func encodeVEX(text []byte) []byte {
	return vexLine.ReplaceAllFunc(text, func(line []byte) []byte {
		m := vexLine.FindSubmatch(line)
		var r [3]byte
		for i := range r {
			n, err := strconv.ParseUint(string(m[i+1]), 10, 4)
			if err != nil {
				panic(err)
			}
			r[i] = byte(n)
		}
		x, w, dot := r[0], r[1], r[2]
		b := [5]byte{
			0xc4,
			(dot>>3^1)<<7 | 1<<6 | (x>>3^1)<<5 | 2, // inverted R, X, B; map 0F38
			(w^15)<<3 | 1<<2 | 1,                   // W0, inverted vvvv, 256 bits, prefix 66
			0x50,
			3<<6 | dot&7<<3 | x&7,
		}
		return fmt.Appendf(nil, "\tLONG $0x%02x%02x%02x%02x; BYTE $0x%02x // VPDPBUSD Y%d, Y%d, Y%d (VEX)",
			b[3], b[2], b[1], b[0], b[4], x, w, dot)
	})
}
