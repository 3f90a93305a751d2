package main

import (
	"context"
	"fmt"

	"quickdraft/model"
	"quickdraft/text"
	"quickdraft/text/tokenizer"
)

// prompter turns conversations into the ids that a model is asked, of which no weight needs to be there.
type prompter struct {
	text    *text.Text
	config  model.Config
	context int // tokens of prompt and answer
}

// encode renders the conversation, or its last message as it is when raw or when the model has no template.
func (p *prompter) encode(ctx context.Context, messages []text.Message, raw bool) ([]int32, error) {
	size := 0
	for _, msg := range messages {
		size += len(msg.Content)
	}
	if least := p.text.Tokenizer.LeastTokens(size); least > p.context {
		return nil, &usageError{fmt.Errorf("prompt: %d bytes are at least %d tokens and do not fit a context of %d (-c)", size, least, p.context)}
	}
	last := messages[len(messages)-1].Content
	if p.config.EncoderLayers > 0 { // an encoder reads a text that ends, as T5's does with </s>
		return p.text.Tokenizer.Encode(last, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true}), nil
	}
	if raw || p.text.Template == nil {
		return p.text.Tokenizer.EncodePrompt(last), nil
	}
	return p.text.Prompt(ctx, messages)
}

// checkRoom judges the length of a prompt by the context, which must hold the answer too unless none is wanted.
func (p *prompter) checkRoom(nTokens, nPredict int) error {
	if nTokens > p.context || nTokens == p.context && nPredict != 0 {
		return &usageError{fmt.Errorf("prompt: %d tokens do not fit a context of %d (-c) that must also hold the answer", nTokens, p.context)}
	}
	return nil
}
