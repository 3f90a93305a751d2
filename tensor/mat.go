package tensor

import (
	"fmt"
	"sync/atomic"

	"quickdraft/machine"
	"quickdraft/modelfile/gguf"
	"quickdraft/quant"
)

// Mat is a weight matrix packed into tiles of 16 rows (see package quant for the layout of a tile).
type Mat struct {
	Name       string
	Type       gguf.Type
	Rows, Cols int
	Tiles      []byte // (tiles, TileSize)

	format   *quant.Format
	tileSize int // bytes of one tile
	pages    machine.Pages
	kernels  [quant.WideM + 1]quant.DotFunc // by number of tokens: 1..WideM
}

// NewMat packs the file blocks src of a matrix of rows x cols weights. Row i of the result is row rowAt(i) of src; nil
// keeps the order. The pool shares the work and nil does without. The error names the matrix and the row of a scale
// that is not finite, a size that does not fit the shape, or a type without a format.
func NewMat(name string, t gguf.Type, rows, cols int, src []byte, rowAt func(int) int, pool *Pool) (*Mat, error) {
	m, err := newMat(name, t, t, rows, cols, src)
	if err != nil {
		return nil, err
	}
	err = m.pack(pool, t, src, func(tile0, tile1 int) {
		quant.PackMatrix(m.Tiles, t, src, rows, cols, tile0, tile1, rowAt)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// NewMatF32 decodes the blocks to float32 and packs those: four bytes a weight, for comparison with implementations
// that do not quantise activations. Arguments and errors are those of NewMat.
func NewMatF32(name string, t gguf.Type, rows, cols int, src []byte, rowAt func(int) int, pool *Pool) (*Mat, error) {
	m, err := newMat(name, t, gguf.TypeF32, rows, cols, src)
	if err != nil {
		return nil, err
	}
	from, _ := quant.Get(t)
	err = m.pack(pool, t, src, func(tile0, tile1 int) {
		m.packDecoded(from, src, tile0, tile1, rowAt)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// NewMatTiles is a matrix over tiles that were packed before, len(tiles) bytes that must outlive it. The error names the
// matrix and the size that does not fit the shape.
func NewMatTiles(name string, t gguf.Type, rows, cols int, tiles []byte) (*Mat, error) {
	if _, err := checkShape(name, t, rows, cols); err != nil {
		return nil, err
	}
	m := withoutTiles(name, t, rows, cols)
	if len(tiles)%m.tileSize != 0 || len(tiles)/m.tileSize != m.nTiles() {
		return nil, fmt.Errorf("tensor %q: %d bytes of tiles for %d x %d weights of %v, must be %d tiles of %d bytes",
			name, len(tiles), rows, cols, t, m.nTiles(), m.tileSize)
	}
	m.Tiles = tiles
	return m, nil
}

// Free gives the memory of the tiles back; the matrix must not be used afterwards.
func (m *Mat) Free() {
	m.pages.Free()
	m.Tiles = nil
}

// Bytes is the memory that one pass over the matrix reads.
func (m *Mat) Bytes() int64 { return int64(len(m.Tiles)) }

// nTiles is the number of tiles, the last of which may be partial.
func (m *Mat) nTiles() int { return quant.Tiles(m.Rows) }

// newMat checks the shape of src, in format t, and returns a matrix with empty tiles in format packed.
func newMat(name string, t, packed gguf.Type, rows, cols int, src []byte) (*Mat, error) {
	from, err := checkShape(name, t, rows, cols)
	if err != nil {
		return nil, err
	}
	if rowBytes := from.RowBytes(cols); len(src)%rowBytes != 0 || len(src)/rowBytes != rows {
		return nil, fmt.Errorf("tensor %q: %d bytes of %v for %d x %d weights, must be %d rows of %d bytes",
			name, len(src), t, rows, cols, rows, rowBytes)
	}
	m := withoutTiles(name, packed, rows, cols)
	pages, err := machine.MapPages(m.nTiles()*m.tileSize, true)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	m.pages, m.Tiles = pages, pages.Data
	return m, nil
}

// checkShape returns the format of t when rows x cols weights can have it.
func checkShape(name string, t gguf.Type, rows, cols int) (*quant.Format, error) {
	format, ok := quant.Get(t)
	if !ok {
		return nil, fmt.Errorf("tensor %q: no weight format for type %v", name, t)
	}
	if rows < 1 || cols < 1 || cols%format.BlockSize != 0 {
		return nil, fmt.Errorf("tensor %q: shape %d x %d, must be positive with columns a multiple of %d for %v",
			name, rows, cols, format.BlockSize, t)
	}
	return format, nil
}

// withoutTiles makes a matrix of a checked shape.
func withoutTiles(name string, t gguf.Type, rows, cols int) *Mat {
	format, _ := quant.Get(t)
	m := &Mat{Name: name, Type: t, Rows: rows, Cols: cols, format: format, tileSize: format.TileSize(cols)}
	for tokens := 1; tokens <= quant.WideM; tokens++ {
		m.kernels[tokens] = quant.Pick(t, tokens).Dot
	}
	return m
}

// packRun is the number of tiles that a worker packs at a time.
const packRun = 4

// pack checks the scales of src and packs all tiles, shared among the workers. It frees m when a scale is not finite.
func (m *Mat) pack(pool *Pool, from gguf.Type, src []byte, packTiles func(tile0, tile1 int)) error {
	rowBytes := len(src) / m.Rows
	var next atomic.Int64
	var bad atomic.Int64 // 1 + a row with a bad scale
	work := taskFunc(func(int, int) {
		for {
			tile0 := int(next.Add(packRun)) - packRun
			if tile0 >= m.nTiles() || bad.Load() != 0 {
				return
			}
			tile1 := min(tile0+packRun, m.nTiles())
			row0, row1 := tile0*quant.TileRows, min(tile1*quant.TileRows, m.Rows)
			if row, ok := quant.CheckScales(from, src[row0*rowBytes:row1*rowBytes], m.Cols); !ok {
				bad.Store(int64(row0+row) + 1)
				return
			}
			packTiles(tile0, tile1)
		}
	})
	if pool == nil {
		work(0, 1)
	} else {
		pool.Run(work)
	}
	if row := bad.Load(); row != 0 {
		m.Free()
		return fmt.Errorf("tensor %q: row %d has a scale that is not a finite number", m.Name, row-1)
	}
	return nil
}

// packDecoded packs float32 tiles from blocks of the format from.
func (m *Mat) packDecoded(from *quant.Format, src []byte, tile0, tile1 int, rowAt func(int) int) {
	rowBytes := from.RowBytes(m.Cols)
	values := make([]float32, quant.TileRows*m.Cols)
	for tile := tile0; tile < tile1; tile++ {
		var lanes [quant.TileRows][]byte
		for r := range lanes {
			i := tile*quant.TileRows + r
			if i >= m.Rows {
				break
			}
			if rowAt != nil {
				i = rowAt(i)
			}
			row := values[r*m.Cols : (r+1)*m.Cols]
			from.Decode(row, src[i*rowBytes:(i+1)*rowBytes])
			lanes[r] = bytesOf(row)
		}
		m.format.Pack(m.Tiles[tile*m.tileSize:(tile+1)*m.tileSize], &lanes)
	}
}

// taskFunc is a Task of one function, for work outside the hot path.
type taskFunc func(worker, nWorkers int)

// Do calls the function.
func (f taskFunc) Do(worker, nWorkers int) { f(worker, nWorkers) }
