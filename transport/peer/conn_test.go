package peer

import (
	"bytes"
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
	_ = nc.SetDeadline(time.Now().Add(patience))
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

// There is one connection per lane and direction: the newer one.
func TestNewerConnectionTakesThePlace(t *testing.T) {
	_, b := pair(t, nil)
	first := shake(t, b.addr, helloOf(7), LaneControl)
	second := shake(t, b.addr, helloOf(7), LaneControl)
	closed(t, first)
	if _, err := second.Write(sealed(testFrame{kindFrame, "second"})); err != nil {
		t.Fatal(err)
	}
	if got := within(t, "frame", b.host.frames); got != (received{7, "second"}) {
		t.Errorf("got %v", got)
	}
}
