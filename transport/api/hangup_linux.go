package api

import "golang.org/x/sys/unix"

// peerGone reports that the other side has closed the connection or reset it, also behind bytes
// that have not been read.
func peerGone(fd uintptr) bool {
	look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(look, 0)
	return err == nil && n > 0 && look[0].Revents != 0
}
