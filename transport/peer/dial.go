package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// connect makes a connection to a known node. Where its name does not resolve, it is tried at once
// where it was heard, and where nobody answers there by its name at the next attempt.
func (t *Transport) connect(ctx context.Context, p *peer, lane Lane, out *outbox) (*conn, error) {
	addr := t.config.Address(p.node)
	if addr == "" {
		return nil, errNoAddress
	}
	heard := t.config.HeardAt(p.node)
	if heard != "" && p.unanswered.Load() {
		addr = heard
	}
	c, err := t.dial(ctx, addr, lane, p.node, p, out)
	if err == nil || heard == "" || addr == heard {
		p.unanswered.Store(false)
		return c, err
	}
	if _, unresolved := errors.AsType[*net.DNSError](err); unresolved {
		if there, wrong := t.dial(ctx, heard, lane, p.node, p, out); wrong == nil {
			return there, nil
		}
		return nil, err
	}
	p.unanswered.Store(!errors.Is(err, syscall.ECONNREFUSED))
	return nil, err
}

// dial makes a connection and shakes hands. p is nil where nobody in particular is meant.
func (t *Transport) dial(ctx context.Context, addr string, lane Lane, want uint64, p *peer, out *outbox) (*conn, error) {
	dialCtx, cancel := context.WithTimeout(ctx, t.config.DialTimeout)
	defer cancel()
	raw, err := t.config.Dial(dialCtx, addr)
	if err != nil {
		if p != nil {
			p.dialFailed(addr, err)
		}
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	nc, h, err := t.clientHandshake(ctx, raw, lane, want)
	if err != nil {
		return nil, fmt.Errorf("greet %s: %w", addr, err)
	}
	if p != nil {
		p.connected(h, addr)
	}
	return t.newConn(nc, h, lane, p, out), nil
}
