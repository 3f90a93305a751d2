package text

import (
	"context"
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"

	"quickdraft/text/chat"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant"
	Content string
}

// ErrNoTemplate is returned for a conversation with a model that has no chat template.
var ErrNoTemplate = errors.New("the model has no chat template")

// Prompt renders a conversation with the model's template, asks for the assistant's next turn and returns the token ids,
// with exactly one BOS where the model wants one. Special tokens in the contents stay plain text.
func (t *Text) Prompt(ctx context.Context, messages []Message) ([]int32, error) {
	var list []jinja.Value
	for _, m := range messages {
		d := jinja.NewDict()
		d.AsDict().Set("role", jinja.NewString(m.Role))
		d.AsDict().Set("content", jinja.NewString(t.Tokenizer.GuardSpecial(m.Content)))
		list = append(list, d)
	}
	return t.PromptInput(ctx, chat.Input{Messages: jinja.NewList(list), AddGenerationPrompt: true})
}

// PromptInput is Prompt for a conversation with tools, documents and variables. The error wraps a *chat.RaisedError where
// the template refused the conversation.
func (t *Text) PromptInput(ctx context.Context, in chat.Input) ([]int32, error) {
	if t.Template == nil {
		return nil, ErrNoTemplate
	}
	if in.BOS == "" {
		in.BOS = t.BOS
	}
	if in.EOS == "" {
		in.EOS = t.EOS
	}
	s, err := t.Template.RenderContext(ctx, in)
	if err != nil {
		return nil, TemplateError(err)
	}
	return t.Tokenizer.EncodePrompt(s), nil
}

// TemplateError returns an error of a template's Render for people to read: a *chat.RaisedError, which has nothing but the
// template's own text, is wrapped in one that says where the text is from. Others stay as they are.
func TemplateError(err error) error {
	var raised *chat.RaisedError
	if errors.As(err, &raised) {
		return fmt.Errorf("the model's chat template refuses the conversation: %w", err)
	}
	return err
}
