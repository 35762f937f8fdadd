package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// inject makes strace tamper with system calls of a running process, by its option -e inject, until
// release or the end of the process.
func inject(t testing.TB, p *process, calls, what string, more ...string) (release func()) {
	t.Helper()
	pid := fmt.Sprint(p.cmd.Process.Pid)
	args := append([]string{"-f", "-qq", "-o", os.DevNull, "-e", "trace=" + calls, "-e", "signal=none", "-e", "inject=" + calls + ":" + what}, more...)
	cmd := exec.Command("strace", append(args, "-p", pid)...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	release = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // detaches; fails after the end
		select {
		case <-gone:
		case <-time.After(5 * time.Second):
			t.Errorf("strace does not let go: %s", said.String())
			_ = cmd.Process.Kill()
		}
	})
	t.Cleanup(release)
	poll(t, patience, "strace holds the process", func() bool {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		return err != nil || !strings.Contains(string(status), "TracerPid:\t0\n")
	})
	return release
}

// openLogs returns the log files that a process has open.
func openLogs(t testing.TB, p *process) (list []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.Contains(name, "/wal/") && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		t.Fatal("the process has no file of its log open")
	}
	return list
}
