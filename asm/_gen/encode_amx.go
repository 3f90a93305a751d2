package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The Go assembler has no AMX. matrix emits placeholder mnemonics, whose general registers take part in allocation, and
// encodeAMX replaces the printed lines by bytes.
const amxPrefix = "AMX_"

// matrix emits an instruction. Its operands are: LDTILECFG base; TILELOADD and TILESTORED base, index, register; TILEZERO
// register; TDPBSSD weights, tokens, products; TILERELEASE none.
func (k *matrixKernel) matrix(mnemonic string, ops ...operand.Op) {
	i := &ir.Instruction{Opcode: amxPrefix + mnemonic, Operands: ops, ISA: []string{"AMXTILE"}}
	if mnemonic == "TDPBSSD" {
		i.ISA = []string{"AMXINT8"}
	}
	for _, o := range ops {
		if _, ok := o.(reg.Register); ok {
			i.Inputs = append(i.Inputs, o)
		}
	}
	k.Instruction(i)
}

var amxLine = regexp.MustCompile(`(?m)^\t` + amxPrefix + `(\w+)(?: +(\S.*))?$`)

// generalRegisters are the names that the Go assembler has for registers 0..15.
var generalRegisters = []string{"AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}

// encodeAMX replaces placeholder lines by bytes and a comment with the mnemonic.
func encodeAMX(text []byte) []byte {
	return amxLine.ReplaceAllFunc(text, func(line []byte) []byte {
		m := amxLine.FindStringSubmatch(string(line))
		var ops []string
		if m[2] != "" {
			ops = strings.Split(m[2], ", ")
		}
		code, comment := encodeMatrix(m[1], ops)
		var out []string
		for len(code) >= 4 {
			out = append(out, fmt.Sprintf("LONG $0x%02x%02x%02x%02x", code[3], code[2], code[1], code[0]))
			code = code[4:]
		}
		for _, b := range code {
			out = append(out, fmt.Sprintf("BYTE $0x%02x", b))
		}
		return []byte("\t" + strings.Join(out, "; ") + " // " + comment)
	})
}

// encodeMatrix returns the bytes of VEX.128.0F38.W0 and the instruction as the Go assembler would write it.
func encodeMatrix(mnemonic string, ops []string) (code []byte, comment string) {
	number := func(i int) int {
		n, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimPrefix(ops[i], "$"), "+"), 0, 32)
		if err != nil {
			panic(err)
		}
		return int(n)
	}
	const none, pF3, pF2 = 0, 2, 3
	switch mnemonic {
	case "LDTILECFG":
		return memoryForm(none, 0x49, 0, ops[0], ""), fmt.Sprintf("LDTILECFG (%s)", ops[0])
	case "TILERELEASE":
		return registerForm(none, 0x49, 0, 0, 0), mnemonic
	case "TILEZERO":
		return registerForm(pF2, 0x49, number(0), 0, 0), fmt.Sprintf("TILEZERO TMM%d", number(0))
	case "TILELOADD":
		return memoryForm(pF2, 0x4b, number(2), ops[0], ops[1]), fmt.Sprintf("TILELOADD (%s)(%s*1), TMM%d", ops[0], ops[1], number(2))
	case "TILESTORED":
		return memoryForm(pF3, 0x4b, number(2), ops[0], ops[1]), fmt.Sprintf("TILESTORED TMM%d, (%s)(%s*1)", number(2), ops[0], ops[1])
	case "TDPBSSD":
		return registerForm(pF2, 0x5e, number(2), number(1), number(0)),
			fmt.Sprintf("TDPBSSD TMM%d, TMM%d, TMM%d", number(0), number(1), number(2))
	}
	panic("no encoding of " + mnemonic)
}

// registerForm encodes matrix registers: modrm reg, modrm rm, vvvv.
func registerForm(prefix, opcode, r, rm, v int) []byte {
	return []byte{0xc4, 0xe2, byte((v^15)<<3 | prefix), byte(opcode), byte(3<<6 | r<<3 | rm)}
}

// memoryForm encodes base + index, with a SIB byte where there is an index.
func memoryForm(prefix, opcode, r int, base, index string) []byte {
	b := slices.Index(generalRegisters, base)
	x, rm := 4, b&7 // 4 is no index
	if index != "" {
		x = slices.Index(generalRegisters, index)
	}
	if b < 0 || x < 0 || index != "" && x == 4 {
		panic("no such address: " + base + " " + index)
	}
	sib := index != "" || b&7 == 4
	if sib {
		rm = 4
	}
	mod := 0
	if b&7 == 5 { // BP and R13 have no form without displacement
		mod = 1
	}
	out := []byte{0xc4, byte(1<<7 | (x>>3^1)<<6 | (b>>3^1)<<5 | 2), byte(15<<3 | prefix), byte(opcode), byte(mod<<6 | r<<3 | rm)}
	if sib {
		out = append(out, byte(x&7<<3|b&7))
	}
	if mod == 1 {
		out = append(out, 0)
	}
	return out
}
