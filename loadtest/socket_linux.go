package loadtest

import (
	"syscall"
	"unsafe"
)

// send and receive are the two system calls of a request. They are made without telling Go's scheduler: the socket is non-blocking,
// so that a call never waits, but a write on loopback does the receiver's work, too, and so is often long enough for the scheduler's
// monitor to think that it hangs; the monitor would then wake up 20,000 times a second, a tenth of the tester's processor time.
func send(fd uintptr, p []byte) (int, error) {
	return socketCall(syscall.SYS_SENDTO, fd, p, syscall.MSG_NOSIGNAL|syscall.MSG_DONTWAIT)
}

func receive(fd uintptr, p []byte) (int, error) {
	return socketCall(syscall.SYS_RECVFROM, fd, p, syscall.MSG_DONTWAIT)
}

// socketCall is a system call that a signal does not end.
func socketCall(trap, fd uintptr, p []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, syscall.EAGAIN
		default:
			return 0, errno
		}
	}
}
