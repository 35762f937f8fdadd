package loadtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// pipes is a network in memory. With it a whole run, server and receiver
// included, lives in a bubble of synctest, where time is as exact as the clock
// that drives it, however busy the machine is.
type pipes struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
}

func newPipes() *pipes { return &pipes{listeners: map[string]*pipeListener{}} }

func (p *pipes) network() network { return network{p.dial, p.listen} }

func (p *pipes) listen(_, _ string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &pipeListener{address: pipeAddress(fmt.Sprintf("pipe-%d:80", len(p.listeners)+1)),
		accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.listeners[l.address.String()] = l
	return l, nil
}

func (p *pipes) dial(ctx context.Context, _, address string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listeners[address]
	p.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody listens at " + address)
	}
	near, far := net.Pipe()
	select {
	case l.accepted <- far:
		return near, nil
	case <-l.closed:
		return nil, errors.New("nobody listens any more at " + address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeListener struct {
	address  pipeAddress
	accepted chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return l.address }

type pipeAddress string

func (pipeAddress) Network() string  { return "pipe" }
func (a pipeAddress) String() string { return string(a) }
