package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/test/freeport"
)

const (
	// endLimit bounds the end of a node in bad surroundings: two seconds for its outputs and its
	// audit log, and what a busy machine takes.
	endLimit = 15 * time.Second

	logLost   = "carillon_log_lines_lost_total"
	logWaits  = "carillon_log_lines_waiting"
	auditLost = "carillon_audit_lost_total"
)

// surrounded is a node and what is around it.
type surrounded struct {
	*process
	c        *client
	receiver *receiver
	dir      string // for the test's own files
	data     string // the node's
	address  string
	rounds   int

	// What the process starts with.
	wrapper []string
	flags   []string
	env     []string
	arrange func(*exec.Cmd)
}

// surrounding is one way in which what is around a node is odd, or goes away.
type surrounding struct {
	name   string
	long   bool // not with -short
	before func(t *testing.T, s *surrounded)
	strike func(t *testing.T, s *surrounded) // while the node runs
	shows  string                            // a series that is above 0 then
	after  func(t *testing.T, s *surrounded) // once timers have fired
}

// run starts a node in the surrounding. Before and after the strike adds are taken, and fire once;
// SIGTERM ends the node in time, and a later start has all timers.
func (h *surrounding) run(t *testing.T) {
	if h.long && testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	s := &surrounded{receiver: newReceiver(t, nil), dir: t.TempDir(), address: freeport.Address(t)}
	s.flags = []string{"--shards", "4", "--data", t.TempDir(), "--http", s.address, "--callback-allow", "127.0.0.0/8"}
	if h.before != nil {
		h.before(t, s)
	}
	if s.data == "" {
		s.data = s.flags[3]
	}
	s.start(t)
	s.c.topic(t, "calm", s.receiver.url(), "")
	s.firesTimers(t)
	if h.strike != nil {
		h.strike(t, s)
	}
	if h.shows != "" {
		poll(t, patience, h.shows+" is above 0", func() bool { return s.above0(t, h.shows) })
	}
	s.firesTimers(t)
	if h.after != nil {
		h.after(t, s)
	}
	s.signal(t, syscall.SIGTERM)
	if code := s.awaitExit(t, endLimit); code != 0 {
		t.Errorf("SIGTERM: exit code %d: %s", code, s.stderr)
	}
	again := serve(t, s.data)
	for round := range s.rounds {
		if got := newClient(again).read(t, "calm", fmt.Sprintf("later%d", round)); got.State != "scheduled" {
			t.Errorf("after the end: %+v", got)
		}
	}
	again.kill()
}

// start starts the node, and waits by its port until it is ready: its output may be anything.
func (s *surrounded) start(t *testing.T) {
	t.Helper()
	args := append(append(s.wrapper, binary, "serve"), s.flags...)
	s.process = beginIn(t, s.arrange, args, s.env...)
	url := "http://" + s.address
	s.c = clientAt(url, 20*time.Second)
	poll(t, readyLimit, "the node is ready", func() bool {
		if !s.alive() {
			t.Fatalf("the node ended with %d: %s", s.code, s.stderr)
		}
		return s.c.do("GET", "/readyz", "").status == 200
	})
	s.url = url
}

// above0 reads a series; awaitReady would wait for a line on stdout.
func (s *surrounded) above0(t *testing.T, series string) bool {
	t.Helper()
	for line := range strings.Lines(string(s.c.must(t, 200, "GET", "/metrics", "").body)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && n > 0
		}
	}
	return false
}

// firesTimers adds timers, and waits until they have fired, each once.
func (s *surrounded) firesTimers(t *testing.T) {
	t.Helper()
	if !s.alive() {
		t.Fatalf("the node ended with %d: %s", s.code, tail(s.stderr.String(), 2000))
	}
	const timers = 20
	round := s.rounds
	s.rounds++
	s.c.must(t, 201, "POST", "/v1/topics/calm/timers", fmt.Sprintf(`{"id":"later%d","delay":"24h"}`, round))
	for i := range timers {
		s.c.must(t, 201, "POST", "/v1/topics/calm/timers", fmt.Sprintf(`{"id":"r%d-%d","delay_ms":%d}`, round, i, 10*i))
	}
	poll(t, patience, "the timers have fired", func() bool {
		for i := range timers {
			if s.c.read(t, "calm", fmt.Sprintf("r%d-%d", round, i)).State != "done" {
				return false
			}
		}
		return true
	})
	for i := range timers {
		if n := s.receiver.called("calm", fmt.Sprintf("r%d-%d", round, i)); n != 1 {
			t.Errorf("timer %d of round %d was called %d times", i, round, n)
		}
	}
}

