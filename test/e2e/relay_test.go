package e2e

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"testing"
)

// relay forwards TCP and UDP traffic to nodes and records it, like a tap on the wire.
type relay struct {
	mu   sync.Mutex
	seen bytes.Buffer
	all  []interface{ Close() error }
}

// at forwards traffic that arrives at here to there.
func (r *relay) at(t testing.TB, here, there string) {
	t.Helper()
	listener, err := net.Listen("tcp", here)
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", here)
	if err != nil {
		t.Fatal(err)
	}
	r.keep(listener)
	r.keep(packets)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.connection(conn, there)
		}
	}()
	go r.datagrams(packets, there)
}

func (r *relay) keep(c interface{ Close() error }) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
}

// close closes all listeners and connections.
func (r *relay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		_ = c.Close()
	}
	r.all = nil
}

// Write implements io.Writer: it records traffic.
func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.Write(b)
}

func (r *relay) connection(conn net.Conn, there string) {
	defer conn.Close()
	far, err := net.Dial("tcp", there)
	if err != nil {
		return
	}
	defer far.Close()
	r.keep(conn)
	r.keep(far)
	done := make(chan struct{}, 2)
	for from, to := range map[net.Conn]net.Conn{conn: far, far: conn} {
		go func() {
			r.copy(to, from)
			done <- struct{}{}
		}()
	}
	<-done
}

func (r *relay) copy(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		_, _ = r.Write(b[:n])
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

// datagrams opens a socket for each sender, so that answers find their way back.
func (r *relay) datagrams(here net.PacketConn, there string) {
	ways := map[string]net.Conn{}
	b := make([]byte, 64<<10)
	for {
		n, sender, err := here.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		_, _ = r.Write(b[:n])
		way := ways[sender.String()]
		if way == nil {
			if way, err = net.Dial("udp", there); err != nil {
				continue
			}
			r.keep(way)
			ways[sender.String()] = way
			go func() {
				b := make([]byte, 64<<10)
				for {
					n, err := way.Read(b)
					if errors.Is(err, net.ErrClosed) {
						return
					}
					_, _ = r.Write(b[:n])
					_, _ = here.WriteTo(b[:n], sender)
				}
			}()
		}
		_, _ = way.Write(b[:n])
	}
}
