package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"carillon/internal/certificate"
)

// Transport is one node's end of its connections to all others. See the package comment.
type Transport struct {
	config Config
	// How fast files leave this node, and come here.
	sending, receiving *rate.Limiter
	spare              sync.Pool // of *call

	ctx    context.Context // of all that runs; ends with Run
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // all goroutines

	accepted   atomic.Int32 // connections that others dialled
	tls        atomic.Pointer[TLS]
	twinLogged atomic.Int64 // when a copy of this node was last logged: Unix ns

	mu      sync.RWMutex
	running bool
	ran     bool
	peers   map[uint64]*peer
	conns   map[*conn]struct{}
	heard   map[place]*conn // accepted and admitted, the newest per place
}

// place is where only one accepted connection can be.
type place struct {
	node uint64
	lane Lane
}

// New checks the config and starts nothing.
func New(config Config) (*Transport, error) {
	if config = config.withDefaults(); config.Self == nil || config.Address == nil || config.Admit == nil || config.Handler == nil {
		return nil, errors.New("peer: config: Self, Address, Admit and Handler are needed")
	}
	t := &Transport{
		config: config, sending: newPace(config.BulkBytesPerSecond), receiving: newPace(config.BulkBytesPerSecond),
		peers: make(map[uint64]*peer), conns: make(map[*conn]struct{}), heard: make(map[place]*conn),
	}
	t.tls.Store(config.TLS)
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t, nil
}

// UseTLS is for handshakes from now on; connections that stand stay as they are. A transport that
// began with TLS does not go without it, nor the other way round, and takes no certificate that has
// ended for one that has not: it returns an error, and all is as before.
func (t *Transport) UseTLS(next *TLS) error {
	old := t.tls.Load()
	if (next == nil) != (old == nil) {
		return errors.New("peer: whether nodes speak over TLS changes with a restart only")
	}
	if next != nil {
		if err := certificate.Follows(&next.Server.Certificates[0], &old.Server.Certificates[0], time.Now()); err != nil {
			return fmt.Errorf("peer-cert: %w", err)
		}
	}
	t.tls.Store(next)
	return nil
}

// CertificateEnds is when the certificates end that nodes know each other by, as of UseTLS.
func (t *Transport) CertificateEnds() (ends certificate.Ends) {
	if with := t.tls.Load(); with != nil {
		ends = with.Ends
	}
	return ends
}

// Run serves ln and lets frames, calls and files out, until ctx ends. Then it closes ln
// and every connection, waits for its goroutines, calls' handlers among them, and returns
// nil. It may be called once. Its error is that of the listener. With a nil ln nobody can dial
// this node.
func (t *Transport) Run(ctx context.Context, ln net.Listener) error {
	t.mu.Lock()
	again := t.ran
	t.ran, t.running = true, !again || t.running
	t.mu.Unlock()
	if again {
		return errors.New("peer: Run was called twice")
	}
	if ln == nil {
		ln = noListener{ctx.Done()}
	}
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	err := t.accept(ctx, ln)

	// No new goroutines first, so that the wait below can end; the rest ends by the context.
	t.mu.Lock()
	t.running = false
	t.mu.Unlock()
	ln.Close()
	t.cancel(errStopped)
	t.work.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("peer: accept: %w", err)
}

// noListener is that of a node which nobody dials.
type noListener struct{ done <-chan struct{} }

func (l noListener) Accept() (net.Conn, error) { <-l.done; return nil, net.ErrClosed }
func (l noListener) Close() error              { return nil }
func (l noListener) Addr() net.Addr            { return nil }

// spawn runs fn on a goroutine that Run waits for; not any more when Run is ending.
func (t *Transport) spawn(fn func()) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if !t.running {
		return false
	}
	t.work.Go(fn)
	return true
}

// peer returns the node's record; a new one only if the node has an address.
func (t *Transport) peer(node uint64) (*peer, error) {
	t.mu.RLock()
	p, running := t.peers[node], t.running
	t.mu.RUnlock()
	switch {
	case !running:
		return nil, errStopped
	case p != nil:
		return p, nil
	case t.config.Address(node) == "":
		return nil, errNoAddress
	}
	return t.record(node), nil
}

func (t *Transport) record(node uint64) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[node]
	if p == nil {
		p = t.newPeer(node)
		t.peers[node] = p
	}
	return p
}

// admitted is the last step of judging a hello on a lasting link.
func (t *Transport) admitted(h Hello) error { return t.record(h.Node).meet(h) }

