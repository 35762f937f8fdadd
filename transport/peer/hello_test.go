package peer

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestHelloRoundTrip(t *testing.T) {
	full := strings.Repeat("x", maxNameBytes)
	for _, h := range []Hello{
		{},
		{Cluster: "c", Node: 1<<40 - 1, Name: "north-1", Starts: 1<<32 - 1, Nonce: 1<<64 - 1, Version: "v1.2.3"},
		{Cluster: full, Name: full, Version: full},
	} {
		body, err := encodeHello(h)
		if err != nil || len(body) > maxHelloBytes {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		g, err := readGreeting(bytes.NewReader(greeting{protocolVersion, byte(LaneBulk), body}.encode()))
		if err != nil || g.version != protocolVersion || Lane(g.what) != LaneBulk {
			t.Fatalf("%+v, %v", g, err)
		}
		if got, err := decodeHello(g.body); got != h || err != nil {
			t.Errorf("got %+v, %v, want %+v", got, err, h)
		}
	}
	if _, err := encodeHello(Hello{Name: full + "x"}); err == nil {
		t.Error("a name of 256 bytes was taken")
	}
}

func TestDamagedHello(t *testing.T) {
	body, _ := encodeHello(helloOf(7))
	for cut := range body {
		if _, err := decodeHello(body[:cut]); !errors.Is(err, errBadHello) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	wire := greeting{protocolVersion, 0, body}.encode()
	for at := range wire {
		if at == 4 || at == 5 { // version and link are judged later
			continue
		}
		damaged := bytes.Clone(wire)
		damaged[at] ^= 1
		if _, err := readGreeting(bytes.NewReader(damaged)); err == nil {
			t.Errorf("byte %d: no error", at)
		}
	}
	huge := bytes.Clone(wire[:helloHeaderBytes])
	huge[6], huge[7] = 0xff, 0xff
	// Not "the end came too early".
	if _, err := readGreeting(bytes.NewReader(huge)); !errors.Is(err, errBadHello) {
		t.Errorf("got %v", err)
	}
}

func FuzzHello(f *testing.F) {
	body, _ := encodeHello(helloOf(7))
	f.Add(greeting{protocolVersion, 1, body}.encode())
	f.Add(greeting{protocolVersion, refused, []byte("no")}.encode())
	f.Fuzz(func(t *testing.T, wire []byte) {
		g, err := readGreeting(bytes.NewReader(wire))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(wire, g.encode()) {
			t.Fatal("a greeting has two forms")
		}
		h, err := decodeHello(g.body)
		if err != nil {
			return
		}
		if again, err := encodeHello(h); err != nil || !bytes.Equal(again, g.body) {
			t.Fatalf("a hello has two forms: %+v, %v", h, err)
		}
	})
}
