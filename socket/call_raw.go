//go:build linux && !race

package socket

import (
	"syscall"
	"unsafe"
)

// callBytes is how much one system call moves at most: the scheduler cannot have the thread back meanwhile.
const callBytes = 64 << 10

// Send writes to a non-blocking socket what goes at once; the errno is 0, or EAGAIN when nothing does.
func Send(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
}

// Receive reads from a non-blocking socket what is there; nothing and 0 is the end, EAGAIN means that nothing is there yet.
func Receive(fd uintptr, p []byte) (int, syscall.Errno) {
	return call(syscall.SYS_RECVFROM, fd, p, syscall.MSG_DONTWAIT)
}

func call(trap, fd uintptr, p []byte, flags uintptr) (int, syscall.Errno) {
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
