package model

import (
	"fmt"
	"strings"

	"quickdraft/modelfile/gguf"
	"quickdraft/modelfile/safetensors"
)

// weights is a checkpoint's tensors under GGUF's names ("blk.0.attn_q.weight"), whichever kind of file holds them.
type weights interface {
	find(name string) (rawTensor, bool)
	names() []string             // as the file has them
	fileName(name string) string // what the file calls a tensor, for messages
	fileOf(name string) string   // the file that holds what it calls name, or the whole checkpoint's path, for messages
	release(t rawTensor)         // its pages are not needed any more
	bytes() int64                // of all tensors
	// fingerprint identifies the state of the files without reading all of them; false for a checkpoint in memory.
	fingerprint() (sum [32]byte, ok bool)
	explain(addr uintptr) error // of a failed read of its files, nil where none is mapped
}

// rawTensor is one tensor as the file stores it.
type rawTensor struct {
	name       string // as the file has it
	typ        gguf.Type
	rows, cols int    // (rows, cols) row-major; a vector has one row
	shape      string // in the file's own order, for messages
	data       []byte

	owner any // *gguf.Tensor or *safetensors.Tensor
}

// part is rows [from, from+n) of the tensor.
func (t rawTensor) part(from, n int) rawTensor {
	rowBytes := len(t.data) / t.rows
	t.data = t.data[from*rowBytes : (from+n)*rowBytes]
	t.rows = n
	return t
}

type ggufWeights struct{ file *gguf.File }

func (w *ggufWeights) find(name string) (rawTensor, bool) {
	t, ok := w.file.Tensor(name)
	if !ok {
		return rawTensor{}, false
	}
	return rawTensor{name: name, typ: t.Type, rows: t.Rows(), cols: t.Cols(), shape: fmt.Sprint(t.Dims), data: t.Data, owner: t}, true
}

func (w *ggufWeights) names() []string {
	var all []string
	for _, t := range w.file.Tensors() {
		all = append(all, t.Name)
	}
	return all
}

func (w *ggufWeights) fileName(name string) string { return name }

func (w *ggufWeights) fileOf(name string) string {
	if t, ok := w.file.Tensor(name); ok {
		return t.File()
	}
	return w.file.Path()
}

func (w *ggufWeights) release(t rawTensor) { w.file.Release(t.owner.(*gguf.Tensor)) }

func (w *ggufWeights) bytes() (n int64) {
	for _, t := range w.file.Tensors() {
		n += int64(len(t.Data))
	}
	return n
}

func (w *ggufWeights) explain(addr uintptr) error { return w.file.Explain(addr) }

func (w *ggufWeights) fingerprint() ([32]byte, bool) { return w.file.Fingerprint() }

type safetensorsWeights struct {
	ckpt   *safetensors.Checkpoint
	hf     hfNames
	prefix string
}

var dtypes = map[string]gguf.Type{"F32": gguf.TypeF32, "F16": gguf.TypeF16, "BF16": gguf.TypeBF16}

func (w *safetensorsWeights) find(name string) (rawTensor, bool) {
	t, ok := w.ckpt.Tensor(w.fileName(name))
	if !ok || len(t.Shape) == 0 {
		return rawTensor{}, false
	}
	typ, ok := dtypes[t.DType]
	if !ok {
		return rawTensor{}, false
	}
	cols, rows := t.Shape[len(t.Shape)-1], 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		rows *= d
	}
	return rawTensor{name: t.Name, typ: typ, rows: rows, cols: cols, shape: fmt.Sprint(t.Shape), data: t.Data, owner: t}, true
}

func (w *safetensorsWeights) names() []string {
	var all []string
	for _, t := range w.ckpt.Tensors() {
		all = append(all, t.Name)
	}
	return all
}

func (w *safetensorsWeights) fileName(name string) string { return w.hf.hf(name) }

func (w *safetensorsWeights) fileOf(name string) string {
	if t, ok := w.ckpt.Tensor(name); ok {
		return t.File()
	}
	return w.ckpt.Dir()
}

func (w *safetensorsWeights) release(t rawTensor) { w.ckpt.Release(t.owner.(*safetensors.Tensor)) }

func (w *safetensorsWeights) bytes() (n int64) {
	for _, t := range w.ckpt.Tensors() {
		n += int64(len(t.Data))
	}
	return n
}

func (w *safetensorsWeights) explain(addr uintptr) error { return w.ckpt.Explain(addr) }

func (w *safetensorsWeights) fingerprint() ([32]byte, bool) {
	sum, err := w.ckpt.Fingerprint()
	return sum, err == nil
}

// hfNames maps GGUF's tensor names, without layer number and without ".weight" or ".bias", to Hugging Face's.
// "*" stands for the layer number, a second one for the number of an expert.
type hfNames map[string]string

// hf translates "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight". Names without a translation stay.
func (n hfNames) hf(name string) string {
	stem, suffix := name, ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		stem, suffix = name[:i], name[i:]
	}
	var numbers []string
	var words []string
	for _, word := range strings.Split(stem, ".") {
		if word != "" && strings.Trim(word, "0123456789") == "" {
			numbers = append(numbers, word)
		} else {
			words = append(words, word)
		}
	}
	to, ok := n[strings.Join(words, ".")]
	if !ok {
		return name
	}
	for _, number := range numbers {
		to = strings.Replace(to, "*", number, 1)
	}
	return to + suffix
}

// with returns the names with some replaced or added.
func (n hfNames) with(more hfNames) hfNames {
	all := hfNames{}
	for k, v := range n {
		all[k] = v
	}
	for k, v := range more {
		all[k] = v
	}
	return all
}

// decoderNames are the names that most decoder-only checkpoints share.
var decoderNames = hfNames{
	"token_embd":      "model.embed_tokens",
	"output_norm":     "model.norm",
	"output":          "lm_head",
	"blk.attn_norm":   "model.layers.*.input_layernorm",
	"blk.attn_q":      "model.layers.*.self_attn.q_proj",
	"blk.attn_k":      "model.layers.*.self_attn.k_proj",
	"blk.attn_v":      "model.layers.*.self_attn.v_proj",
	"blk.attn_output": "model.layers.*.self_attn.o_proj",
	"blk.attn_q_norm": "model.layers.*.self_attn.q_norm",
	"blk.attn_k_norm": "model.layers.*.self_attn.k_norm",
	"blk.ffn_norm":    "model.layers.*.post_attention_layernorm",
	"blk.ffn_gate":    "model.layers.*.mlp.gate_proj",
	"blk.ffn_up":      "model.layers.*.mlp.up_proj",
	"blk.ffn_down":    "model.layers.*.mlp.down_proj",
}
