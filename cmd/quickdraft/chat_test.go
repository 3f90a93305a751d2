package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"quickdraft/text"
)

// talk is a conversation without a model: answers come when the test says so, and what would be printed is kept.
type talk struct {
	*conversation
	t       *testing.T
	inbox   chan tea.Msg
	asked   [][]text.Message
	release chan string // the next answer
	printed []string
	quit    bool
}

func newTalk(t *testing.T) *talk {
	x := &talk{t: t, inbox: make(chan tea.Msg, 64), release: make(chan string)}
	x.conversation = newConversation(context.Background(), &runFlags{system: "be brief"}, nil)
	x.send = func(m tea.Msg) { x.inbox <- m }
	x.encode = func(m []text.Message) ([]int32, error) {
		if strings.Contains(m[len(m)-1].Content, "too long") {
			return nil, errors.New("does not fit")
		}
		x.asked = append(x.asked, append([]text.Message(nil), m...))
		return []int32{1}, nil
	}
	x.generate = func(ctx context.Context, _ []int32, show func(string)) (result, error) {
		select {
		case s := <-x.release:
			show(s)
			return result{}, nil
		case <-ctx.Done():
			return result{}, ctx.Err()
		}
	}
	return x
}

// feed hands a message to the conversation and does what it asks for.
func (x *talk) feed(msg tea.Msg) {
	if _, ok := msg.(tea.QuitMsg); ok {
		x.quit = true
		return
	}
	_, cmd := x.Update(msg)
	x.do(cmd)
}

// do runs a command and feeds what it yields; sequences are lists of commands, and printed lines stay with the terminal.
func (x *talk) do(cmd tea.Cmd) {
	if cmd == nil || x.quit {
		return
	}
	msg := cmd()
	if v := reflect.ValueOf(msg); v.Kind() == reflect.Slice && v.Type().Elem() == reflect.TypeFor[tea.Cmd]() {
		for i := range v.Len() {
			x.do(v.Index(i).Interface().(tea.Cmd))
		}
		return
	}
	if strings.HasSuffix(fmt.Sprintf("%T", msg), "printLineMessage") {
		x.printed = append(x.printed, fmt.Sprint(msg))
		return
	}
	if msg != nil {
		x.feed(msg)
	}
}

// line types a line and presses Enter.
func (x *talk) line(s string) {
	x.input.SetValue(s)
	x.feed(tea.KeyPressMsg(tea.Key{Code: tea.KeyEnter}))
}

// answer ends the answer that is coming.
func (x *talk) answer(s string) {
	x.t.Helper()
	x.release <- s
	x.untilDone()
}

func (x *talk) untilDone() {
	x.t.Helper()
	for {
		select {
		case m := <-x.inbox:
			x.feed(m)
			if _, done := m.(doneMsg); done {
				return
			}
		case <-time.After(patience):
			x.t.Fatal("no answer")
		}
	}
}

func (x *talk) lastAsked() string {
	m := x.asked[len(x.asked)-1]
	var parts []string
	for _, m := range m {
		parts = append(parts, m.Role+": "+m.Content)
	}
	return strings.Join(parts, "; ")
}

func TestLinesSentWhileAnAnswerComesWait(t *testing.T) {
	x := newTalk(t)
	x.line("one")
	require.Len(t, x.asked, 1)
	x.line("  two ")
	x.line("   ")
	x.line("three")
	require.Len(t, x.asked, 1, "an answer is coming")
	require.Empty(t, x.input.Value())
	require.Equal(t, []string{"two", "three"}, x.queue)
	view := x.View().Content
	require.Contains(t, view, "next: two")
	require.Contains(t, view, "next: three")
	x.answer("1")
	require.Equal(t, "system: be brief; user: one; assistant: 1; user: two", x.lastAsked())
	require.Equal(t, []string{"three"}, x.queue)
	x.answer("2")
	require.Equal(t, "system: be brief; user: one; assistant: 1; user: two; assistant: 2; user: three", x.lastAsked())
	x.answer("3")
	require.Nil(t, x.stop)
	require.Empty(t, x.queue)
	require.Equal(t, []string{"one", "two", "three"}, x.sent)
	all := strings.Join(x.printed, "\n")
	for _, pair := range [][2]string{{"one", "1"}, {"1", "two"}, {"two", "2"}, {"2", "three"}} {
		require.Less(t, strings.Index(all, pair[0]), strings.LastIndex(all, pair[1]), all)
	}
}

func TestWaitingCommandsAreObeyedInTurn(t *testing.T) {
	x := newTalk(t)
	x.line("one")
	for _, s := range []string{"/reset", "this is too long", "two", "/exit", "three"} {
		x.line(s)
	}
	require.Contains(t, x.View().Content, "and 2 more")
	x.answer("1")
	require.Equal(t, "system: be brief; user: two", x.lastAsked())
	require.Contains(t, strings.Join(x.printed, "\n"), "does not fit")
	require.False(t, x.quit)
	x.answer("2")
	require.True(t, x.quit)
	require.Len(t, x.asked, 2)
}

func TestStoppingAnAnswerGoesOnWithWhatWaits(t *testing.T) {
	x := newTalk(t)
	x.line("one")
	x.line("two")
	x.feed(tea.KeyPressMsg(tea.Key{Code: 'c', Mod: tea.ModCtrl}))
	x.untilDone()
	require.Contains(t, strings.Join(x.printed, "\n"), "stopped")
	require.Equal(t, "system: be brief; user: two", x.lastAsked(), "a question without an answer is forgotten")
	x.answer("2")
	require.Nil(t, x.stop)
}
