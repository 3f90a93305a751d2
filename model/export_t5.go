package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// t5Tensors lists the tensors of an encoder-decoder: the shared embedding, both halves layer after layer, and the output matrix
// where there is one.
func (x *exporter) t5Tensors() error {
	stems := slices.Sorted(maps.Keys(x.arch.names))
	x.add("token_embd")
	for _, half := range []struct {
		prefix string
		layers int
	}{{"enc.", x.cfg.EncoderLayers}, {"dec.", x.cfg.Layers}} {
		for i := range half.layers {
			for _, stem := range stems {
				if part, ok := strings.CutPrefix(stem, half.prefix+"blk."); ok {
					blk := fmt.Sprintf("%sblk.%d.", half.prefix, i)
					x.addAs(blk+strings.Replace(part, "ffn_only", "ffn_up", 1), blk+part)
				}
			}
		}
		x.add(half.prefix + "output_norm")
	}
	x.add("output")
	for _, name := range x.src.names() {
		if strings.Contains(name, ".block.") && !x.used[name] {
			return fmt.Errorf("%s: tensor %q: %s has no such tensor in GGUF", x.cfg.File, name, x.cfg.Arch)
		}
	}
	if tied := !x.used["lm_head.weight"]; tied != x.cfg.ScaledLogits { // a GGUF file's logits are scaled where it has no output matrix
		return fmt.Errorf("%s: t5 with an output matrix %v and scaled logits %v: GGUF cannot say so", x.cfg.File, !tied, x.cfg.ScaledLogits)
	}
	return nil
}

// t5Keys adds the keys of an encoder-decoder.
func (x *exporter) t5Keys(arch string) {
	c := x.cfg
	x.set(arch, "block_count", uint32(c.EncoderLayers))
	x.set(arch, "decoder_block_count", uint32(c.Layers))
	x.set(arch, "decoder_start_token_id", uint32(c.DecoderStart))
	x.set(arch, "attention.relative_buckets_count", uint32(c.RelBuckets))
	x.set(arch, "attention.relative_max_distance", uint32(c.RelDistance))
	x.set(arch, "attention.layer_norm_epsilon", c.NormEps) // what llama.cpp's T5 asks for beside the RMS norm's
}
