package callback

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"carillon/socket"
)

// dial makes a connection, TLS included, before end, which is then its deadline.
func (d *destination) dial(end time.Time) (*conn, error) {
	p := d.pool
	ctx, cancel := context.WithTimeout(p.base, end.Sub(p.config.Now()))
	defer cancel()
	raw, err := p.dialTCP(ctx, d.key)
	if err != nil {
		return nil, err
	}
	now := p.config.Now()
	c := &conn{wire: &wire{Conn: socket.Wrap(raw)}, created: now, lastUse: now}
	c.Conn = c.wire
	c.stale.init(raw)
	if d.secure != nil {
		c.wire.records = &recordCount{}
		secure := tls.Client(c.wire, d.secure)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, &tlsError{err}
		}
		c.Conn = secure
	}
	if err := c.SetDeadline(end); err != nil {
		_ = raw.Close()
		return nil, err
	}
	d.conns.add(c)
	return c, nil
}

// tlsError marks a handshake that failed on an open connection.
type tlsError struct{ err error }

func (e *tlsError) Error() string { return e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

func (p *Pool) dialTCP(ctx context.Context, k Key) (net.Conn, error) {
	address := k.hostPort()
	if p.config.Dial != nil {
		if err := p.Policy().CheckURLHost(address); err != nil {
			return nil, err
		}
		return p.config.Dial(ctx, "tcp", address)
	}
	k.Host = p.Policy().lookupName(k.Host)
	dialer := net.Dialer{Resolver: p.config.Resolver, ControlContext: p.guardNamed}
	if _, err := netip.ParseAddr(k.Host); err == nil {
		dialer.ControlContext = p.guardLiteral
	}
	return dialer.DialContext(ctx, "tcp", k.hostPort())
}

// guardLiteral and guardNamed run between the look-up and the connect, on the very
// address that is about to be connected to.
func (p *Pool) guardLiteral(_ context.Context, network, address string, _ syscall.RawConn) error {
	return guard(network, address, p.Policy().CheckAddr)
}

func (p *Pool) guardNamed(_ context.Context, network, address string, _ syscall.RawConn) error {
	return guard(network, address, p.Policy().CheckNamed)
}

func guard(network, address string, check func(netip.AddrPort) error) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: network %s", ErrRefused, network)
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: not an address", ErrRefused)
	}
	return check(target)
}
