package callback

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"time"

	"carillon/transport/callback/address"
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
	ctx, cancel := context.WithTimeout(d.pool.part(), timeout)
	defer cancel()
	raw, err := d.pool.dialTCP(ctx, d.key)
	if err != nil {
		return nil, err
	}
	return d.pool.newConn(raw, d.client.IsTLS), nil
}

// part is one of the contexts that end with base.
func (p *Pool) part() context.Context { return p.parts[p.turns.Add(1)%uint32(len(p.parts))] }

// tlsError marks a handshake that failed on an open connection.
type tlsError struct{ err error }

func (e *tlsError) Error() string { return e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

// A name's addresses are tried as RFC 8305 (Happy Eyeballs) has it, so that one where nobody
// answers costs no more than attemptDelay.
const (
	attemptDelay = 250 * time.Millisecond
	maxAddresses = 8 // of a name; the others are not tried
)

func (p *Pool) dialTCP(ctx context.Context, k address.Key) (net.Conn, error) {
	if err := p.Policy().CheckURLHost(k.HostPort()); err != nil {
		return nil, err
	}
	if p.config.Dial != nil {
		return p.config.Dial(ctx, "tcp", k.HostPort())
	}
	targets, err := p.resolve(ctx, k)
	if err != nil {
		return nil, err
	}
	// Not DialTCP, which binds the socket to a port before it connects: then all receivers together
	// have as many connections as there are ports, and not each of them.
	return dialFirst(ctx, targets, func(ctx context.Context, target netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", target.String())
	})
}

// resolve returns the addresses of the host that the policy lets be called. The connection goes to
// one of these: there is no other look-up after it.
func (p *Pool) resolve(ctx context.Context, k address.Key) (targets []netip.AddrPort, err error) {
	if addr, err := netip.ParseAddr(k.Host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(addr, k.Port)}, nil
	}
	addrs, err := p.lookUp(ctx, p.Policy().LookupName(k.Host))
	policy := p.Policy()
	if err != nil {
		return nil, cmp.Or(policy.CheckPrivateName(k.Host), err)
	}
	for _, addr := range addrs {
		target := netip.AddrPortFrom(addr.Unmap(), k.Port)
		if refused := policy.CheckNamed(target); refused != nil {
			err = refused
		} else {
			targets = append(targets, target)
		}
	}
	if len(targets) == 0 {
		return nil, err
	}
	targets = alternate(targets)
	return targets[:min(len(targets), maxAddresses)], nil
}

// alternate orders addresses so that IPv6 and IPv4 take turns. The first stays the first, and each
// family keeps its order.
func alternate(targets []netip.AddrPort) []netip.AddrPort {
	var families [2][]netip.AddrPort
	for _, target := range targets {
		i := 0
		if target.Addr().Is4() != targets[0].Addr().Is4() {
			i = 1
		}
		families[i] = append(families[i], target)
	}
	mixed := targets[:0:0]
	for i := range targets {
		for _, family := range families {
			if i < len(family) {
				mixed = append(mixed, family[i])
			}
		}
	}
	return mixed
}

// dialFirst connects to whichever of the targets answers first. A target has its turn when one
// before it has failed, or attemptDelay after that one's turn.
func dialFirst(
	ctx context.Context, targets []netip.AddrPort, dial func(context.Context, netip.AddrPort) (net.Conn, error),
) (conn net.Conn, err error) {
	if len(targets) == 1 {
		return dial(ctx, targets[0])
	}
	type attempt struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan attempt)
	turn := time.NewTimer(0)
	defer turn.Stop()
	for running := 0; running+len(targets) > 0; {
		select {
		case <-turn.C:
			if len(targets) == 0 {
				continue
			}
			target := targets[0]
			targets = targets[1:]
			running++
			go func() {
				c, err := dial(ctx, target)
				ended <- attempt{c, err}
			}()
			turn.Reset(attemptDelay)
		case a := <-ended:
			running--
			switch {
			case a.err != nil:
				err = cmp.Or(err, a.err)
				turn.Reset(0)
			case conn == nil:
				conn, targets = a.conn, nil
				cancel()
			default:
				_ = a.conn.Close()
			}
		}
	}
	if conn != nil {
		return conn, nil
	}
	return nil, err
}
