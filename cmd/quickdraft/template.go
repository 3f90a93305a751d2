package main

import (
	"context"
	"os"
	"time"

	"quickdraft/model"
	"quickdraft/tensor"
	"quickdraft/text"
	"quickdraft/text/chat"
)

// render renders the conversation of --messages with the model's template or the one that replaces it.
func (o *templateFlags) render(ctx context.Context, f *modelFlags) (string, error) {
	data, err := readInput(ctx, o.messages)
	if err != nil {
		return "", err
	}
	in, err := chat.ParseRequest(data)
	if err != nil {
		return "", err
	}
	if o.now != "" {
		now, err := parseNow(o.now)
		if err != nil {
			return "", err
		}
		in.Now = func() time.Time { return now }
	}
	template, err := o.compile(ctx, f, &in)
	if err != nil {
		return "", err
	}
	s, err := template.RenderContext(ctx, in)
	return s, text.TemplateError(err)
}

// compile returns the template and fills the texts of BOS and EOS in.
func (o *templateFlags) compile(ctx context.Context, f *modelFlags, in *chat.Input) (*chat.Template, error) {
	in.BOS, in.EOS = o.bos, o.eos
	if o.template != "" {
		src, err := readFile("--template", o.template)
		if err != nil {
			return nil, err
		}
		return chat.Compile(string(src))
	}
	_, t, err := f.resolveText(ctx)
	if err != nil {
		return nil, err
	}
	if t.Template == nil {
		return nil, text.ErrNoTemplate
	}
	if o.bos == "" {
		in.BOS = t.BOS
	}
	if o.eos == "" {
		in.EOS = t.EOS
	}
	return t.Template, nil
}

func readInput(ctx context.Context, path string) ([]byte, error) {
	if path == "-" {
		return readStdin(ctx)
	}
	return readFile("--messages", path)
}

// openModel loads a model without an engine around it.
func (f *modelFlags) openModel(ctx context.Context, path string) (*model.Model, error) {
	o := f.engineOptions()
	bar := newBar("loading", os.Stderr)
	defer bar.Finish()
	pool := tensor.NewPool(o.Threads)
	m, err := model.Load(path, model.Options{
		F32: o.F32, Pool: pool, Progress: bar.Set, TilesDir: o.TilesDir, Note: bar.Note, Stop: stopOf(ctx),
	})
	if err != nil {
		pool.Close()
	}
	return m, err
}
