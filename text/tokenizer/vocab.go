package tokenizer

import "fmt"

// kind holds what is known about one id.
type kind uint8

const (
	kindModel   kind = 1 << iota // the model itself may produce it from text
	kindAdded                    // found in the text before the model runs
	kindSpecial                  // an added token that Decode can leave out
	kindByte                     // SentencePiece byte token <0xXX>
)

const (
	maxVocab      = 1 << 24 // ids; no model is near
	maxPieceBytes = 512     // of a piece that is to be made of two others; bounds the search for them
)

// vocab is the table of pieces by id and id by piece.
type vocab struct {
	pieces []string
	kinds  []kind
	index  map[string]int32 // the first id of each piece
	text   []byte           // what each id decodes to, one after the other
	off    []uint32         // (len(pieces)+1): where each starts in text
}

func newVocab(n int) vocab {
	return vocab{pieces: make([]string, n), kinds: make([]kind, n), index: make(map[string]int32, n)}
}

func (v *vocab) has(id int32) bool { return id >= 0 && int(id) < len(v.pieces) }

// set gives a piece its id; an id already in use keeps its place in the index for its old piece.
func (v *vocab) set(id int32, piece string, k kind) {
	v.pieces[id] = piece
	v.kinds[id] = k
	if _, taken := v.index[piece]; !taken {
		v.index[piece] = id
	}
}

// modelID returns the id of a piece that the model may produce.
func (v *vocab) modelID(piece string) (int32, bool) {
	id, ok := v.index[piece]
	return id, ok && v.kinds[id]&kindModel != 0
}

// render fills text and off with what the decoder makes of every piece.
func (v *vocab) render(d *decoder) error {
	v.off = make([]uint32, len(v.pieces)+1)
	total := 0
	for _, p := range v.pieces {
		total += len(p)
	}
	v.text = make([]byte, 0, total)
	for id, p := range v.pieces {
		v.text = d.appendPiece(v.text, p)
		if uint64(len(v.text)) > 1<<32-1 {
			return fmt.Errorf("tokenizer: vocabulary decodes to more than 4 GiB at id %d", id)
		}
		v.off[id+1] = uint32(len(v.text))
	}
	return nil
}

func (v *vocab) bytesOf(id int32) []byte {
	if !v.has(id) {
		return nil
	}
	return v.text[v.off[id]:v.off[id+1]:v.off[id+1]]
}

// byteToken returns the byte of a piece spelled <0xXX>.
func byteToken(piece string) (byte, bool) {
	if len(piece) != 6 || piece[:3] != "<0x" || piece[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(piece[3])
	lo, ok2 := hexDigit(piece[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
