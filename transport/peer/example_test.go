package peer_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"carillon/transport/peer"
)

// greeter answers calls and passes over everything else.
type greeter struct{}

func (greeter) Call(_ context.Context, from peer.Hello, _ uint8, body []byte) ([]byte, error) {
	return fmt.Appendf(nil, "hello %s of node %d", body, from.Node), nil
}
func (greeter) OpenStream(uint64, []byte, int64) (peer.Sink, error) {
	return nil, fmt.Errorf("no files here")
}
func (greeter) Frame(uint64, []byte)         {}
func (greeter) Unreachable(uint64)           {}
func (greeter) SeemsGone(uint64, uint32)     {}
func (greeter) DuplicateIdentity(peer.Hello) {}
func admitAll(peer.Hello) error              { return nil }
func self(node uint64) func() peer.Hello {
	return func() peer.Hello { return peer.Hello{Cluster: "c", Node: node, Starts: 1, Nonce: node} }
}

// Two nodes in one process; one calls the other.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	addr := map[uint64]string{}
	ended := make(chan error, 2)
	var nodes []*peer.Transport
	var listeners []net.Listener
	for node := range uint64(2) {
		t, err := peer.New(peer.Config{
			Self: self(node + 1), Address: func(n uint64) string { return addr[n] }, Admit: admitAll, Handler: greeter{},
		})
		if err != nil {
			panic(err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		addr[node+1] = ln.Addr().String()
		nodes, listeners = append(nodes, t), append(listeners, ln)
	}
	go func() { ended <- nodes[1].Run(ctx, listeners[1]) }()
	go func() { ended <- nodes[0].Run(ctx, listeners[0]) }()

	// Before Run a call is certain not to have been sent: try again.
	answer, err := nodes[0].Call(ctx, 2, 1, []byte("Ann"))
	for errors.Is(err, peer.ErrNotSent) {
		answer, err = nodes[0].Call(ctx, 2, 1, []byte("Ann"))
	}
	fmt.Println(string(answer))
	cancel()
	<-ended
	<-ended
	// Output: hello Ann of node 1
}
