package terminal

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// showAll shows a text each tenth of a second.
func showAll(p *Progress, texts ...string) {
	for _, text := range texts {
		p.Show(text)
		time.Sleep(100 * time.Millisecond)
	}
	p.End()
}

// TestProgressIsALineASecond: of a growth to thousands of shards a log is not to keep thousands of
// lines.
func TestProgressIsALineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		showAll((&Terminal{Out: &out}).Progress(), "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "11", "13")
		if got, want := out.String(), "1\n11\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestProgressOnAScreenIsOneLine, which is gone at the end, and takes no commands from elsewhere.
func TestProgressOnAScreenIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		showAll(&Progress{screen: &out}, "1", "1", "2\x1b[2J")
		if got, want := out.String(), "\r\x1b[K1\r\x1b[K2·[2J\r\x1b[K"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
