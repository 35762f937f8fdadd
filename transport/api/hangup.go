package api

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// errHungUp is the cause of a context that ended because its client went away.
var errHungUp = errors.New("the client hung up")

// socket is the one below the connection; nil when there is none that can be looked at.
func (c *framedConn) socket() syscall.RawConn {
	sc, ok := c.raw.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// HungUp looks, without waiting, whether the client has gone. Where that cannot be known it is
// taken to be there.
func (c *framedConn) HungUp() bool {
	raw := c.socket()
	if raw == nil {
		return false
	}
	gone := false
	err := raw.Control(func(fd uintptr) { gone = peerGone(fd) })
	return gone || err != nil
}

// WhileConnected is a context that ends when the client hangs up. The request has arrived whole,
// and nothing may be read from the connection until stop has been called. It costs a goroutine,
// which waits in the poller.
func (c *framedConn) WhileConnected(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	raw := c.socket()
	if raw == nil {
		return ctx, func() { cancel(nil) }
	}
	_ = c.Conn.SetReadDeadline(time.Time{}) // that of the request is over
	if c.readClosed.Load() {                // see endReading: the client is not looked at any more
		_ = c.Conn.SetReadDeadline(longAgo)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		gone := false
		_ = raw.Read(func(fd uintptr) bool { // waits while this returns false
			gone = peerGone(fd)
			return gone
		})
		if gone {
			cancel(errHungUp)
		}
	}()
	return ctx, func() {
		_ = c.Conn.SetReadDeadline(longAgo)
		<-ended
		c.read.armed = longAgo
		cancel(nil)
	}
}
