// Package clienttest starts a Carillon node for a test, with a clock that stands still until the
// test moves it: a year passes in less than a second, and all that is due in it is called, in
// order.
//
// The node is the binary of Carillon: that of the environment variable CARILLON_BIN, or else
// carillon on the PATH. The package needs nothing but the standard library.
package clienttest

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/client"
)

// startLimit and stopLimit are far more than a node takes, because the machine may be busy.
const (
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
)

// BinaryEnv is the environment variable that names the binary.
const BinaryEnv = "CARILLON_BIN"

// Options are those of Start, which may be left out.
type Options struct {
	At    time.Time // when the clock begins; zero: now
	Flags []string  // more flags of carillon serve, such as --shards=1
}

// Node is a node that runs until its test ends.
type Node struct {
	URL    string
	t      testing.TB
	client *client.Client
	clock  client.TestClock
}

// Start starts a node in a directory of its own, and waits until it is ready. The test fails at
// once if there is no binary, the node does not start, or there is more than one Options.
func Start(t testing.TB, options ...Options) *Node {
	t.Helper()
	if len(options) > 1 {
		t.Fatalf("clienttest: Start takes at most one Options, not %d", len(options))
	}
	var o Options
	if len(options) == 1 {
		o = options[0]
	}
	clock := "now"
	if !o.At.IsZero() {
		clock = o.At.Format(time.RFC3339Nano)
	}
	flags := []string{"serve", "--data", filepath.Join(t.TempDir(), "data"), "--http", "127.0.0.1:0", "--test-clock", clock}
	cmd := exec.Command(binary(t), append(flags, o.Flags...)...)
	cmd.Env = environment()
	var log output
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("clienttest: start a node: %v", err)
	}
	ended := make(chan struct{})
	ready := make(chan string, 1)
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), "ready on "); ok {
				url, _, _ := strings.Cut(rest, ",")
				ready <- url
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-ended:
		case <-time.After(stopLimit):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	n := &Node{t: t}
	select {
	case n.URL = <-ready:
	case <-ended:
		t.Fatalf("clienttest: the node did not start: %s", log.String())
	case <-time.After(startLimit):
		t.Fatalf("clienttest: the node was not ready within %v: %s", startLimit, log.String())
	}
	if n.client, err = client.New([]string{n.URL}, client.Options{}); err != nil {
		t.Fatalf("clienttest: %v", err)
	}
	n.clock = client.TestClock{Client: n.client}
	t.Cleanup(n.client.Close)
	return n
}

func binary(t testing.TB) string {
	t.Helper()
	if named := os.Getenv(BinaryEnv); named != "" {
		return named
	}
	found, err := exec.LookPath("carillon")
	if err != nil {
		t.Fatalf("clienttest: there is no carillon on the PATH: install it, or name the binary in %s", BinaryEnv)
	}
	return found
}

// environment is that of this process, without settings of another node.
func environment() (list []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "CARILLON_") {
			list = append(list, v)
		}
	}
	return list
}

// Client makes calls to the node.
func (n *Node) Client() *client.Client { return n.client }

// Now is the time of the node's clock.
func (n *Node) Now() time.Time {
	n.t.Helper()
	now, err := n.clock.Now(context.Background())
	if err != nil {
		n.t.Fatalf("clienttest: read the clock: %v", err)
	}
	return now
}

// Advance lets time pass: all that becomes due is called, in order. It returns when all of it has
// ended, but for timers that wait for somebody: see client.TestClock.
func (n *Node) Advance(by time.Duration) client.ClockMoved {
	n.t.Helper()
	return n.To(n.Now().Add(by))
}

// To is Advance to a time. The test fails if that does not end, because each call adds a timer that
// is due at once: then the clock stops twice at one time.
func (n *Node) To(at time.Time) client.ClockMoved {
	n.t.Helper()
	var last time.Time // at which the clock stopped
	for calls := 0; ; {
		moved, err := n.clock.AdvanceTo(context.Background(), at)
		if err != nil {
			n.t.Fatalf("clienttest: move the clock: %v", err)
		}
		switch calls += moved.Calls; {
		case !moved.Stopped:
			moved.Calls = calls
			return moved
		case moved.Now.Equal(last):
			n.t.Fatalf("clienttest: the clock stands still at %s, after %d calls: more and more is due at that time",
				last.Format(time.RFC3339Nano), calls)
		}
		last = moved.Now
	}
}

// output keeps what the node logs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