// Send queues a control frame; false means that it was dropped. It never blocks.
func (t *Transport) Send(node uint64, frame []byte) bool {
	p, err := t.peer(node)
	if err != nil {
		return false
	}
	return p.lane(LaneControl).send(frame)
}

// Call asks the node's handler and waits for its answer, for ctx, or for the connection's
// end. Its deadline goes with it. See ErrNotSent, ErrUnknown and RemoteError.
func (t *Transport) Call(ctx context.Context, node uint64, method uint8, body []byte) ([]byte, error) {
	p, err := t.peer(node)
	if err != nil {
		return nil, notSent(err)
	}
	c, err := p.lane(LaneCall).live(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	return c.call(ctx, method, body)
}

// CallAddr asks the node that listens at addr, on a connection of its own, and returns which one it
// was.
func (t *Transport) CallAddr(ctx context.Context, addr string, method uint8, body []byte) ([]byte, Hello, error) {
	t.mu.RLock()
	running := t.running
	t.mu.RUnlock()
	if !running {
		return nil, Hello{}, notSent(errStopped)
	}
	c, err := t.dial(ctx, addr, LaneOnce, 0, nil, newOutbox(t.config.QueueBytes))
	if err != nil {
		return nil, Hello{}, notSent(err)
	}
	if !t.spawn(func() { _ = t.serve(c, c.handleReply) }) {
		c.close(errStopped)
		return nil, c.hello, notSent(errStopped)
	}
	defer func() { c.close(nil); <-c.ended }()
	reply, err := c.call(ctx, method, body)
	return reply, c.hello, err
}

// Review closes the connections whose Hello refuse returns an error for, except those for one call.
// A node calls it when it knows more than at the handshakes.
func (t *Transport) Review(refuse func(Hello) error) {
	t.mu.RLock()
	var list []*conn
	for c := range t.conns {
		if c.lane != LaneOnce {
			list = append(list, c)
		}
	}
	t.mu.RUnlock()
	for _, c := range list {
		if err := refuse(c.hello); err != nil {
			c.close(fmt.Errorf("%w: %w", ErrRefused, err))
		}
	}
}

// Met is the newest process of a node that was admitted on a lasting link; false: none was.
func (t *Transport) Met(node uint64) (starts uint32, nonce uint64, ok bool) {
	t.mu.RLock()
	p := t.peers[node]
	t.mu.RUnlock()
	if p == nil {
		return 0, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.starts, p.process.nonce, p.process.known
}

// FindsGone dials a node now and reports whether the process (node, starts) seems to be gone: no
// lasting connection to or from it stands, since the kernel closes those of a process that ends,
// and
//
//   - a later process of the node was met, or answers now, even if that admits nobody yet, or
//   - the process is the newest known, its address, where we had been connected to it, has refused
//     at least 3 connections over a quarter of a second, this one too, and nothing has come from
//     the process since the first. That is no proof: what refuses and closes may be in the network.
func (t *Transport) FindsGone(ctx context.Context, node uint64, starts uint32) bool {
	t.mu.RLock()
	p := t.peers[node]
	t.mu.RUnlock()
	if p == nil {
		return false
	}
	return (p.followed(starts) || p.refusing.Load() && t.dialGone(ctx, p, starts)) && !t.connectedTo(node, starts)
}

// dialGone dials for FindsGone.
func (t *Transport) dialGone(ctx context.Context, p *peer, starts uint32) bool {
	ctx, cancel := context.WithTimeout(ctx, t.config.DialTimeout)
	defer cancel()
	addr := t.config.Address(p.node)
	raw, err := t.config.Dial(ctx, addr)
	if err != nil {
		p.dialFailed(addr, err)
		return p.refuses(starts)
	}
	nc, h, err := t.clientHandshake(ctx, raw, LaneOnce, p.node)
	if err != nil {
		return false
	}
	closeNow(nc)
	return h.Starts > starts
}

// connectedTo reports whether a lasting connection to or from a process stands. Cost: O(all
// connections).
func (t *Transport) connectedTo(node uint64, starts uint32) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for c := range t.conns {
		if c.lane != LaneOnce && c.hello.Node == node && c.hello.Starts == starts {
			return true
		}
	}
	return false
}

// Forget closes everything to and from a node. It is heard again only if Admit lets it,
// and dialled again only if Address knows it: change those first.
func (t *Transport) Forget(node uint64) {
	t.mu.Lock()
	p := t.peers[node]
	delete(t.peers, node)
	t.mu.Unlock()
	if p != nil {
		p.cancel(errForgotten)
	}
}
