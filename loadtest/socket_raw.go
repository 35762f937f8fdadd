//go:build linux && !race

package loadtest

import (
	"syscall"
	"unsafe"
)

// Package net announces each read and write of a connection to Go's scheduler as a call that may
// wait in the kernel. A non-blocking socket never does, but on loopback a write does the receiver's
// work as well, and often lasts the 20 µs after which the scheduler's monitor takes the processor
// away from the thread. Calls that the scheduler does not know of save a quarter of the tester's
// processor time (docs/adr/0014).

// callBytes is how much one system call moves at most: the scheduler cannot have the thread back
// meanwhile.
const callBytes = 64 << 10

// send writes to a non-blocking socket as much as goes at once; the errno is 0, or EAGAIN when
// nothing does.
func send(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
}

// receive reads from a non-blocking socket the bytes that are there; nothing and 0 is the end,
// EAGAIN means that nothing is there yet.
func receive(fd uintptr, p []byte) (int, syscall.Errno) {
	return socketCall(syscall.SYS_RECVFROM, fd, p, syscall.MSG_DONTWAIT)
}

func socketCall(trap, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
	p = p[:min(len(p), callBytes)]
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), 0
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
