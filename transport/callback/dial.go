package callback

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// idleOnly is the time-out of AcquireConn that asks for an idle connection or none.
const idleOnly = time.Duration(math.MinInt64)

var errNoIdleConn = errors.New("no idle connection")

// dial implements fasthttp.DialFuncWithTimeout. The library wraps the connection in TLS, without a
// handshake: that is onConn's, with the deadline of its call.
func (d *destination) dial(_ string, timeout time.Duration) (net.Conn, error) {
	if timeout == idleOnly {
		return nil, errNoIdleConn
	}
	ctx, cancel := context.WithTimeout(d.pool.base, timeout)
	defer cancel()
	raw, err := d.pool.dialTCP(ctx, d.key)
	if err != nil {
		return nil, err
	}
	return d.pool.newConn(raw, d.client.IsTLS), nil
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
