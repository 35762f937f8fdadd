package peer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusedAddressProvesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		a, b := memoryPair(t, m, nil)
		a.Send(2, []byte("x"))
		within(t, "frame", b.host.frames)
		began := time.Now()
		b.stop()
		if got := within(t, "proof", a.host.goneOnes); got != (gone{2, 1}) {
			t.Errorf("got %v", got)
		}
		if took := time.Since(began); took < goneAfter || took > time.Second {
			t.Errorf("after %v", took)
		}
		<-time.After(10 * time.Second)
		if n := len(a.host.goneOnes); n != 0 {
			t.Errorf("told %d times more", n)
		}
		a.stop()
	})
}

func TestRefusalProvesNothingOfAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		addresses := newBook()
		addresses.set(2, "b") // nobody listens
		a := start(t, addresses, m.listen("a"), helloOf(1), func(c *Config) { c.Dial = m.dial })
		a.Send(2, []byte("x"))
		<-time.After(10 * time.Second)
		if n := len(a.host.goneOnes); n != 0 {
			t.Error("a node that was never met is gone")
		}
		b := start(t, addresses, m.listen("b"), helloOf(2), func(c *Config) { c.Dial = m.dial })
		for !a.Send(2, []byte("x")) {
			<-time.After(10 * time.Millisecond)
		}
		within(t, "frame", b.host.frames)
		addresses.set(2, "elsewhere") // it is said to have moved: a refusal there is no proof
		b.stop()
		<-time.After(10 * time.Second)
		if n := len(a.host.goneOnes); n != 0 {
			t.Error("a refusal at another address is taken as proof")
		}
		a.stop()
	})
}

func TestHigherStartsProvesTheEnd(t *testing.T) {
	addresses := newBook()
	a := start(t, addresses, loopback(t), helloOf(1), nil)
	b := start(t, addresses, loopback(t), helloOf(2), nil)
	b.Send(1, []byte("first"))
	within(t, "frame", a.host.frames)

	next := helloOf(2)
	next.Starts, next.Nonce = 5, 99
	c := start(t, addresses, loopback(t), next, nil)
	c.Send(1, []byte("second"))
	if got := within(t, "frame", a.host.frames); got.frame != "second" {
		t.Errorf("got %v", got)
	}
	if got := within(t, "proof", a.host.goneOnes); got != (gone{2, 1}) {
		t.Errorf("got %v", got)
	}
	if starts, nonce, ok := a.Met(2); starts != 5 || nonce != 99 || !ok {
		t.Errorf("met start %d, nonce %d, %v", starts, nonce, ok)
	}
	if _, _, ok := a.Met(9); ok {
		t.Error("a stranger was met")
	}
	within(t, "break of the old process's connection", b.host.unreachable)
	if _, err := b.Call(timeout(t), 1, 1, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrRefused) {
		t.Errorf("the older process got %v, want a refusal", err)
	}
	if s := a.Stats(); len(s) != 1 || s[0].Starts != 5 || !s[0].Heard {
		t.Errorf("stats %+v", s)
	}
}
