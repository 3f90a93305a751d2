package engine

import (
	"context"
	"iter"
)

// Generate runs one request and yields its tokens as they come; the error, if any, comes last. Leaving the loop early
// or ending ctx cancels the request.
func (e *Engine) Generate(ctx context.Context, req Request) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		t, err := e.Submit(ctx, req)
		if err != nil {
			yield(0, err)
			return
		}
		for tok := range t.Tokens() {
			if tok.Err != nil {
				yield(0, tok.Err)
				return
			}
			if tok.HasID && !yield(tok.ID, nil) {
				return
			}
		}
	}
}
