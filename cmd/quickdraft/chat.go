package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"quickdraft/text"
)

const chatHelp = `/help    this list
/reset   forget the conversation
/stats   figures of the last answer
/exit    leave (Ctrl-D does too)
Enter sends, Alt-Enter or Ctrl-J starts a new line, Up and Down recall what was sent, Ctrl-C stops an answer.`

var (
	dim  = lipgloss.NewStyle().Faint(true)
	bold = lipgloss.NewStyle().Bold(true)
)

// chat opens a conversation in the terminal.
func (f *runFlags) chat(ctx context.Context) error {
	m, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Fprintln(os.Stderr, m.banner())
	fmt.Fprintln(os.Stderr, dim.Render("/help lists the commands"))
	c := newConversation(ctx, f, m)
	p := tea.NewProgram(c, tea.WithContext(ctx))
	c.send = p.Send
	_, err = p.Run()
	if c.stop != nil {
		c.stop()
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// conversation is the state of a chat; it implements tea.Model.
type conversation struct {
	ctx   context.Context
	flags *runFlags
	model *loaded
	send  func(tea.Msg)

	input         textarea.Model
	width, height int
	messages      []text.Message
	sent          []string // what the user sent, for recall
	at            int      // position in sent; len(sent) is the line being written
	draft         string   // that line, while another one is recalled

	answer strings.Builder    // the answer that is coming
	stop   context.CancelFunc // ends it; nil when none is coming
	last   *figures
}

// pieceMsg is a piece of an answer, doneMsg its end.
type (
	pieceMsg string
	doneMsg  struct {
		figures figures
		err     error
	}
)

func newConversation(ctx context.Context, f *runFlags, m *loaded) *conversation {
	in := textarea.New()
	in.Prompt, in.ShowLineNumbers, in.Placeholder = "> ", false, "ask something, or /help"
	in.SetHeight(1)
	in.MaxHeight = 12
	in.KeyMap.InsertNewline.SetKeys("alt+enter", "ctrl+j", "shift+enter")
	in.Focus()
	c := &conversation{ctx: ctx, flags: f, model: m, input: in, width: 80, height: 24}
	c.reset()
	return c
}

// reset forgets everything but the system message.
func (c *conversation) reset() {
	c.messages = nil
	if c.flags.system != "" {
		c.messages = []text.Message{{Role: "system", Content: c.flags.system}}
	}
}

// Init starts the cursor.
func (c *conversation) Init() tea.Cmd { return textarea.Blink }

// Update handles a key, a piece of an answer, or a new window size.
func (c *conversation) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		c.width, c.height = msg.Width, msg.Height
		c.input.SetWidth(msg.Width)
		return c, nil
	case pieceMsg:
		c.answer.WriteString(string(msg))
		return c, nil
	case doneMsg:
		return c, c.finish(msg)
	case tea.KeyPressMsg:
		if cmd, handled := c.key(msg.String()); handled {
			return c, cmd
		}
	}
	var cmd tea.Cmd
	c.input, cmd = c.input.Update(msg)
	c.input.SetHeight(max(1, min(c.input.LineCount(), 12)))
	return c, cmd
}

// key handles the keys that are not text.
func (c *conversation) key(name string) (cmd tea.Cmd, handled bool) {
	switch name {
	case "ctrl+c":
		if c.stop != nil {
			c.stop()
			return nil, true
		}
		if c.input.Value() != "" {
			c.input.Reset()
			return nil, true
		}
		return tea.Quit, true
	case "ctrl+d":
		if c.input.Value() == "" {
			return tea.Quit, true
		}
	case "enter":
		return c.enter(), true
	case "up":
		if c.input.Line() == 0 && c.at > 0 {
			c.recall(c.at - 1)
			return nil, true
		}
	case "down":
		if c.input.Line() == c.input.LineCount()-1 && c.at < len(c.sent) {
			c.recall(c.at + 1)
			return nil, true
		}
	}
	return nil, false
}

// recall puts an earlier line into the input; the line being written is kept.
func (c *conversation) recall(at int) {
	if c.at == len(c.sent) {
		c.draft = c.input.Value()
	}
	c.at = at
	if at == len(c.sent) {
		c.input.SetValue(c.draft)
		return
	}
	c.input.SetValue(c.sent[at])
}

// enter sends what was written, or obeys it when it is a command.
func (c *conversation) enter() tea.Cmd {
	line := strings.TrimSpace(c.input.Value())
	if line == "" || c.stop != nil {
		return nil
	}
	c.input.Reset()
	c.input.SetHeight(1)
	c.sent = append(c.sent, line)
	c.at, c.draft = len(c.sent), ""
	echo := tea.Println(bold.Render("> ") + line)
	if strings.HasPrefix(line, "/") {
		return tea.Sequence(echo, c.command(line))
	}
	c.messages = append(c.messages, text.Message{Role: "user", Content: line})
	ids, err := c.model.encode(c.ctx, c.messages, c.flags.raw)
	if err != nil {
		c.messages = c.messages[:len(c.messages)-1]
		return tea.Sequence(echo, tea.Println(dim.Render(err.Error())))
	}
	ctx, stop := context.WithCancel(c.ctx)
	c.stop = stop
	go func() {
		res, err := c.flags.generate(ctx, c.model, ids, func(s string) { c.send(pieceMsg(s)) })
		c.send(doneMsg{res.figures, err})
	}()
	return echo
}

// command obeys a line that starts with a slash.
func (c *conversation) command(line string) tea.Cmd {
	switch line {
	case "/help":
		return tea.Println(dim.Render(chatHelp))
	case "/reset":
		c.reset()
		return tea.Println(dim.Render("the conversation starts anew"))
	case "/stats":
		if c.last == nil {
			return tea.Println(dim.Render("no answer yet"))
		}
		return tea.Println(dim.Render(c.last.String()))
	case "/exit", "/quit", "/bye":
		return tea.Quit
	}
	return tea.Println(dim.Render(fmt.Sprintf("%s: no such command, /help lists them", line)))
}

// finish files an answer; one that was stopped stays in the conversation as far as it came.
func (c *conversation) finish(msg doneMsg) tea.Cmd {
	answer := c.answer.String()
	c.answer.Reset()
	c.stop()
	c.stop = nil
	c.last = &msg.figures
	if answer == "" {
		c.messages = c.messages[:len(c.messages)-1]
	} else {
		c.messages = append(c.messages, text.Message{Role: "assistant", Content: answer})
	}
	var note string
	switch {
	case errors.Is(msg.err, context.Canceled):
		note = dim.Render("stopped")
	case msg.err != nil:
		note = dim.Render(msg.err.Error())
	default:
		note = dim.Render(msg.figures.String())
	}
	return tea.Sequence(tea.Println(answer), tea.Println(note))
}

// View shows the end of the answer that is coming, and the input.
func (c *conversation) View() tea.View {
	if c.stop == nil {
		return tea.NewView(c.input.View())
	}
	wrapped := lipgloss.NewStyle().Width(c.width).Render(c.answer.String())
	lines := strings.Split(wrapped, "\n")
	if room := max(1, c.height-3-c.input.Height()); len(lines) > room {
		lines = lines[len(lines)-room:]
	}
	return tea.NewView(strings.Join(lines, "\n") + "\n" + dim.Render("Ctrl-C stops") + "\n" + c.input.View())
}
