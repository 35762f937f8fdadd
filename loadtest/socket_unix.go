//go:build unix && !linux

package loadtest

import (
	"errors"
	"syscall"
)

func send(fd uintptr, p []byte) (int, error) { return retried(syscall.Write, fd, p) }

func receive(fd uintptr, p []byte) (int, error) { return retried(syscall.Read, fd, p) }

// retried is a system call that a signal does not end.
func retried(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}
