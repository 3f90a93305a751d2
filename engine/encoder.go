package engine

import "errors"

// errEncoder is returned for what a model with an encoder cannot do: its sequences share no prefix, since each answers
// its own input.
var errEncoder = errors.New("not with an encoder-decoder model: its sequences cannot be forked")

// encodes reports whether the model has an encoder: a request's prompt is then the encoder's input, and the answer starts
// from the model's start token.
func (e *Engine) encodes() bool { return e.model.Config().EncoderLayers > 0 }

// toEncoder turns the prompt of a request to an encoder-decoder into its input.
func (e *Engine) toEncoder(r *run) {
	if !e.encodes() {
		return
	}
	r.input = r.Prompt
	r.Prompt = []int32{e.model.Config().DecoderStart}
	r.MaxTokens = min(r.MaxTokens, e.contextLen-len(r.Prompt))
	r.NoSpec = true
}

// encode runs the encoder once for a sequence that has nothing in its cache yet. It reports false when the request ended
// with an error.
func (e *Engine) encode(r *run) bool {
	if r.input == nil || r.seq.Len() > 0 {
		return true
	}
	if err := e.model.Encode(r.seq, r.input); err != nil {
		e.notice(err)
		e.finish(r, FinishError, err)
		return false
	}
	return true
}