// loseLines makes the node log until lines are lost.
func loseLines(t *testing.T, s *surrounded) {
	t.Helper()
	poll(t, 3*patience, "the log has lost lines", func() bool {
		for range 500 {
			if !s.alive() {
				t.Fatalf("the node ended with %d", s.code)
			}
			s.signal(t, syscall.SIGHUP) // it logs that it has read its files again
		}
		return s.above0(t, logLost)
	})
}

// newPipe is the node's stdout, stderr or both; the reader is the test.
func newPipe(t testing.TB) (reader, writer *os.File) {
	t.Helper()
	reader, writer = pipe(t)
	t.Cleanup(func() { reader.Close(); writer.Close() })
	return reader, writer
}

// fullPipe is a pipe in which no byte has room.
func fullPipe(t testing.TB) (reader, writer *os.File) {
	t.Helper()
	reader, writer = newPipe(t)
	for {
		if err := writer.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	return reader, writer
}

// outputs gives a process its stdout and stderr.
func outputs(out, err *os.File) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		if out != nil {
			cmd.Stdout = out
		}
		if err != nil {
			cmd.Stderr = err
		}
	}
}

func openFile(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// outputCases are about stdout and stderr.
func outputCases() []surrounding {
	var reader *os.File // of the case that has one
	return []surrounding{{
		name: "stdout and stderr are closed",
		before: func(_ *testing.T, s *surrounded) {
			s.wrapper = []string{"sh", "-c", `exec "$@" >&- 2>&-`, "sh"}
		},
	}, {
		name: "the reader of the log ends",
		before: func(t *testing.T, s *surrounded) {
			r, w := newPipe(t)
			reader = r
			s.arrange = outputs(nil, w)
		},
		strike: func(t *testing.T, s *surrounded) {
			reader.Close()
			loseLines(t, s)
		},
	}, {
		name: "nobody has ever read stdout and stderr",
		before: func(t *testing.T, s *surrounded) {
			r, w := newPipe(t)
			r.Close()
			s.arrange = outputs(w, w)
		},
		strike: loseLines,
	}, {
		name: "stdout and stderr stand still",
		before: func(t *testing.T, s *surrounded) {
			_, w := fullPipe(t)
			s.arrange = outputs(w, w)
			s.flags = append(s.flags, "--log-level", "debug")
		},
		strike: func(t *testing.T, s *surrounded) {
			if !s.above0(t, logWaits) {
				t.Error("no line waits")
			}
			loseLines(t, s)
		},
	}, {
		name: "the log is on a full disk",
		before: func(t *testing.T, s *surrounded) {
			s.arrange = outputs(openFile(t, "/dev/full"), openFile(t, "/dev/full"))
		},
		strike: loseLines,
	}}
}

// TestHostileOutputs: whatever happens to its log, a node works, and counts lost lines in its
// metrics.
func TestHostileOutputs(t *testing.T) {
	t.Parallel()
	for _, h := range outputCases() {
		t.Run(h.name, h.run)
	}
}

// TestLogThatStoodStillReadsOn: the log continues with the number of lines that were lost.
func TestLogThatStoodStillReadsOn(t *testing.T) {
	reader, writer := fullPipe(t)
	text := newTranscript()
	h := surrounding{
		before: func(_ *testing.T, s *surrounded) { s.arrange = outputs(nil, writer) },
		strike: loseLines,
		after: func(t *testing.T, s *surrounded) {
			writer.Close() // the test's copy
			_ = reader.SetReadDeadline(time.Time{})
			go func() { _, _ = io.Copy(text, reader) }()
			poll(t, patience, "the log has the number of lost lines", func() bool {
				return strings.Contains(text.String(), "lines of this log were lost")
			})
		},
	}
	h.run(t)
}

// TestSecondSignalWhileOutputsStandStill: an operator's second signal does not wait for a terminal
// that nobody reads.
func TestSecondSignalWhileOutputsStandStill(t *testing.T) {
	t.Parallel()
	_, w := fullPipe(t)
	s := &surrounded{receiver: newReceiver(t, newGate().hold), address: freeport.Address(t), arrange: outputs(w, w)}
	s.flags = []string{"--shards", "4", "--data", t.TempDir(), "--http", s.address}
	s.start(t)
	s.c.topic(t, "hang", s.receiver.url(), "")
	s.c.must(t, 201, "POST", "/v1/topics/hang/timers", `{"id":"x","delay_ms":0}`)
	poll(t, patience, "the call is in flight", func() bool { return s.receiver.open.Load() == 1 })
	s.signal(t, syscall.SIGTERM)
	poll(t, patience, "intake stops", func() bool { return s.c.do("GET", "/healthz", "").status == 0 })
	s.signal(t, syscall.SIGTERM)
	if code := s.awaitExit(t, 5*time.Second); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}
