package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"quickdraft/model"
	"quickdraft/text"
	"quickdraft/text/chat"
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

// checkSystem finds that a system message would be left out: by a model without a template, which is asked the text of the user alone,
// or by a template that refuses it or makes nothing of it.
func (p *prompter) checkSystem(ctx context.Context, system string) error {
	if system == "" {
		return nil
	}
	if p.text.Template == nil || p.config.EncoderLayers > 0 {
		return &usageError{fmt.Errorf("--system %.60q: the model has no chat template, which would say where it goes", system)}
	}
	var all [2][]int32
	for i, content := range []string{system, system + "."} {
		ids, err := p.text.Prompt(ctx, []text.Message{{Role: "system", Content: content}, {Role: "user", Content: "a"}})
		var refused *chat.RaisedError
		switch {
		case errors.As(err, &refused):
			return &usageError{fmt.Errorf("--system %.60q: %w", system, err)}
		case err != nil:
			return err
		}
		all[i] = ids
	}
	if slices.Equal(all[0], all[1]) {
		return &usageError{fmt.Errorf("--system %.60q: the model's chat template leaves system messages out", system)}
	}
	return nil
}

// checkRoom judges the length of a prompt by the context, which must hold the answer too unless none is wanted.
func (p *prompter) checkRoom(nTokens, nPredict int) error {
	if nTokens > p.context || nTokens == p.context && nPredict != 0 {
		return &usageError{fmt.Errorf("prompt: %d tokens do not fit a context of %d (-c) that must also hold the answer", nTokens, p.context)}
	}
	return nil
}
