package demo

import (
	"fmt"
	"io"
	"sync"
	"time"

	"carillon/cmd/carillon/terminal"
)

// screen is the output that the user watches: events, each a line, and below them on a terminal one
// line that changes every second. Elsewhere that is a line each second, too.
type screen struct {
	out      io.Writer
	terminal bool
	failed   func() // is called when out cannot be written

	mu     sync.Mutex
	began  time.Time // zero: not yet
	status string
}

func newScreen(out io.Writer, failed func()) *screen {
	return &screen{out: out, terminal: terminal.IsScreen(out), failed: failed}
}

// begin starts the clock that lines carry.
func (s *screen) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = time.Now()
}

// event prints an event.
func (s *screen) event(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(s.stamp() + fmt.Sprintf(format, args...))
}

// show prints or replaces the status line.
func (s *screen) show(status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status = s.stamp() + status
	if !s.terminal {
		s.write(status + "\n")
		return
	}
	s.status = status
	s.write(terminal.ClearLine + status)
}

// end leaves the status line where it is.
func (s *screen) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status != "" {
		s.write("\n")
		s.status = ""
	}
}

func (s *screen) line(text string) {
	if s.status != "" {
		text = terminal.ClearLine + text
	}
	s.write(text + "\n" + s.status)
}

func (s *screen) write(text string) {
	if _, err := io.WriteString(s.out, text); err != nil {
		s.failed()
	}
}

func (s *screen) stamp() string {
	if s.began.IsZero() {
		return "      "
	}
	return fmt.Sprintf("%4.0fs ", time.Since(s.began).Seconds())
}
