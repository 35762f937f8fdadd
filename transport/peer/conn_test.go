package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// shake makes a raw connection to a node, past the handshake.
func shake(t *testing.T, addr string, h Hello, lane Lane) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(handshakeLimit))
	body, _ := encodeHello(h)
	if _, err := nc.Write(greeting{protocolVersion, byte(lane), body}.encode()); err != nil {
		t.Fatal(err)
	}
	if g, err := readGreeting(nc); err != nil || g.what != welcome {
		t.Fatalf("%s, %v", g.body, err)
	}
	return nc
}

// closed reads to the end, past the heartbeats.
func closed(t *testing.T, nc net.Conn) {
	t.Helper()
	var timeout net.Error
	if _, err := io.Copy(io.Discard, nc); errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the connection was not closed")
	}
}

func TestDamageClosesTheConnection(t *testing.T) {
	_, b := pair(t, nil)
	good := sealed(testFrame{kindFrame, "good"})
	flipped := sealed(testFrame{kindFrame, "good"}, testFrame{kindFrame, "bad"})
	flipped[len(flipped)-1] ^= 1
	for name, wire := range map[string][]byte{
		"bad checksum":   flipped,
		"repeat":         append(bytes.Clone(good), good...),
		"wrong kind":     sealed(testFrame{kindFrame, "good"}, testFrame{kindChunk, "what?"}),
		"unknown kind":   sealed(testFrame{kindFrame, "good"}, testFrame{99, ""}),
		"oversize frame": append(bytes.Clone(good), bytes.Repeat([]byte{0xff}, frameHeaderBytes)...),
	} {
		nc := shake(t, b.addr, helloOf(7), LaneControl)
		if _, err := nc.Write(wire); err != nil {
			t.Fatal(err)
		}
		if got := within(t, "frame", b.host.frames); got != (received{7, "good"}) {
			t.Errorf("%s: got %v", name, got)
		}
		closed(t, nc)
		if n := len(b.host.frames); n != 0 {
			t.Errorf("%s: %d frames more", name, n)
		}
	}
	for _, short := range []testFrame{{kindCall, "short"}, {kindReply, "0123456789"}} {
		nc := shake(t, b.addr, helloOf(7), LaneCall)
		if _, err := nc.Write(sealed(short)); err != nil {
			t.Fatal(err)
		}
		closed(t, nc)
	}
}

// There is one connection per link and direction: the newer one, from its first word on.
func TestNewerConnectionTakesThePlace(t *testing.T) {
	_, b := pair(t, nil)
	first := shake(t, b.addr, helloOf(7), LaneControl)
	second := shake(t, b.addr, helloOf(7), LaneControl)
	third := shake(t, b.addr, helloOf(7), LaneControl) // says nothing
	for i, c := range []net.Conn{first, second} {
		want := received{7, []string{"first", "second"}[i]}
		if _, err := c.Write(sealed(testFrame{kindFrame, want.frame})); err != nil {
			t.Fatal(err)
		}
		if got := within(t, "frame", b.host.frames); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	closed(t, first)
	if _, err := third.Write(sealed(testFrame{kindHeartbeat, ""})); err != nil {
		t.Fatal(err)
	}
	closed(t, second)
	if _, err := third.Write(sealed(testFrame{kindHeartbeat, ""}, testFrame{kindFrame, "third"})[frameHeaderBytes:]); err != nil {
		t.Fatal(err)
	}
	if got := within(t, "frame", b.host.frames); got != (received{7, "third"}) {
		t.Errorf("got %v", got)
	}
}

// TestAnotherNodeAtTheAddress: a node has taken a dead one's place and address. A node that still
// dials the dead one, and finds the other there, breaks none of its connections with that one.
func TestAnotherNodeAtTheAddress(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), func(c *Config) {
		c.Handler.(*host).call = func(ctx context.Context, _ uint64, _ uint8, _ []byte) ([]byte, error) {
			close(held)
			select {
			case <-release:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	a := start(t, addresses, loopback(t), helloOf(1), nil)
	addresses.set(3, b.addr)
	a.Send(2, []byte("first"))
	within(t, "frame", b.host.frames)
	ctx, answered := timeout(t), make(chan error, 1)
	go func() {
		_, err := a.Call(ctx, 2, 1, nil)
		answered <- err
	}()
	within(t, "call", held)
	if _, err := a.Call(ctx, 3, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrRefused) {
		t.Errorf("a call of the dead node: %v", err)
	}
	a.Send(3, []byte("x"))
	if n := within(t, "report", a.host.unreachable); n != 3 {
		t.Errorf("node %d is unreachable", n)
	}
	addresses.set(3, "")
	a.Forget(3)
	for deadline := time.Now().Add(handshakeLimit); b.accepted.Load() > 2; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("connections that were not meant for it stay")
		}
	}
	close(release)
	if err := within(t, "answer", answered); err != nil {
		t.Errorf("a call of the living one: %v", err)
	}
	a.Send(2, []byte("second"))
	if got := within(t, "frame", b.host.frames); got.frame != "second" {
		t.Errorf("got %v", got)
	}
	for len(a.host.unreachable) > 0 {
		if n := <-a.host.unreachable; n != 3 {
			t.Errorf("node %d is unreachable", n)
		}
	}
}
