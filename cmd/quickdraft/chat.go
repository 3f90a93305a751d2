package main

import (
	"context"
	"errors"
)

func (f *runFlags) chat(ctx context.Context) error { return errors.New("no prompt") }
