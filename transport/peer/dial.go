package peer

import (
	"context"
	"fmt"
)

// connect makes a connection to a known node.
func (t *Transport) connect(ctx context.Context, p *peer, lane Lane, out *outbox) (*conn, error) {
	addr := t.config.Address(p.node)
	if addr == "" {
		return nil, errNoAddress
	}
	return t.dial(ctx, addr, lane, p.node, p, out)
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
