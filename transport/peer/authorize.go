package peer

import (
	"fmt"
	"net"
	"time"
)

// authorize reports whether we speak with h, the node at the other end of nc. Both sides ask it.
// The certificate comes first: a node that it does not name is not heard.
func (t *Transport) authorize(self, h Hello, nc net.Conn, with *TLS) error {
	if err := bound(with, nc, h); err != nil {
		return fmt.Errorf("%w: node %q: %w", ErrRefused, h.Name, err)
	}
	switch {
	case h.Node == self.Node && h.Nonce == self.Nonce:
		return fmt.Errorf("%w: %w", ErrRefused, ErrSelf)
	case h.Cluster != "" && self.Cluster != "" && h.Cluster != self.Cluster:
		return fmt.Errorf("%w: clusters %q and %q are not the same", ErrRefused, h.Cluster, self.Cluster)
	case h.Node == self.Node && h.Name != self.Name && with != nil && with.Names:
		// Another's certificate must not end us.
		return fmt.Errorf("%w: node %d is called %q, not %q", ErrRefused, h.Node, self.Name, h.Name)
	case h.Node == self.Node:
		if h.Starts >= self.Starts && h.Cluster == self.Cluster {
			t.refuseTwin(h, nc, with)
		}
		return fmt.Errorf("%w: node %d exists twice (a copied data directory?)", ErrRefused, h.Node)
	}
	if err := t.config.Admit(h); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if h.Lane == LaneOnce {
		return nil
	}
	return t.admitted(h)
}

// twinLogInterval keeps an unproven twin from filling the log.
const twinLogInterval = 10 * time.Second

// refuseTwin is for a hello in this node's own name. Without TLS anybody can send one: it is
// refused like a proven one, and logged, but it ends nothing.
func (t *Transport) refuseTwin(h Hello, nc net.Conn, with *TLS) {
	if with != nil {
		t.config.Handler.DuplicateIdentity(h)
		return
	}
	now, last := time.Now().UnixNano(), t.twinLogged.Load()
	if now-last < int64(twinLogInterval) || !t.twinLogged.CompareAndSwap(last, now) {
		return
	}
	t.config.Logger.Error("peer: somebody speaks under this node's identity, and is refused: a copy of its data directory, "+
		"or a stranger. Without a key nobody can tell: give all nodes one (--gossip-key)",
		"remote", nc.RemoteAddr().String(), "name", h.Name, "starts", h.Starts)
}
