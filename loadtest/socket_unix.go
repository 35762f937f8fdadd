//go:build unix

package loadtest

import "syscall"

// send writes to a non-blocking socket as much as goes at once; the errno is 0, or EAGAIN when
// nothing does.
func send(fd uintptr, p []byte) (int, syscall.Errno) { return socketCall(syscall.Write, fd, p) }

// receive reads from a non-blocking socket the bytes that are there; nothing and 0 is the end,
// EAGAIN means that nothing is there yet.
func receive(fd uintptr, p []byte) (int, syscall.Errno) { return socketCall(syscall.Read, fd, p) }

func socketCall(f func(int, []byte) (int, error), fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, err := f(int(fd), p)
		if err == nil {
			return n, 0
		}
		if errno, ok := err.(syscall.Errno); ok && errno != syscall.EINTR {
			return 0, errno
		}
	}
}
