package peer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// memory is a network of in-memory pipes, for tests on a fake clock.
type memory struct {
	cut    atomic.Bool // writes vanish, as in a partition
	writes atomic.Int64

	mu        sync.Mutex
	listeners map[string]*memoryListener
}

func newMemory() *memory { return &memory{listeners: map[string]*memoryListener{}} }

func (m *memory) listen(addr string) *memoryListener {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := &memoryListener{addr: addr, memory: m, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.listeners[addr] = l
	return l
}

func (m *memory) dial(ctx context.Context, addr string) (net.Conn, error) {
	m.mu.Lock()
	l := m.listeners[addr]
	m.mu.Unlock()
	if m.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if l != nil {
		ours, theirs := net.Pipe()
		select {
		case l.conns <- &memoryConn{theirs, m}:
			return &memoryConn{ours, m}, nil
		case <-l.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
}

type memoryListener struct {
	addr   string
	memory *memory
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *memoryListener) Addr() net.Addr { return memoryAddr(l.addr) }

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

type memoryConn struct {
	net.Conn
	memory *memory
}

func (c *memoryConn) Write(b []byte) (int, error) {
	c.memory.writes.Add(1)
	if c.memory.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// memoryPair starts nodes 1 and 2 on m; change is for both.
func memoryPair(t testing.TB, m *memory, change func(*Config)) (a, b *member) {
	t.Helper()
	onMemory := func(c *Config) {
		c.Dial = m.dial
		if change != nil {
			change(c)
		}
	}
	addresses := newBook()
	b = start(t, addresses, m.listen("b"), helloOf(2), onMemory)
	a = start(t, addresses, m.listen("a"), helloOf(1), onMemory)
	return a, b
}
