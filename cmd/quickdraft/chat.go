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
	"golang.org/x/term"

	"quickdraft/text"
)

const chatHelp = `/help    this list
/reset   forget the conversation
/stats   figures of the last answer
/exit    leave (Ctrl-D does too)
Enter sends, or lets the line wait while an answer comes; Alt-Enter or Ctrl-J starts a new line, Up and Down recall what was
sent, Ctrl-C stops an answer.`

var (
	dim  = lipgloss.NewStyle().Faint(true)
	bold = lipgloss.NewStyle().Bold(true)
)

// chat opens a conversation in the terminal.
func (f *runFlags) chat(ctx context.Context) error {
	m, err := f.start(ctx, func(p *prompter) error { return p.checkSystem(ctx, f.system) })
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Fprintln(os.Stderr, dim.Render("/help lists the commands"))
	c := newConversation(ctx, f, m)
	p := tea.NewProgram(c, tea.WithContext(ctx), tea.WithoutSignalHandler()) // signals end ctx
	c.send = p.Send
	fd := int(os.Stdin.Fd())
	if before, err := term.GetState(fd); err == nil {
		onReset(func() {
			_ = term.Restore(fd, before)
			fmt.Fprint(os.Stdout, "\x1b[?25h\x1b[?2004l") // the cursor is seen, and what is pasted comes as it is
		})
		defer onReset(nil)
	}
	_, err = p.Run()
	if c.stop != nil {
		c.stop()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// conversation is the state of a chat; it implements tea.Model.
type conversation struct {
	ctx      context.Context
	system   string
	encode   func([]text.Message) ([]int32, error)
	generate func(ctx context.Context, ids []int32, show func(string)) (result, error)
	send     func(tea.Msg)

	input         textarea.Model
	width, height int
	messages      []text.Message
	sent          []string // what the user sent, for recall
	at            int      // position in sent; len(sent) is the line being written
	draft         string   // that line, while another one is recalled
	queue         []string // sent while an answer came, in the order in which they are to be obeyed

	answer strings.Builder    // the answer that is coming
	stop   context.CancelFunc // ends it; nil when none is coming
	last   *figures
}

// pieceMsg is a piece of an answer, doneMsg its end. nextMsg comes when all that is known is printed.
type (
	pieceMsg string
	doneMsg  struct {
		figures figures
		err     error
	}
	nextMsg struct{}
)

func newConversation(ctx context.Context, f *runFlags, m *loaded) *conversation {
	in := textarea.New()
	in.Prompt, in.ShowLineNumbers, in.Placeholder = "> ", false, "ask something, or /help"
	in.SetHeight(1)
	in.MaxHeight = 12
	in.KeyMap.InsertNewline.SetKeys("alt+enter", "ctrl+j", "shift+enter")
	in.Focus()
	c := &conversation{ctx: ctx, system: f.system, input: in, width: 80, height: 24}
	c.encode = func(messages []text.Message) ([]int32, error) { return m.encode(ctx, messages, f.raw) }
	c.generate = func(ctx context.Context, ids []int32, show func(string)) (result, error) {
		return f.generate(ctx, m, ids, show)
	}
	c.reset()
	return c
}

// reset forgets everything but the system message.
func (c *conversation) reset() {
	c.messages = nil
	if c.system != "" {
		c.messages = []text.Message{{Role: "system", Content: c.system}}
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
	case nextMsg:
		return c, c.next()
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

// enter sends what was written, or lets it wait until the answer that is coming has ended.
func (c *conversation) enter() tea.Cmd {
	line := strings.TrimSpace(c.input.Value())
	if line == "" {
		return nil
	}
	c.input.Reset()
	c.input.SetHeight(1)
	c.sent = append(c.sent, line)
	c.at, c.draft = len(c.sent), ""
	if c.stop != nil || len(c.queue) > 0 {
		c.queue = append(c.queue, line)
		return nil
	}
	return c.obey(line)
}

// next obeys the line that has waited longest.
func (c *conversation) next() tea.Cmd {
	if c.stop != nil || len(c.queue) == 0 {
		return nil
	}
	line := c.queue[0]
	c.queue = c.queue[1:]
	return c.obey(line)
}

// goOn lets the next line be obeyed after everything before it is printed.
func goOn() tea.Msg { return nextMsg{} }

// obey asks for an answer, or does what a command says.
func (c *conversation) obey(line string) tea.Cmd {
	echo := tea.Println(bold.Render("> ") + line)
	if strings.HasPrefix(line, "/") {
		return tea.Sequence(echo, c.command(line), goOn)
	}
	c.messages = append(c.messages, text.Message{Role: "user", Content: line})
	ids, err := c.encode(c.messages)
	if err != nil {
		c.messages = c.messages[:len(c.messages)-1]
		return tea.Sequence(echo, tea.Println(dim.Render(err.Error())), goOn)
	}
	ctx, stop := context.WithCancel(c.ctx)
	c.stop = stop
	go func() {
		res, err := c.generate(ctx, ids, func(s string) { c.send(pieceMsg(s)) })
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
	return tea.Sequence(tea.Println(answer), tea.Println(note), goOn)
}

// View shows the end of the answer that is coming, the lines that wait, and the input.
func (c *conversation) View() tea.View {
	if c.stop == nil {
		return tea.NewView(c.input.View())
	}
	wrapped := lipgloss.NewStyle().Width(c.width).Render(c.answer.String())
	lines := strings.Split(wrapped, "\n")
	waiting := c.waiting()
	if room := max(1, c.height-3-len(waiting)-c.input.Height()); len(lines) > room {
		lines = lines[len(lines)-room:]
	}
	lines = append(append(lines, dim.Render("Ctrl-C stops")), waiting...)
	return tea.NewView(strings.Join(lines, "\n") + "\n" + c.input.View())
}

// maxWaiting is how many lines that wait are shown.
const maxWaiting = 3

// waiting returns the lines of the queue as they are shown: one row each.
func (c *conversation) waiting() []string {
	var rows []string
	for i, line := range c.queue {
		if i == maxWaiting {
			rows = append(rows, dim.Render(fmt.Sprintf("and %d more", len(c.queue)-i)))
			break
		}
		first, _, _ := strings.Cut(line, "\n")
		rows = append(rows, dim.MaxWidth(c.width).Render("next: "+first))
	}
	return rows
}
