package e2e

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	waited = func(c net.Conn) (d time.Duration) {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return 0
		}
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				d = time.Duration(info.Last_data_recv) * time.Millisecond
			}
		})
		return d
	}
}
