package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handshakeLimit is how long a test waits for an event that must come.
const handshakeLimit = time.Minute

// within waits for a value and fails the test when none comes.
func within[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(handshakeLimit):
		t.Fatalf("no %s within %v", what, handshakeLimit)
		panic("unreachable")
	}
}

type gone struct {
	node   uint64
	starts uint32
}

type received struct {
	from  uint64
	frame string
}

// host is a Handler that keeps all that it hears. A nil function is the default beside it.
type host struct {
	call func(ctx context.Context, from uint64, method uint8, body []byte) ([]byte, error) // echo
	// Refuse.
	stream func(from uint64, header []byte, size int64) (Sink, error)
	// Into frames.
	frame func(from uint64, frame []byte)

	frames      chan received
	unreachable chan uint64
	goneOnes    chan gone
	superseded  chan Hello
}

func newHost() *host {
	return &host{
		frames: make(chan received, 10_000), unreachable: make(chan uint64, 1000),
		goneOnes: make(chan gone, 100), superseded: make(chan Hello, 1000),
	}
}

func (h *host) Frame(from uint64, frame []byte) {
	if h.frame != nil {
		h.frame(from, frame)
		return
	}
	h.frames <- received{from, string(frame)}
}

func (h *host) Call(ctx context.Context, from Hello, method uint8, body []byte) ([]byte, error) {
	if h.call != nil {
		return h.call(ctx, from.Node, method, body)
	}
	return append([]byte{method}, body...), nil
}

func (h *host) OpenStream(from uint64, header []byte, size int64) (Sink, error) {
	if h.stream != nil {
		return h.stream(from, header, size)
	}
	return nil, errors.New("no files here")
}

func (h *host) Unreachable(node uint64)              { h.unreachable <- node }
func (h *host) SeemsGone(node uint64, starts uint32) { h.goneOnes <- gone{node, starts} }
func (h *host) DuplicateIdentity(hello Hello)        { h.superseded <- hello }

// book is the addresses of a test's nodes.
type book struct {
	mu   sync.Mutex
	addr map[uint64]string
}

func newBook() *book { return &book{addr: map[uint64]string{}} }

func (b *book) set(node uint64, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addr[node] = addr
}

func (b *book) find(node uint64) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addr[node]
}

// member is a running transport of a test.
type member struct {
	*Transport
	host  *host
	hello Hello
	addr  string
	stop  func()
}

// start runs a transport on ln until the test ends or stop is called.
func start(t testing.TB, b *book, ln net.Listener, hello Hello, change func(*Config)) *member {
	t.Helper()
	m := &member{host: newHost(), hello: hello, addr: ln.Addr().String()}
	config := Config{
		Self: func() Hello { return hello }, Address: b.find,
		Admit: func(Hello) error { return nil }, Handler: m.host,
	}
	if _, fake := ln.(*memoryListener); !fake { // on a real clock, a busy machine is no silent node
		config.DialTimeout, config.HandshakeTimeout, config.IdleTimeout = handshakeLimit, handshakeLimit, handshakeLimit
	}
	if change != nil {
		change(&config)
	}
	tr, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Transport = tr
	b.set(hello.Node, m.addr)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	go func() { ended <- tr.Run(ctx, &announcing{Listener: ln, ready: ready}) }()
	<-ready
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(m.stop)
	return m
}

// announcing says when Run has begun to serve.
type announcing struct {
	net.Listener
	ready chan struct{}
	once  sync.Once
}

func (a *announcing) Accept() (net.Conn, error) {
	a.once.Do(func() { close(a.ready) })
	return a.Listener.Accept()
}

func loopback(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func helloOf(node uint64) Hello {
	return Hello{Cluster: "c1", Node: node, Name: "n", Starts: 1, Nonce: 1000 + node, Version: "test"}
}

// pair starts nodes 1 and 2 on loopback; change is for node 2, the one that is talked to.
func pair(t testing.TB, change func(*Config)) (a, b *member) {
	t.Helper()
	addresses := newBook()
	b = start(t, addresses, loopback(t), helloOf(2), change)
	a = start(t, addresses, loopback(t), helloOf(1), nil)
	return a, b
}

func timeout(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), handshakeLimit)
	t.Cleanup(cancel)
	return ctx
}
