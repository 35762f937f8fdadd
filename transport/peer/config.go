package peer

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"time"
)

// Config sets up a Transport. Self, Address, Admit and Handler are needed; any other
// zero field takes the default named next to it.
type Config struct {
	// Self is asked at each handshake, since Cluster becomes known late. Lane is ignored.
	Self func() Hello
	// Address is where a node listens now, as host:port; "" = unknown.
	Address func(node uint64) string
	// HeardAt is where gossip reaches the node, with the port of Address; "" = unknown. It serves
	// where Address is a name that resolves to nothing, or to where nobody answers: a node that
	// has just moved is in gossip before it is in every cache of names. nil: none is known.
	HeardAt func(node uint64) string
	// NodeName is a node's name for the log; "" = unknown. nil: none is known.
	NodeName func(node uint64) string
	// Admit reports whether a node may speak with us; both ends ask. It sees in h.Lane the purpose
	// of the connection, so that strangers can be held to LaneOnce. Where certificates name their
	// nodes, h.Name is the certificate's; Admit has to know that h.Node has that name. Its error's
	// text is shown to the other side.
	Admit   func(h Hello) error
	Handler Handler

	TLS    *TLS         // nil = plain TCP; see LoadTLS, KeyTLS and UseTLS
	Logger *slog.Logger // discards

	MaxFrame int // bytes of a frame, of a call's body and of its reply: 64 MiB
	MaxCalls int // calls in flight per peer, in each direction: 4096
	MaxConns int // accepted connections: 4096
	// Bytes that wait per connection, and of calls being answered: 64 MiB; one may be larger.
	QueueBytes         int
	BulkBytesPerSecond int // of all outgoing files together, and of all incoming ones: 64 MiB

	DialTimeout      time.Duration // 1s
	HandshakeTimeout time.Duration // TLS and hello together: 2s
	Heartbeat        time.Duration // a silent connection speaks after this: 500ms
	// A connection that hears or can write nothing for this is closed: 3s.
	IdleTimeout time.Duration
	// As IdleTimeout, for writing to a receiver of a file that is alive: 30s.
	BulkStall time.Duration

	// Dial replaces the TCP dialer, for simulated networks.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Handler receives the frames, calls and news of the transport, on the transport's goroutines.
type Handler interface {
	// Frame takes a control frame, in order per connection. It must not block.
	Frame(from uint64, frame []byte)
	// Call answers a call; each runs on its own goroutine, at most Config.MaxCalls per connection.
	// ctx ends at the caller's deadline and with the connection. A returned error travels as text,
	// with PeerCode() if it has that method. On a LaneOnce connection from is only the caller's
	// word for itself, within what its certificate and Admit allow.
	Call(ctx context.Context, from Hello, method uint8, body []byte) ([]byte, error)
	// OpenStream is asked where to put a file of size bytes. The same header means the
	// same file as before. One file at a time comes from a node.
	OpenStream(from uint64, header []byte, size int64) (Sink, error)
	// Unreachable reports that frames to the node were dropped or that their connection
	// broke; at most one report per node and 100 ms.
	Unreachable(node uint64)
	// SeemsGone is a hint that the process (node, starts) has ended: its address refused a
	// connection after we had been connected to it there, or the node came back with a higher
	// starts. It may be wrong. Once per process, and again after its address took a connection.
	SeemsGone(node uint64, starts uint32)
	// DuplicateIdentity reports that somebody presented our own node id and cluster with another
	// nonce and starts no lower than ours: a copied data directory. It is only called for nodes
	// that have proven by TLS that they belong here: anybody else's word must not end a process.
	DuplicateIdentity(h Hello)
}

func (c Config) withDefaults() Config {
	c.MaxFrame = cmp.Or(c.MaxFrame, 64<<20)
	c.MaxCalls = cmp.Or(c.MaxCalls, 4096)
	c.MaxConns = cmp.Or(c.MaxConns, 4096)
	c.QueueBytes = cmp.Or(c.QueueBytes, 64<<20)
	c.BulkBytesPerSecond = cmp.Or(c.BulkBytesPerSecond, 64<<20)
	c.DialTimeout = cmp.Or(c.DialTimeout, time.Second)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 2*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 500*time.Millisecond)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 3*time.Second)
	c.BulkStall = cmp.Or(c.BulkStall, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.HeardAt == nil {
		c.HeardAt = func(uint64) string { return "" }
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			// No delay and keep-alive are Go's defaults.
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	return c
}
