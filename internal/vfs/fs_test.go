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
	f(syscall.EROFS, false)
	f(syscall.EFBIG, false)
	f(syscall.ENOENT, false)
}

// TestLack: the text says which of all that can lack does.
func TestLack(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "the disk is full",
		fmt.Errorf("%w: %w", syscall.ENOSPC, ErrNoInodes): "the disk has no inodes left",
		syscall.EDQUOT: "the quota of the disk is used up",
		syscall.EMFILE: "no more files can be opened",
		syscall.ENFILE: "no more files can be opened",
	} {
		if got := Lack(&fs.PathError{Op: "open", Path: "x", Err: err}); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
