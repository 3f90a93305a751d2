// Package quant holds the weight formats: how blocks lie in a file and in memory, how they are decoded and encoded, and
// the pure Go dot product that defines the arithmetic of the whole engine.
//
// In a file a row is a run of blocks. In memory 16 rows form a tile, and block column after block column of the 16 rows
// lies together, so that each row owns one lane of a vector register (tile.go). Activations are quantised to int8 once a
// row (act.go), except for F32, F16 and BF16, which multiply float32 activations. Every instruction set gives the bits of
// DotRef: integer sums are exact, each row adds its blocks in the order of the columns, and each step is one fused
// multiply-add (fma.go).
package quant

import (
	"fmt"

	"quickdraft/modelfile/gguf"
)

// TileRows is the number of matrix rows that share a tile.
const TileRows = 16

// Format is one weight format. All functions work on whole blocks and panic when a slice is too short.
type Format struct {
	Type       gguf.Type
	Name       string
	BlockSize  int  // weights of a block
	BlockBytes int  // bytes of a block of one row in a file
	TileBytes  int  // bytes of a block of 16 rows in a tile
	Float      bool // activations stay float32; otherwise they are rows of QuantizeRow

	// scales are the offsets of the f16 scales in a file block.
	scales []int

	// Decode writes len(dst)/BlockSize blocks of one row.
	Decode func(dst []float32, src []byte)
	// Encode rounds len(src)/BlockSize blocks of one row to the format.
	Encode func(dst []byte, src []float32)
	// EncodeWeighted is Encode for weights of which some matter more: it makes the sum of w times the squared error small.
	// The importances w, one a weight, must be finite and not negative. Nil for formats whose scale follows from the
	// largest weights alone.
	EncodeWeighted func(dst []byte, src, w []float32)
	// Pack writes len(dst)/TileBytes consecutive tile blocks from the file blocks of 16 rows. A nil row becomes zeros.
	Pack func(dst []byte, src *[TileRows][]byte)
	// UnpackRow decodes row r of consecutive tile blocks, len(dst)/BlockSize of them: the bits that Decode gives.
	UnpackRow func(dst []float32, tile []byte, r int)
	// DotRef multiplies nTiles tiles of nBlocks blocks with m activation rows: dst[i*dstStride + t*16 + r] is row r of tile
	// t times activation row i. It writes all of them. Float rows lie actStride bytes apart. Quantised rows lie side by
	// side: block b of row i is at b*actStride + 64*i, so that a kernel reaches the blocks of all rows from one register
	// (with an index register in each address, 8 rows took 1.28 times as long).
	DotRef func(dst []float32, dstStride int, tiles []byte, nTiles int, act []byte, actStride, nBlocks, m int)
}

// formats has one line a format, in the order of ids.
var formats = []*Format{
	&formatF32,
	&formatF16,
	&formatQ4_0,
	&formatQ4_1,
	&formatQ5_0,
	&formatQ5_1,
	&formatQ8_0,
	&formatQ2_K,
	&formatQ3_K,
	&formatQ4_K,
	&formatQ5_K,
	&formatQ6_K,
	&formatIQ4_NL,
	&formatIQ4_XS,
	&formatBF16,
	&formatMXFP4,
}

var byType = func() (table [64]*Format) {
	for _, f := range formats {
		table[f.Type] = f
	}
	return table
}()

// Get returns the format of a type.
func Get(t gguf.Type) (*Format, bool) {
	if int64(t) >= int64(len(byType)) || byType[t] == nil {
		return nil, false
	}
	return byType[t], true
}

// All returns every format in the order of ids.
func All() []*Format { return append([]*Format(nil), formats...) }

// mustGet is Get for callers that checked the type.
func mustGet(t gguf.Type) *Format {
	f, ok := Get(t)
	if !ok {
		panic(fmt.Sprintf("quant: no format for %v", t))
	}
	return f
}

// RowBytes returns the bytes of a file row of cols weights.
func (f *Format) RowBytes(cols int) int { return cols / f.BlockSize * f.BlockBytes }

// TileSize returns the bytes of one tile of cols columns; cols is a multiple of the block size.
func (f *Format) TileSize(cols int) int { return cols / f.BlockSize * f.TileBytes }

// ActBytes returns the bytes of an activation row of cols columns: float32 values or the blocks of QuantizeRow.
func (f *Format) ActBytes(cols int) int {
	if f.Float {
		return 4 * cols
	}
	return ActBytes(cols)
}

// actSize returns the bytes that DotRef reads of m activation rows of cols columns.
func (f *Format) actSize(m, cols, actStride int) int {
	if f.Float {
		return (m-1)*actStride + 4*cols
	}
	return max(cols/ActBlockCols-1, 0)*actStride + m*ActBlockBytes
}

// Tiles returns the number of tiles that hold rows rows.
func Tiles(rows int) int { return (rows + TileRows - 1) / TileRows }

// PackMatrix packs the tiles [tile0, tile1) of a matrix of rows x cols file blocks, src, into dst, which starts at
// tile 0. Row i of the packed matrix is row rowAt(i) of src; nil keeps the order. Rows past the last become zeros.
func PackMatrix(dst []byte, t gguf.Type, src []byte, rows, cols, tile0, tile1 int, rowAt func(int) int) {
	f := mustGet(t)
	rowBytes, tileSize := f.RowBytes(cols), f.TileSize(cols)
	for tile := tile0; tile < tile1; tile++ {
		var lanes [TileRows][]byte
		for r := range lanes {
			i := tile*TileRows + r
			if i >= rows {
				break
			}
			if rowAt != nil {
				i = rowAt(i)
			}
			lanes[r] = src[i*rowBytes:][:rowBytes]
		}
		f.Pack(dst[tile*tileSize:][:tileSize], &lanes)
	}
}

// CheckScales looks for a scale that is NaN or infinite in the rows of cols columns in data. It returns the first such
// row and false, or ok. In F32, F16 and BF16 each weight is its own scale.
func CheckScales(t gguf.Type, data []byte, cols int) (row int, ok bool) {
	f := mustGet(t)
	rowBytes := f.RowBytes(cols)
	if rowBytes == 0 {
		return 0, true
	}
	for at := 0; at+f.BlockBytes <= len(data); at += f.BlockBytes {
		if !f.finite(data[at:]) {
			return at / rowBytes, false
		}
	}
	return 0, true
}

// finite reports whether the scales of one block are finite numbers.
func (f *Format) finite(block []byte) bool {
	switch f.Type {
	case gguf.TypeF32:
		return le.Uint32(block)&0x7f800000 != 0x7f800000
	case gguf.TypeBF16:
		return le.Uint16(block)&0x7f80 != 0x7f80
	case gguf.TypeMXFP4:
		return block[0] != 0xff
	}
	for _, at := range f.scales {
		if le.Uint16(block[at:])&0x7c00 == 0x7c00 {
			return false
		}
	}
	return true
}
