package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// output is a log's reader that the test stops and breaks.
type output struct {
	text   bytes.Buffer
	gate   chan struct{} // not nil: each write takes one of it
	broken bool
	room   int // bytes that a write takes; negative: all
}

func (o *output) Write(b []byte) (int, error) {
	if o.gate != nil {
		<-o.gate
	}
	if o.broken {
		return 0, errors.New("broken pipe")
	}
	if o.room >= 0 && len(b) > o.room {
		o.text.Write(b[:o.room])
		return o.room, errors.New("no space")
	}
	return o.text.Write(b)
}

func newTestLog(out io.Writer) (*Log, *slog.Logger) {
	handler := func(w io.Writer) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}})
	}
	l := NewLog(out, handler)
	return l, slog.New(handler(l))
}

const lostLines = `msg="lines of this log were lost: its reader was too slow, or it could not be written" lines=`

// TestLoggingNeverWaits: while the reader does not read, lines beyond the bound are dropped and
// counted; when it reads on, it gets the rest, and their number. The end does not wait for it.
func TestLoggingNeverWaits(t *testing.T) {
	for name, c := range map[string]struct {
		line  string
		logs  int
		taken int // at least
	}{
		"many": {"x", mostLines + 100, mostLines},
		"long": {strings.Repeat("x", 64<<10), 40, 14},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &output{gate: make(chan struct{}), room: -1}
				l, log := newTestLog(out)
				done := make(chan struct{})
				go func() { defer close(done); l.Run() }()
				log.Info(c.line)
				synctest.Wait() // its write hangs before a line is lost, so that one report counts them all
				for range c.logs - 1 {
					log.Info(c.line)
				}
				synctest.Wait()
				waiting, counted := l.Counts()
				lost := int(counted)
				if taken := c.logs - lost; lost == 0 || taken < c.taken || taken > c.taken+2 || int(waiting) != taken {
					t.Fatalf("%d of %d lines are lost, %d wait", lost, c.logs, waiting)
				}
				begun := time.Now()
				l.Close(time.Second)
				if took := time.Since(begun); took != time.Second {
					t.Errorf("the end took %v", took)
				}
				close(out.gate)
				synctest.Wait()
				text := out.text.String()
				if n := strings.Count(text, "\n"); n != c.logs-lost+1 || !strings.Contains(text, fmt.Sprint(lostLines, lost, "\n")) {
					t.Errorf("%d lines were written, %d lost: %.300s", n, lost, text)
				}
				if len(l.queue) > 0 { // Close gave up before its mark had a place
					t.Errorf("%d lines wait", len(l.queue))
				}
				l.Close(time.Second)
				<-done
			})
		})
	}
}

// TestLostLinesAreReportedOnce: an output that is gone costs its lines alone, and the first line
// after it has come back is their number. A line that was cut ends before it.
func TestLostLinesAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &output{room: -1}
		l, log := newTestLog(out)
		go l.Run()
		write := func(text string) {
			log.Info(text)
			synctest.Wait()
		}
		write("a")
		out.broken = true
		write("b")
		write("c")
		out.broken, out.room = false, 3
		write("d")
		out.room = -1
		write("e")
		write("f")
		l.Close(time.Second)
		want := "msg=a\nmsg\nms\n" + lostLines + "3\nmsg=e\nmsg=f\n"
		if got := out.text.String(); got != want || l.lost.Load() != 3 || l.lines.Load() != 0 || l.bytes.Load() != 0 {
			t.Errorf("%d lost, %d wait:\n%s\nwant\n%s", l.lost.Load(), l.lines.Load(), got, want)
		}
	})
}

// TestCloseWritesWhatWaits: the last lines, and the number of lost ones, are written at the end.
func TestCloseWritesWhatWaits(t *testing.T) {
	out := &output{room: -1}
	l, log := newTestLog(out)
	for i := range 100 {
		log.Info(fmt.Sprint(i))
	}
	l.lost.Add(1)
	go l.Run()
	l.Close(time.Minute)
	if text := out.text.String(); strings.Count(text, "\n") != 101 || !strings.HasSuffix(text, "msg=99\n") || !strings.Contains(text, lostLines+"1\n") {
		t.Error(text)
	}
}

func TestWriteWithinALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &output{gate: make(chan struct{}), room: -1}
		begun := time.Now()
		WriteWithin(time.Second, out, "x")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("took %v", took)
		}
		close(out.gate)
		synctest.Wait()
		WriteWithin(time.Second, out, "y")
		if took := time.Since(begun); took != time.Second || out.text.String() != "xy" {
			t.Errorf("took %v, wrote %q", took, out.text.String())
		}
	})
}
