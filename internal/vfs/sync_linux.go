package vfs

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	_ "unsafe" // for linkname
)

// A system call usually returns before Go's scheduler looks whether it waits. A sync does not: it
// waits for the disk. Package os would let the scheduler's monitor find that out, by looking every
// 20 µs. These calls inform the scheduler beforehand, so that another thread runs at once and the
// monitor can rest (docs/adr/0044).

// entersyscallblock gives this goroutine's processor to others until exitsyscall. Between the two
// nothing may grow the stack or allocate.
//
//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

// datasync makes the data of a file durable.
func datasync(f *os.File) error { return syncBy(f, syscall.SYS_FDATASYNC) }

// syncFile makes the data and the attributes of a file or a directory durable.
func syncFile(f *os.File) error { return syncBy(f, syscall.SYS_FSYNC) }

func syncBy(f *os.File, call uintptr) error {
	defer runtime.KeepAlive(f)
	for fd := f.Fd(); ; {
		switch errno := waitFor(call, fd); {
		case errno == 0:
			return nil
		case !errors.Is(errno, syscall.EINTR):
			return &os.PathError{Op: "sync", Path: f.Name(), Err: errno}
		}
	}
}

//go:nosplit
func waitFor(call, fd uintptr) syscall.Errno {
	entersyscallblock()
	_, _, errno := syscall.RawSyscall(call, fd, 0, 0)
	exitsyscall()
	return errno
}
