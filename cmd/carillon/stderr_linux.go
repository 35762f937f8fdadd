package main

import (
	"os"
	"syscall"

	"carillon/cmd/carillon/terminal"
)

// keepCrashFromBlocking makes writes to file 2 fail where they would wait. Go's runtime itself
// writes a crash there, while nothing else runs: a reader that does not read would hold the dying
// process for ever. The terminal gets a file of its own, whose writes wait.
//
// The flag is of the open file, which other processes may share, so that a pipe or a terminal is
// opened once more. A socket cannot be; it is one process's own, as systemd makes it.
func keepCrashFromBlocking(term *terminal.Terminal) {
	var stat syscall.Stat_t
	if term.Err != os.Stderr || syscall.Fstat(syscall.Stderr, &stat) != nil {
		return
	}
	kept, err := syscall.Dup(syscall.Stderr)
	if err != nil {
		return
	}
	syscall.CloseOnExec(kept)
	switch stat.Mode & syscall.S_IFMT {
	case syscall.S_IFIFO, syscall.S_IFCHR:
		var own int
		if own, err = syscall.Open("/proc/self/fd/2", syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0); err == nil {
			err = syscall.Dup3(own, syscall.Stderr, 0)
			_ = syscall.Close(own)
		}
	case syscall.S_IFSOCK:
		err = syscall.SetNonblock(syscall.Stderr, true)
	default: // files do not wait for a reader
		err = syscall.EINVAL
	}
	if err != nil {
		_ = syscall.Close(kept)
		return
	}
	term.Err = os.NewFile(uintptr(kept), os.Stderr.Name())
}
