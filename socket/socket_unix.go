//go:build unix

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// Wrap returns nc with its system calls made raw, or as it is when it is no plain TCP connection. It then owns nc.
func Wrap(nc net.Conn) net.Conn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nc
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nc
	}
	c := &conn{TCPConn: tcp, raw: raw}
	c.in.step, c.out.step = c.in.receive, c.out.send
	return c
}

type conn struct {
	*net.TCPConn
	raw     syscall.RawConn
	in, out transfer
}

// transfer is the Read or the Write under way. Its step is kept, so that it costs no allocation; it reports that there is nothing to wait for.
type transfer struct {
	mu   sync.Mutex // held from begin to end
	p    []byte
	n    int
	err  syscall.Errno
	step func(fd uintptr) bool
}

func (t *transfer) receive(fd uintptr) bool {
	t.n, t.err = Receive(fd, t.p)
	return t.err != syscall.EAGAIN
}

func (t *transfer) send(fd uintptr) bool {
	for t.n < len(t.p) {
		n, errno := Send(fd, t.p[t.n:])
		if errno == syscall.EAGAIN {
			return false
		}
		if t.err = errno; errno != 0 {
			break
		}
		t.n += n
	}
	return true
}

func (t *transfer) begin(p []byte) {
	t.mu.Lock()
	t.p, t.n, t.err = p, 0, 0
}

// end returns how far it went, and lets go of the bytes.
func (t *transfer) end() (int, syscall.Errno) {
	n, errno := t.n, t.err
	t.p = nil
	t.mu.Unlock()
	return n, errno
}

func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in.begin(p)
	err := c.raw.Read(c.in.step)
	n, errno := c.in.end()
	if err != nil || errno != 0 {
		return 0, c.failed("read", err, errno)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	c.out.begin(p)
	err := c.raw.Write(c.out.step)
	n, errno := c.out.end()
	if err != nil || errno != 0 {
		return n, c.failed("write", err, errno)
	}
	return n, nil
}

// failed is the error as TCPConn gives it: of the wait (closed, or too late), or of the system call.
func (c *conn) failed(op string, waiting error, errno syscall.Errno) error {
	if waiting == nil {
		waiting = os.NewSyscallError(op, errno)
	}
	if inner := (*net.OpError)(nil); errors.As(waiting, &inner) {
		waiting = inner.Err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: waiting}
}
