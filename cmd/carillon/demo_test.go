package main

import (
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// A single node is killed and started again, and the account is clean. Nothing is left behind.
func TestDemoOfOneNode(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	got := carillon(t, "", []string{"TMPDIR=" + dir, "CARILLON_HTTP=nonsense"}, "demo", "--nodes", "1", "--duration", "5s")
	if got.code != exitOK || got.err != "" {
		t.Fatalf("exit %d, stderr %q:\n%s", got.code, got.err, got.out)
	}
	for _, want := range []string{"kill -9 of n1", "n1 is back", "overdue", "takeover", "16 of the 16 shards"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for _, zero := range []string{"lost", "early", "called though cancelled"} {
		if value := demoRow(got.out, zero); value != "0" {
			t.Errorf("%s: %q, want 0", zero, value)
		}
	}
	if t.Failed() {
		t.Log(got.out)
	}
	checkEmpty(t, dir)
}

// demoRow is the value in a row of the table at the end.
func demoRow(out, name string) string {
	for line := range strings.Lines(out) {
		if value, ok := strings.CutPrefix(line, name+"  "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left behind", e.Name())
	}
}

func TestDemoCleansUpWhenInterrupted(t *testing.T) {
	interruptDemo(t, func(p *process) { p.signal(t, syscall.SIGINT) })
}

// TestDemoCleansUpWhenInterruptedTwice: by somebody in a hurry.
func TestDemoCleansUpWhenInterruptedTwice(t *testing.T) {
	interruptDemo(t, func(p *process) {
		p.signal(t, syscall.SIGINT)
		p.signal(t, syscall.SIGTERM)
	})
}

// TestDemoCleansUpWhenItsTerminalIsClosed: a node takes the signal for the wish to read its files
// again.
func TestDemoCleansUpWhenItsTerminalIsClosed(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) { // the tests run under nohup, and so would the demo
		unused := make(chan os.Signal, 1)
		signal.Notify(unused, syscall.SIGHUP)
		defer signal.Ignore(syscall.SIGHUP)
	}
	interruptDemo(t, func(p *process) { p.signal(t, syscall.SIGHUP) })
}

// TestDemoCleansUpWhenNobodyReads: as in carillon demo | head.
func TestDemoCleansUpWhenNobodyReads(t *testing.T) {
	interruptDemo(t, func(p *process) { p.stdout.Close() })
}

func interruptDemo(t *testing.T, interrupt func(*process)) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	p := start(t, "demo", "--nodes", "1")
	_, address, _ := strings.Cut(p.line(t, "ready after"), "http://")
	p.line(t, "fired")
	interrupt(p)
	if got := p.wait(t); got.code != exitFailure || !strings.Contains(got.err, "cut short") {
		t.Errorf("got %+v", got)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Errorf("the node still listens on %s", address)
	}
	checkEmpty(t, dir)
}

func TestDemoUsage(t *testing.T) {
	for args, want := range map[string]string{
		"demo --nodes 0":     "within 1 to 7",
		"demo --nodes 8":     "within 1 to 7",
		"demo --duration 1s": "less than 5s",
	} {
		got := carillon(t, "", nil, strings.Fields(args)...)
		if got.code != exitUsage || !strings.Contains(got.err, want) || got.out != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}
