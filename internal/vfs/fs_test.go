package vfs

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

// TestIsFull: what passes by itself is told from what does not.
func TestIsFull(t *testing.T) {
	f := func(errno syscall.Errno, want bool) {
		t.Helper()
		if got := IsFull(fmt.Errorf("wal: %w", &fs.PathError{Op: "open", Path: "x", Err: errno})); got != want {
			t.Errorf("%v: %v", errno, got)
		}
	}
	f(syscall.ENOSPC, true)
	f(syscall.EDQUOT, true)
	f(syscall.EMFILE, true)
	f(syscall.ENFILE, true)
	f(syscall.EIO, false)
	f(syscall.EFBIG, false)
	f(syscall.ENOENT, false)
}
