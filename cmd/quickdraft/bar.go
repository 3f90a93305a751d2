package main

import (
	"fmt"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// bar shows progress in bytes, or in pieces with Count, on a terminal and nothing elsewhere. It appears with the first Set.
type bar struct {
	title    string
	out      *os.File
	progress *mpb.Progress
	inner    *mpb.Bar
	pieces   bool
}

func newBar(title string, out *os.File) *bar { return &bar{title: title, out: out} }

// Name changes the title of a bar that is not shown yet.
func (b *bar) Name(title string) {
	if b.inner == nil {
		b.title = title
	}
}

// Set shows done of total bytes.
func (b *bar) Set(done, total int64) {
	if !term.IsTerminal(int(b.out.Fd())) {
		return
	}
	if b.inner == nil {
		b.progress = mpb.New(mpb.WithOutput(b.out), mpb.WithWidth(50))
		counters := decor.CountersKibiByte("% .1f / % .1f")
		if b.pieces {
			counters = decor.CountersNoUnit("%d / %d")
		}
		b.inner = b.progress.AddBar(total, mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(b.title+" "), counters),
			mpb.AppendDecorators(decor.Percentage()))
	}
	b.inner.SetTotal(total, false)
	b.inner.SetCurrent(done)
}

// Count shows done of total pieces.
func (b *bar) Count(done, total int) {
	b.pieces = true
	b.Set(int64(done), int64(total))
}

// Note prints a line above the bar.
func (b *bar) Note(line string) {
	if b.progress != nil {
		fmt.Fprintln(b.progress, line)
		return
	}
	fmt.Fprintln(b.out, line)
}

// Finish takes the bar away.
func (b *bar) Finish() {
	if b.inner == nil {
		return
	}
	b.inner.SetTotal(-1, true)
	b.progress.Wait()
	b.inner, b.progress = nil, nil
}
