package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/test/testkit"
)

// asCarillon makes the test binary be the carillon binary, so that a test runs real processes: real
// arguments, environment, signals and exit codes, under the race detector where the tests are, as
// in make soak-tests: with it they start ten times as slowly.
const asCarillon = "CARILLON_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asCarillon) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// deadline is how long a process may take; it only ends a test that hangs.
const deadline = 60 * time.Second

type result struct {
	out, err string
	code     int
}

func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	testkit.Must(t, err)
	cmd := exec.Command(self, args...)
	cmd.Dir = t.TempDir()
	// Under the race detector a process would linger for a second when it ends.
	cmd.Env = append(clean(os.Environ()), asCarillon+"=1", "TZ=UTC", "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// clean drops variables that would change a command.
func clean(env []string) []string {
	var kept []string
	for _, v := range env {
		if !strings.HasPrefix(v, envPrefix) {
			kept = append(kept, v)
		}
	}
	return kept
}

// carillon runs a command to its end.
func carillon(t *testing.T, stdin string, env []string, args ...string) result {
	t.Helper()
	cmd := command(t, env, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	testkit.Must(t, cmd.Start())
	hung := time.AfterFunc(deadline, func() { cmd.Process.Kill() })
	defer hung.Stop()
	err := cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("carillon %v: %v", args, err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// inProcess runs a command of which there are hundreds, and whose surroundings do not matter.
func inProcess(args ...string) result {
	var out, errOut bytes.Buffer
	code := run(args, &terminal.Terminal{In: strings.NewReader(""), Out: &out, Err: &errOut})
	return result{out.String(), errOut.String(), code}
}

// process is a command that runs until it is stopped.
type process struct {
	cmd    *exec.Cmd
	stdout io.ReadCloser
	lines  *bufio.Scanner // of stdout
	err    *bytes.Buffer  // of stderr; read it after wait
	hung   *time.Timer
}

func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{cmd: command(t, nil, args...), err: &bytes.Buffer{}}
	stdout, err := p.cmd.StdoutPipe()
	testkit.Must(t, err)
	p.cmd.Stderr = p.err
	p.stdout, p.lines = stdout, bufio.NewScanner(stdout)
	testkit.Must(t, p.cmd.Start())
	p.hung = time.AfterFunc(5*deadline, func() { p.cmd.Process.Kill() }) // it serves as long as its test runs commands
	t.Cleanup(func() {
		p.hung.Stop()
		p.cmd.Process.Kill() // already gone unless the test failed before its end
		p.cmd.Wait()
	})
	return p
}

// line reads stdout until a line that holds the text.
func (p *process) line(t *testing.T, text string) string {
	t.Helper()
	for p.lines.Scan() {
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	p.cmd.Wait()
	t.Fatalf("%v ended before it printed %q; stderr: %s", p.cmd.Args[1:], text, p.err)
	return ""
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	testkit.Must(t, p.cmd.Process.Signal(sig))
}

// wait answers with the rest of stdout, stderr and the exit code.
func (p *process) wait(t *testing.T) result {
	t.Helper()
	var rest strings.Builder
	for p.lines.Scan() {
		rest.WriteString(p.lines.Text() + "\n")
	}
	if err := p.cmd.Wait(); errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return result{rest.String(), p.err.String(), p.cmd.ProcessState.ExitCode()}
}
