package terminal

import (
	"fmt"
	"io"
	"time"
)

// Progress shows how far a command is: on a screen in one line that changes, elsewhere in a line a
// second at most, and none that repeats the last one.
type Progress struct {
	out    io.Writer
	screen io.Writer // nil: the output is none
	shown  string
	at     time.Time // of the last line
}

// progressEvery is how often a file or a program gets a line.
const progressEvery = time.Second

// ClearLine has a screen forget the line that its cursor is in.
const ClearLine = "\r\x1b[K"

// Progress writes to Out.
func (t *Terminal) Progress() *Progress {
	p := &Progress{out: t.Out}
	if raw := t.Raw().Out; IsScreen(raw) {
		p.screen = raw
	}
	return p
}

// Show shows a text of one line.
func (p *Progress) Show(text string) {
	switch {
	case text == p.shown:
		return
	case p.screen != nil:
		fmt.Fprint(p.screen, ClearLine, Printable(text))
	case time.Since(p.at) < progressEvery:
		return // one of the next, if this still holds
	default:
		fmt.Fprintln(p.out, text)
	}
	p.shown, p.at = text, time.Now()
}

// End makes room for what is printed next.
func (p *Progress) End() {
	if p.screen != nil && p.shown != "" {
		fmt.Fprint(p.screen, ClearLine)
	}
}
