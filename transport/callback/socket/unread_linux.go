package socket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// FateOf is what has become of the bytes that were written to the socket after the first ones,
// where neither a read nor a write has failed. The other end closed before it had any of them if
// its end came first, and was followed by a refusal of bytes of which it had confirmed none. An end
// alone is not enough: it may read on. Nor is a refusal alone: that does not confirm what was read
// before it. So this asks only until it has a word: a refusal is the error of the first read after
// it.
func FateOf(fd uintptr, first int64) Fate {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || int64(info.Bytes_acked) > synBytes+first {
		return MaybeRead
	}
	var one [1]byte
	switch n, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT); {
	case err == syscall.EAGAIN: // TLS has said that it ends, TCP not yet
		return Undecided
	case n != 0 || err != nil:
		return MaybeRead
	case info.State != unix.BPF_TCP_CLOSE:
		return Undecided
	}
	return NeverRead
}

// synBytes is what the kernel counts as confirmed once the connection stands.
const synBytes = 1
