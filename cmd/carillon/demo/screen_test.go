package demo

import (
	"bytes"
	"strings"
	"testing"
)

func TestScreenOnATerminalKeepsOneStatusLine(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.terminal = true
	s.event("first")
	s.show("status 1")
	s.event("event")
	s.show("status 2")
	s.end()
	want := "      first\n" + eraseLine + "      status 1" + eraseLine + "      event\n      status 1" + eraseLine + "      status 2\n"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", out.String(), want)
	}
}

func TestScreenElsewhereIsPlain(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.show("status")
	s.begin()
	s.event("event")
	s.end()
	if out.String() != "      status\n   0s event\n" || strings.Contains(out.String(), "\x1b") {
		t.Errorf("got %q", out.String())
	}
}
