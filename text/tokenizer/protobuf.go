package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Wire types of the protocol buffers format.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// protoField is one field of a message: a number for the wire types of numbers, else the bytes, which are not a copy.
type protoField struct {
	number int
	wire   int
	value  uint64
	data   []byte
	at     int // offset of the field in its message
}

// eachField calls f for the fields of a message in order, until it fails. Lengths are checked against what is there; groups,
// which no writer makes any more, are refused.
func eachField(message []byte, f func(protoField) error) error {
	for at := 0; at < len(message); {
		field := protoField{at: at}
		key, n := binary.Uvarint(message[at:])
		if n <= 0 || key>>3 == 0 || key>>3 > 1<<29-1 {
			return fmt.Errorf("offset %d: no field begins there", at)
		}
		at += n
		field.number, field.wire = int(key>>3), int(key&7)
		rest := message[at:]
		switch field.wire {
		case wireVarint:
			if field.value, n = binary.Uvarint(rest); n <= 0 {
				return fmt.Errorf("offset %d: field %d: a number of more than 64 bits or cut off", field.at, field.number)
			}
		case wireFixed64, wireFixed32:
			if n = 8; field.wire == wireFixed32 {
				n = 4
			}
			if len(rest) < n {
				return fmt.Errorf("offset %d: field %d: want %d bytes, %d are left", field.at, field.number, n, len(rest))
			}
			var buf [8]byte
			copy(buf[:], rest[:n])
			field.value = binary.LittleEndian.Uint64(buf[:])
		case wireBytes:
			size, k := binary.Uvarint(rest)
			if k <= 0 || size > uint64(len(rest)-k) {
				return fmt.Errorf("offset %d: field %d: %d bytes, but %d are left", field.at, field.number, size, len(rest)-max(k, 0))
			}
			n = k + int(size)
			field.data = rest[k:n]
		default:
			return fmt.Errorf("offset %d: field %d: wire type %d is not supported", field.at, field.number, field.wire)
		}
		at += n
		if err := f(field); err != nil {
			return fmt.Errorf("offset %d: field %d: %w", field.at, field.number, err)
		}
	}
	return nil
}

var errWire = errors.New("of another type than expected")

// int32 is the field as a signed number: negative ones are written with 64 bits.
func (f protoField) int32() (int32, error) {
	if f.wire != wireVarint {
		return 0, errWire
	}
	v := int64(f.value)
	if v != int64(int32(v)) {
		return 0, fmt.Errorf("%d does not fit 32 bits", v)
	}
	return int32(v), nil
}

func (f protoField) bool() (bool, error) {
	if f.wire != wireVarint {
		return false, errWire
	}
	return f.value != 0, nil
}

func (f protoField) float() (float32, error) {
	if f.wire != wireFixed32 {
		return 0, errWire
	}
	return math.Float32frombits(uint32(f.value)), nil
}

func (f protoField) bytes() ([]byte, error) {
	if f.wire != wireBytes {
		return nil, errWire
	}
	return f.data, nil
}
