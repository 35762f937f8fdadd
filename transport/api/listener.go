package api

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"carillon/transport/api/internal/http1"
	"carillon/transport/api/web"
)

// Waits after an accept that failed, for the next try. The longest is also how often it is
// logged.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = time.Second
	acceptLogEvery = 10 * time.Second
)

// listener hands out framed connections, a bounded number at a time. An accept that fails because
// the process or the machine is short of something is tried again: it must not end the node.
type listener struct {
	net.Listener
	limits  *web.Limits
	framing http1.Limits
	answers *budget
	slack   time.Duration
	log     *slog.Logger
	full    []byte // the answer to one connection too many
	plain   []byte // the answer to HTTP in clear where there is TLS
	tls     *TLS   // nil: connections are not encrypted

	connections *connections

	// spare is a file that is given up when there are no others, to take a connection and close it:
	// it would wait for ever. Accept's only.
	spare    *os.File
	pause    time.Duration
	complain time.Time // when the log last reported that connections cannot be taken

	closing   chan struct{}
	closeOnce sync.Once
}

func newListener(ln net.Listener, limits *web.Limits, answers *budget, tls *TLS, log *slog.Logger) *listener {
	shortest := min(limits.HeaderTimeout, limits.BodyTimeout, limits.IdleTimeout, limits.WriteTimeout)
	l := &listener{
		Listener: ln, limits: limits, answers: answers, slack: shortest / 16, log: log,
		full:        rawProblem(web.Fail(503, "overloaded", "too many connections")),
		plain:       rawProblem(web.Bad(web.BadRequest, "this port speaks TLS: use https")),
		tls:         tls,
		connections: newConnections(limits.Connections), closing: make(chan struct{}),
	}
	l.framing = http1.Limits{Head: limits.HeaderBytes, Target: limits.TargetBytes, Body: func(target []byte) uint64 { return mostBodyOf(limits, target) }}
	l.keepSpare()
	return l
}

// mostBodyOf is how large the body of a request for a raw target may be. It errs to the larger: the
// handler checks again.
func mostBodyOf(l *web.Limits, target []byte) uint64 {
	if path, _, _ := bytes.Cut(target, []byte{'?'}); bytes.HasSuffix(path, []byte("/batch")) {
		return uint64(l.BatchBytes)
	}
	return uint64(l.BodyBytes)
}

// Accept waits for a connection within the limits; those beyond them are refused and closed. It
// returns an error only when the listener is closed, or can take no connection ever.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if fatalAccept(err) {
				return nil, err
			}
			l.acceptFailed(err)
			continue
		}
		l.pause = 0
		if c := l.admit(conn); c != nil {
			return c, nil
		}
	}
}

// admit frames a connection; nil when there is no place for it, and it was refused.
func (l *listener) admit(conn net.Conn) *framedConn {
	c := &framedConn{Conn: conn, raw: conn, listener: l, address: addressOf(conn.RemoteAddr())}
	c.framer = http1.NewFramer(&l.framing)
	l.secure(c)
	evicted, ok := l.connections.admit(c, time.Now())
	if evicted != nil {
		evicted.abort()
	}
	if ok {
		return c
	}
	l.refuse(conn)
	return nil
}

// refuse answers that there is no place. A fresh socket's buffer takes this without waiting.
func (l *listener) refuse(conn net.Conn) {
	if l.tls == nil {
		_ = conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = conn.Write(l.full)
	}
	_ = conn.Close()
}

// fatalAccept reports whether no later accept can succeed. Everything else is worth another try:
// accept also returns the errors of the connection that it was about to give, and of a shortage
// that passes.
func fatalAccept(err error) bool {
	fatal := []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.EFAULT, syscall.ENOTSOCK, syscall.EOPNOTSUPP}
	return slices.ContainsFunc(fatal, func(known error) bool { return errors.Is(err, known) })
}

// acceptFailed makes room for the next try, or waits for it.
func (l *listener) acceptFailed(err error) {
	now := time.Now()
	if now.Sub(l.complain) >= acceptLogEvery {
		l.complain = now
		l.log.Warn("a connection could not be accepted; it is tried again", "error", err)
	}
	outOfFiles := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
	if outOfFiles {
		if c := l.connections.evictIdle(now); c != nil {
			c.abort()
			return
		}
		l.shed()
	}
	l.pause = min(max(2*l.pause, acceptPauseMin), acceptPauseMax)
	t := time.NewTimer(l.pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.closing:
	}
}

// shed takes one connection with the spare file, and refuses it.
func (l *listener) shed() {
	if l.spare == nil {
		l.keepSpare()
		return
	}
	_ = l.spare.Close()
	l.spare = nil
	// The client may have gone: then nothing comes.
	if bounded, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		_ = bounded.SetDeadline(time.Now().Add(acceptPauseMin))
		defer func() { _ = bounded.SetDeadline(time.Time{}) }()
	}
	if conn, err := l.Listener.Accept(); err == nil {
		l.refuse(conn)
	}
	l.keepSpare()
}

// keepSpare opens the spare file; without one it is tried again when it is needed.
func (l *listener) keepSpare() {
	if f, err := os.Open(os.DevNull); err == nil {
		l.spare = f
	}
}

// Close ends Accept. It may be called again.
func (l *listener) Close() error {
	l.closeOnce.Do(func() { close(l.closing) })
	return l.Listener.Close()
}

// release gives the spare file back, once nobody accepts any more.
func (l *listener) release() {
	if l.spare != nil {
		_ = l.spare.Close()
		l.spare = nil
	}
}

// addressOf is the key by which a client's share is counted: its address, or its network where one
// customer usually has all of one (IPv6 /64).
func addressOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := tcp.AddrPort().Addr().Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// endReading lets no connection read on.
func (l *listener) endReading() {
	for _, c := range l.connections.where(func(*framedConn) bool { return true }) {
		c.endReading()
	}
}

func (l *listener) closeWhere(f func(*framedConn) bool) {
	for _, c := range l.connections.where(f) {
		c.abort()
	}
}
