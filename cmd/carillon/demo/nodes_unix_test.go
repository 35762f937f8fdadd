//go:build unix

package demo

import (
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"carillon/test/testkit"
)

// TestStopOfNodesThatHang: nodes that do not hear are killed when the time is over, all of them.
func TestStopOfNodesThatHang(t *testing.T) {
	c := &cluster{http: &http.Client{}}
	for range 3 {
		n := &node{process: exec.Command("sleep", "300"), exited: make(chan struct{})}
		testkit.Must(t, n.process.Start())
		testkit.Must(t, n.process.Process.Signal(syscall.SIGSTOP))
		go func() {
			_ = n.process.Wait() // it was killed
			close(n.exited)
		}()
		c.nodes = append(c.nodes, n)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.stopWithin(10 * time.Millisecond)
	}()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		for _, n := range c.nodes {
			_ = n.process.Process.Kill() // or nothing would
		}
		t.Fatal("the end of nodes that hang is waited for")
	}
	for i, n := range c.nodes {
		if n.alive() {
			t.Errorf("node %d lives", i+1)
		}
	}
}
