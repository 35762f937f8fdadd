package loadtest

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// misanswer answers an add otherwise than in HTTP as it should be; false when the fault is none of
// these.
func (f *fake) misanswer(w http.ResponseWriter, topic string, op fakeOp, what fault) bool {
	good := "HTTP/1.1 201 Created\r\nContent-Length: 40\r\n\r\n"
	good += string(append([]byte(`{"id":"`+op.ID+`"}`), bytes.Repeat([]byte(" "), 40)...)[:40])
	var pieces []string
	if what == faultTwoAnswers || what == faultLateAnswer {
		f.apply(topic, op)
	}
	switch what {
	case faultTwoAnswers:
		pieces = []string{good + good}
	case faultLateAnswer:
		pieces = []string{good, good}
	case faultHalfBody:
		pieces = []string{good[:len(good)-25]}
	case faultGarbage:
		pieces = []string{"220 mail.example.org ESMTP\r\n\r\n"}
	case faultRedirect:
		pieces = []string{"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"}
	case faultLoris:
		pieces = make([]string, len(good))
		for i := range good {
			pieces[i] = good[i : i+1]
		}
	default:
		return false
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return true
	}
	defer conn.Close()
	f.calls.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // requests meanwhile have no answer
	for _, piece := range pieces {
		if _, err := io.WriteString(conn, piece); err != nil {
			return true
		}
		<-time.After(100 * time.Millisecond)
	}
	return true
}

// An answer that cannot be trusted acknowledges nothing, and the connection that it came on is used
// no more.
func TestBadAnswers(t *testing.T) {
	for _, c := range []struct {
		name                              string
		fault                             fault
		batch                             int
		unknown, refused, broken, tooLate int64
	}{
		{"about another timer", faultOtherAnswer, 1, 10, 0, 10, 0},
		{"about another timer, in a batch", faultWrongResult, 10, 10, 0, 0, 0},
		{"two at once", faultTwoAnswers, 1, 10, 0, 10, 0},
		{"half", faultHalfBody, 1, 10, 0, 10, 0},
		{"not HTTP", faultGarbage, 1, 10, 0, 10, 0},
		{"redirect", faultRedirect, 1, 0, 10, 0, 0},
		{"a byte at a time", faultLoris, 1, 10, 0, 0, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := newFake(t, every(10, c.fault))
				// With a rate, so that the connection is at rest when the redirected end it.
				r, out := play(t, f, Config{Mode: ModeAdd, Batch: c.batch, Rate: 100, Delay: "1h", Timeout: time.Second})
				if r.Unknown != c.unknown || r.Refused != c.refused || r.Timeouts != c.tooLate || (c.broken > 0 && r.Broken != c.broken) {
					t.Errorf("unknown %d, refused %d, broken %d, timeouts %d\n%s", r.Unknown, r.Refused, r.Broken, r.Timeouts, out)
				}
				if c.fault == faultRedirect && !strings.Contains(r.FirstError, "answered 307: to /elsewhere, which is not followed") {
					t.Errorf("the first error does not name the Location: %q", r.FirstError)
				}
				if r.Prevented < 80 || r.FirstError == "" {
					t.Errorf("prevented %d, first error %q\n%s", r.Prevented, r.FirstError, out)
				}
			})
		})
	}
}

// A second answer that comes when the first has been read is not taken for the next request's.
func TestLateAnswerIsNotTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(10, faultLateAnswer))
		r, out := play(t, f, Config{Mode: ModeAdd, Connections: 1, Rate: 8, Timers: 40, Delay: "1h"})
		if r.Added+r.Unknown != 40 || r.Unknown != 4 || len(r.Failures()) > 0 {
			t.Errorf("added %d, unknown %d\n%s", r.Added, r.Unknown, out)
		}
	})
}

func TestChangesAreHeldToTheirWord(t *testing.T) {
	for _, c := range []struct {
		name                           string
		fault                          fault
		lost, stale, wrong, unexpected bool
	}{
		{"its payload at the old time", faultOldTime, false, false, true, false},
		{"acknowledged after firing", faultPatchAfterFire, true, false, false, false},
		{"refused and done", faultPatchRefusedButDone, false, false, false, true},
		{"unanswered and done", faultPatchUnanswered, false, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := newFake(t, every(1, c.fault))
				// A short grace: an unanswered change that took effect postpones its timer by more
				// than that.
				r, out := play(t, f, Config{Mode: ModeMixed, Timers: 300, Rate: 500, Delay: "uniform:10ms-300ms", Mix: "add=50,patch=50", Grace: 100 * time.Millisecond})
				got := [...]bool{r.Lost > 0, r.Stale > 0, r.WrongPayload > 0, r.Unexpected > 0}
				if c.fault == faultPatchAfterFire {
					// Its delivery may still be under way when the fake acknowledges the patch:
					// stale, too.
					got[1] = false
				}
				if want := [...]bool{c.lost, c.stale, c.wrong, c.unexpected}; got != want {
					t.Errorf("lost, stale, wrong, unexpected %v, want %v: %q\n%s", got, want, r.Failures(), out)
				}
			})
		})
	}
}

// A read shows the last acknowledged version.
func TestStaleReadsAreCaught(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run(map[bool]string{false: "true", true: "stale"}[stale], func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				faults := every(1, faultNone)
				if stale {
					faults = every(1, faultStaleRead)
				}
				f := newFake(t, faults)
				r, out := play(t, f, Config{Mode: ModeMixed, Timers: 200, Delay: "2s", Mix: "add=40,patch=30,get=30"})
				if (r.StaleReads > 0) != stale || (len(r.Failures()) > 0) != stale {
					t.Errorf("stale reads %d, failures %q\n%s", r.StaleReads, r.Failures(), out)
				}
			})
		})
	}
}

// A call that a cancel finds under way, with a receiver of another's, is asked about until it has
// ended.
func TestExternalSinkInFlight(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(10, faultInFlight))
		r, out := play(t, f, Config{Mode: ModeFire, Grace: time.Second, Sink: f.url + "/v1/topics/x/y"})
		if r.Fired != 100 || r.Pending != 0 || r.FirstError != "" {
			t.Errorf("fired %d, pending %d, first error %q\n%s", r.Fired, r.Pending, r.FirstError, out)
		}
	})
}

// With a receiver of another's, the tester cannot see the arrivals; timers that the server still
// has long after they were due are reported.
func TestExternalSinkThatRefuses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(10, faultDrop))
		r, out := play(t, f, Config{Mode: ModeFire, Grace: time.Second, Sink: f.url + "/v1/topics/x/y"})
		if r.Overdue != 10 || r.Fired != 90 {
			t.Errorf("overdue %d, fired %d\n%s", r.Overdue, r.Fired, out)
		}
	})
}
