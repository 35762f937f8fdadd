package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"carillon/test/freeport"
)

// patience is for what has no promised time: the machine may be busy.
const patience = time.Minute

// readyLimit is far more than the promised second, because other tests may run. The promise is
// tested when nothing else runs.
const readyLimit = patience

// process is a process of `carillon serve`.
type process struct {
	cmd        *exec.Cmd
	url        string        // of the API; set when the node is ready
	readyAfter time.Duration // from exec to the ready line on stdout
	stderr     *transcript
	stdout     *transcript
	exited     chan struct{} // closed after the process has exited
	code       int           // valid once exited; −1: by a signal
	endedAt    time.Time
}

var readyLine = regexp.MustCompile(`ready on (http://\S+),`)

// serve starts a node and waits until it is ready. The node is killed when the test ends.
func serve(t testing.TB, dir string, flags ...string) *process {
	t.Helper()
	p := launch(t, nil, dir, flags...)
	p.awaitReady(t)
	return p
}

// exitDown is the exit code after which a supervisor must not restart the node.
const exitDown = 3

// launch starts a node, under a wrapper such as strace if there is one, and does not wait. While the
// node is down no other test gets its port: clients that keep sending would reach another node.
func launch(t testing.TB, wrapper []string, dir string, flags ...string) *process {
	t.Helper()
	args := append(slices.Clone(wrapper), binary)
	args = append(args, serveArgs(dir, freeport.Address(t))...)
	return begin(t, append(args, flags...))
}

// serveArgs are the arguments of a single node, which opens no port for peers.
func serveArgs(dir, address string) []string {
	return []string{"serve", "--data", dir, "--http", address}
}

// begin starts a process with additional environment and keeps its output. The process is killed
// when the test ends.
func begin(t testing.TB, args []string, env ...string) *process {
	t.Helper()
	return beginIn(t, nil, args, env...)
}

// beginIn is begin in surroundings of the caller's: arrange, if any, changes the command.
func beginIn(t testing.TB, arrange func(*exec.Cmd), args []string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(args[0], args[1:]...), stderr: newTranscript(), stdout: newTranscript(), exited: make(chan struct{})}
	p.cmd.Env = append(cleanEnv(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // kill reaches a wrapper's child, too
	p.cmd.Stderr, p.cmd.Stdout = p.stderr, p.stdout
	if arrange != nil {
		arrange(p.cmd)
	}
	start := time.Now()
	p.stdout.onLine = func(line string) {
		if m := readyLine.FindStringSubmatch(line); m != nil {
			p.url, p.readyAfter = m[1], time.Since(start)
		}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %v: %v", p.cmd.Args, err)
	}
	go func() {
		err := p.cmd.Wait()
		p.endedAt = time.Now()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			p.code = exit.ExitCode()
		} else if err != nil {
			p.code = -2
		}
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if text := p.stderr.String(); t.Failed() && text != "" {
			t.Logf("stderr of %s:\n%s", strings.Join(p.cmd.Args, " "), tail(text, 6000))
		}
	})
	return p
}

// cleanEnv is the environment without CARILLON_ variables.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CARILLON_") {
			env = append(env, e)
		}
	}
	return env
}

func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	select {
	case <-p.stdout.first:
		if p.url == "" {
			t.Fatalf("the first line on stdout is %q", p.stdout.String())
		}
	case <-p.exited:
		t.Fatalf("the node exited with %d before it was ready: %s", p.code, p.stderr)
	case <-time.After(readyLimit):
		t.Fatalf("not ready after %v: %s", readyLimit, p.stderr)
	}
}

// kill ends the process with SIGKILL and waits for its exit. It may be called twice.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails only after the exit
	<-p.exited
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// stop ends the process with SIGTERM and demands exit code 0.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	if code := p.awaitExit(t, 40*time.Second); code != 0 {
		t.Fatalf("SIGTERM: exit code %d: %s", code, p.stderr)
	}
}

func (p *process) awaitExit(t testing.TB, limit time.Duration) (code int) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		t.Fatalf("the process has not exited within %v", limit)
	}
	return p.code
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// command runs the binary until it exits.
func command(t testing.TB, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = cleanEnv()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(readyLimit, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait() // the exit code tells
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// transcript keeps a process's output and passes its lines to onLine.
type transcript struct {
	mu     sync.Mutex
	text   bytes.Buffer
	line   []byte
	onLine func(string)
	first  chan struct{} // closed after the first line
	once   sync.Once
}

func newTranscript() *transcript { return &transcript{first: make(chan struct{})} }

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	s.line = append(s.line, b...)
	for {
		i := bytes.IndexByte(s.line, '\n')
		if i < 0 {
			return len(b), nil
		}
		if s.onLine != nil {
			s.onLine(string(s.line[:i]))
		}
		s.line = s.line[i+1:]
		s.once.Do(func() { close(s.first) })
	}
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "… " + s[len(s)-n:]
	}
	return s
}

// poll tries the condition every 10 ms until it holds, and fails the test after the limit.
func poll(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	if !holdsWithin(limit, condition) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

func holdsWithin(limit time.Duration, condition func() bool) bool {
	return holdsWithinBy(10*time.Millisecond, limit, condition)
}

// holdsWithinBy tries the condition at another interval, for conditions that cost the nodes work.
func holdsWithinBy(interval, limit time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}

// gauge reads one series from the metrics page, "" if it is not there.
func (p *process) gauge(t testing.TB, series string) string {
	t.Helper()
	p.awaitReady(t)
	resp, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), series+" "); ok {
			return value
		}
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return ""
}
