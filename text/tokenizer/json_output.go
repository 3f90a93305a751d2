package tokenizer

import (
	"errors"
	"fmt"
)

// decoder sets how pieces become text.
func (p *pipeline) decoder(c *component) error {
	if c == nil {
		return errors.New("decoder is missing; without one the pieces cannot be joined")
	}
	if err := c.check(); err != nil {
		return fmt.Errorf("decoder %w", err)
	}
	d := &p.t.dec
	switch c.Type {
	case "Sequence":
		for i := range c.Decoders {
			if err := p.decoder(&c.Decoders[i]); err != nil {
				return err
			}
		}
	case "ByteLevel":
		d.byteLevel = true
	case "ByteFallback":
		d.byteFallback = true
	case "Fuse":
		p.fused = true
	case "Replace":
		if c.Pattern.String == nil || *c.Pattern.String == "" || p.fused {
			return fmt.Errorf("decoder Replace: pattern %s, after Fuse %v is not supported", c.pattern(), p.fused)
		}
		d.replace = append(d.replace, [2]string{*c.Pattern.String, c.Content})
	case "Strip":
		if c.Content != " " || c.Stop != 0 || c.Start < 0 || !p.fused {
			return fmt.Errorf("decoder Strip: content %q, start %d, stop %d, after Fuse %v is not supported", c.Content, c.Start, c.Stop, p.fused)
		}
		d.strip = c.Start
	case "Metaspace":
		mark, scheme, err := c.metaspace()
		if err != nil {
			return fmt.Errorf("decoder Metaspace: %w", err)
		}
		if scheme != "never" {
			d.dropMark = mark
		}
		d.replace = append(d.replace, [2]string{mark, " "})
	default:
		return fmt.Errorf("decoder %q is not supported", c.Type)
	}
	return nil
}

// postProcessor sets what AddSpecial puts around the ids.
func (p *pipeline) postProcessor(c *component) error {
	if c == nil {
		return nil
	}
	switch c.Type {
	case "Sequence":
		for i := range c.Processors {
			if err := p.postProcessor(&c.Processors[i]); err != nil {
				return err
			}
		}
	case "ByteLevel": // concerns offsets only
	case "TemplateProcessing":
		return p.template(c)
	default:
		return fmt.Errorf("post_processor %q is not supported", c.Type)
	}
	return nil
}

func (p *pipeline) template(c *component) error {
	to := &p.t.prefix
	for _, item := range c.Single {
		if item.Sequence != nil {
			to = &p.t.suffix
			continue
		}
		if item.SpecialToken == nil {
			return errors.New("post_processor TemplateProcessing: an item of single is neither Sequence nor SpecialToken")
		}
		ids := c.SpecialTokens[item.SpecialToken.ID].IDs
		if len(ids) == 0 {
			return fmt.Errorf("post_processor TemplateProcessing: special token %q has no ids", item.SpecialToken.ID)
		}
		for _, id := range ids {
			if id < 0 || id >= int64(len(p.t.vocab.pieces)) {
				return fmt.Errorf("post_processor TemplateProcessing: id %d of %q is not in the vocabulary of %d", id, item.SpecialToken.ID, len(p.t.vocab.pieces))
			}
			*to = append(*to, int32(id))
		}
	}
	if len(p.t.prefix) > 0 {
		p.t.bos = p.t.prefix[0]
	}
	if n := len(p.t.suffix); n > 0 {
		p.t.eos = p.t.suffix[n-1]
	}
	return nil
}
