package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// knock sends bytes to a node and returns its answer.
func knock(t *testing.T, addr string, wire []byte) (greeting, error) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(handshakeLimit))
	if _, err := nc.Write(wire); err != nil {
		t.Fatal(err)
	}
	return readGreeting(nc)
}

func TestOtherVersionIsRefused(t *testing.T) {
	a, b := pair(t, nil)
	g, err := knock(t, b.addr, greeting{9, 0, []byte("whatever version 9 says")}.encode())
	if err != nil || g.what != refused || !strings.Contains(string(g.body), "version 9 and version 1") {
		t.Errorf("got %q, %v", g.body, err)
	}

	// And the other way: a listener of another version answers.
	future := loopback(t)
	defer future.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		for _, answer := range []greeting{{9, welcome, nil}, {9, refused, []byte("version 1 is too old")}} {
			nc, err := future.Accept()
			if err != nil {
				return
			}
			if _, err = readGreeting(nc); err == nil {
				_, _ = nc.Write(answer.encode())
			}
			nc.Close()
		}
	}()
	for _, want := range []string{"version 9 and version 1", "version 1 is too old"} {
		_, _, err = a.CallAddr(timeout(t), future.Addr().String(), 1, nil)
		if !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	within(t, "end", served)
}

func TestStrangeGreetingsAreClosed(t *testing.T) {
	_, b := pair(t, nil)
	body, _ := encodeHello(helloOf(5))
	for name, wire := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"oversize":         append(binary.LittleEndian.AppendUint32(nil, magic), 1, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0),
	} {
		if g, err := knock(t, b.addr, wire); err == nil {
			t.Errorf("%s: answered %+v", name, g)
		}
	}
	if g, err := knock(t, b.addr, greeting{protocolVersion, 200, body}.encode()); err != nil || g.what != refused {
		t.Errorf("an unknown lane: %+v, %v", g, err)
	}
}

func TestSlowHandshakeIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := memoryPair(t, m, nil)
		nc, err := m.dial(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		given := make(chan struct{})
		go func() {
			defer close(given)
			body, _ := encodeHello(helloOf(5))
			for _, c := range (greeting{protocolVersion, 0, body}).encode() { // a byte each 100 ms
				if _, err := nc.Write([]byte{c}); err != nil {
					return
				}
				<-time.After(100 * time.Millisecond)
			}
		}()
		if _, err := io.ReadAll(nc); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("closed after %v, want 2s", took)
		}
		within(t, "end of the hello", given)
		a.stop()
		b.stop()
	})
}

func TestAdmission(t *testing.T) {
	no := errors.New("not in the list")
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), func(c *Config) {
		c.Admit = func(h Hello) error {
			switch {
			case h.Node == 1, h.Lane == LaneOnce && h.Cluster == "":
				return nil
			}
			return no
		}
	})
	joining := helloOf(3)
	joining.Cluster = ""
	joiner := start(t, addresses, loopback(t), joining, nil)
	a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
		c.Admit = func(h Hello) error {
			if h.Node == 3 {
				return no
			}
			return nil
		}
	})
	ctx := timeout(t)
	if _, err := a.Call(ctx, 2, 1, nil); err != nil {
		t.Error(err)
	}
	_, err := joiner.Call(ctx, 2, 1, nil) // the listener refuses
	if !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), "peer: refused: not in the list") {
		t.Errorf("got %v", err)
	}
	if joiner.Send(2, []byte("x")) { // queues for the first dial
		within(t, "report", joiner.host.unreachable)
	}
	if _, h, err := joiner.CallAddr(ctx, b.addr, 1, []byte("let me in")); err != nil || h.Node != 2 || h.Cluster != "c1" {
		t.Errorf("got %+v, %v", h, err)
	}
	_, err = a.Call(ctx, 3, 1, nil) // the dialler refuses
	if !errors.Is(err, ErrNotSent) || !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	if n := len(b.host.frames); n != 0 {
		t.Errorf("%d frames of a node that is not admitted", n)
	}
}

func TestIdentity(t *testing.T) {
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), nil)
	ctx := timeout(t)
	elsewhere := helloOf(5)
	elsewhere.Cluster = "c2"
	e := start(t, addresses, loopback(t), elsewhere, nil)
	if _, _, err := e.CallAddr(ctx, b.addr, 1, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `clusters "c2" and "c1"`) {
		t.Errorf("another cluster: %v", err)
	}
	if _, _, err := b.CallAddr(ctx, b.addr, 1, nil); !errors.Is(err, ErrSelf) || !errors.Is(err, ErrNotSent) {
		t.Errorf("self: %v", err)
	}
	if len(b.host.superseded) != 0 {
		t.Error("a node is its own copy")
	}
	addresses.set(9, b.addr)
	if _, err := e.Call(ctx, 9, 1, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("another node at the address: %v", err)
	}
	a := start(t, addresses, loopback(t), helloOf(1), nil)
	if _, err := a.Call(ctx, 9, 1, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "node 2 answers there, not node 9") {
		t.Errorf("another node at the address: %v", err)
	}
}

func TestCopiedDirectory(t *testing.T) {
	addresses := newBook()
	with := withTLS(keyed(t, "k"))
	b := start(t, addresses, loopback(t), helloOf(2), with)
	third := start(t, addresses, loopback(t), helloOf(3), with)
	ctx := timeout(t)
	if _, err := b.Call(ctx, 3, 1, nil); err != nil {
		t.Fatal(err)
	}
	for starts, told := range map[uint32]bool{0: false, 1: true, 2: true} {
		twin := helloOf(2)
		twin.Starts, twin.Nonce = starts, 4242
		c := start(t, newBook(), loopback(t), twin, with)
		if _, _, err := c.CallAddr(ctx, b.addr, 1, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("starts %d: %v", starts, err)
		}
		if told {
			if got := within(t, "news of the copy", b.host.superseded); got.Nonce != 4242 || got.Starts != starts {
				t.Errorf("got %+v", got)
			}
		} else if len(b.host.superseded) != 0 {
			t.Errorf("superseded by an older start")
		}
	}
	// A third node hears only the first process that shows a starts.
	twin := helloOf(2)
	twin.Nonce = 4242
	c := start(t, newBook(), loopback(t), twin, func(c *Config) {
		with(c)
		c.Address = func(uint64) string { return third.addr }
	})
	if _, err := c.Call(ctx, 3, 1, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "exists twice") {
		t.Errorf("got %v", err)
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), func(c *Config) { c.MaxConns = 3 })
	var open []net.Conn
	defer func() {
		for _, nc := range open {
			nc.Close()
		}
	}()
	greet := func(node uint64) error { // holds the connection if it is welcome
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			return err
		}
		open = append(open, nc)
		_ = nc.SetDeadline(time.Now().Add(handshakeLimit))
		body, _ := encodeHello(helloOf(node))
		if _, err := nc.Write(greeting{protocolVersion, byte(LaneOnce), body}.encode()); err != nil {
			return err
		}
		g, err := readGreeting(nc)
		if err == nil && g.what != welcome {
			err = fmt.Errorf("refused: %s", g.body)
		}
		return err
	}
	for node := range uint64(3) {
		if err := greet(10 + node); err != nil {
			t.Fatal(err)
		}
	}
	if greet(20) == nil {
		t.Error("a fourth connection was served")
	}
	open[0].Close()
	deadline := time.Now().Add(handshakeLimit)
	for greet(21) != nil { // until the end of the first was noticed
		if time.Now().After(deadline) {
			t.Fatal("a freed place is not given")
		}
	}
}
