//go:build unix

package loadtest

import (
	"io"
	"net"
	"syscall"
)

// httpConn is a TCP connection that sends a request and reads the beginning of its answer in one
// go. A Read after a Write would first try to read bytes that cannot be there yet, a system call
// for nothing with each request: here the connection is armed for reading, then written to, then
// waited for. In that order no answer is missed, even if it comes at once.
type httpConn struct {
	net.Conn
	raw  syscall.RawConn
	step func(fd uintptr) bool

	request, room []byte
	written, read int
	sent          bool
	err           error
}

// newHTTPConn takes over conn, or returns it as it is when it is no plain TCP connection.
func newHTTPConn(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	a := &httpConn{Conn: conn, raw: raw}
	a.step = a.onSocket
	return a
}

// ask sends request and reads the first bytes of the answer into room. It ends with the
// connection's read deadline.
func (a *httpConn) ask(request, room []byte) (int, error) {
	a.request, a.room, a.written, a.read, a.sent, a.err = request, room, 0, 0, false, nil
	if err := a.raw.Read(a.step); err != nil {
		return 0, err
	}
	switch {
	case a.err != nil:
		return 0, a.err
	case a.written < len(request): // more than the socket's buffer takes at once
		if _, err := a.Write(request[a.written:]); err != nil {
			return 0, err
		}
		return a.Read(room)
	case a.read == 0:
		return 0, io.EOF
	}
	return a.read, nil
}

// onSocket reads or writes what it can without waiting; true ends the wait.
func (a *httpConn) onSocket(fd uintptr) bool {
	if !a.sent {
		a.sent = true
		n, errno := send(fd, a.request)
		if a.written = n; errno != 0 && errno != syscall.EAGAIN {
			a.err = errno
		}
		return n < len(a.request)
	}
	n, errno := receive(fd, a.room)
	if errno == syscall.EAGAIN {
		return false
	}
	if a.read = n; errno != 0 {
		a.err = errno
	}
	return true
}
