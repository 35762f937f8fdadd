package demo

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"carillon/cmd/carillon/terminal"
	"carillon/test/testkit"
)

func TestScreenOnATerminalKeepsOneStatusLine(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, nil)
	s.terminal = true
	s.event("first")
	s.show("status 1")
	s.event("event")
	s.show("status 2")
	s.end()
	want := "      first\n" + terminal.ClearLine + "      status 1" + terminal.ClearLine + "      event\n      status 1" + terminal.ClearLine + "      status 2\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestScreenElsewhereIsPlain(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out, nil)
	s.show("status")
	s.begin()
	s.event("event")
	s.end()
	if out.String() != "      status\n   0s event\n" || strings.Contains(out.String(), "\x1b") {
		t.Errorf("got %q", out.String())
	}
}

// TestScreenOfAProcess: a character device is taken for a terminal, and one that cannot be written is
// reported.
func TestScreenOfAProcess(t *testing.T) {
	out, err := os.Open(os.DevNull) // to read
	testkit.Must(t, err)
	defer out.Close()
	failed := false
	s := newScreen(out, func() { failed = true })
	if !s.terminal {
		t.Error("a device counts as a file")
	}
	if s.event("event"); !failed {
		t.Error("that it cannot be written is not reported")
	}
}
