package shard

import (
	"testing"
	"time"

	"carillon/timer"
)

// TestNothingGoesWhileDeliveryChanges: after the shard has switched its delivery mode and before
// the topic has, no timer is called or pulled. Firing continues once the topic has followed, or
// once the shard has been switched back. A lease is released if its call has not started.
func TestNothingGoesWhileDeliveryChanges(t *testing.T) {
	r := newHostHarness(t, nil)
	deliver := func(turn uint32, pull bool) timer.Code {
		return r.do(timer.Command{Kind: timer.Deliver, Topic: 1, Turn: turn, Pull: pull}).Code
	}
	r.add("soon", 10*time.Millisecond)
	r.pass(time.Millisecond)
	if d := r.table().Due(1); d.State != timer.Leased {
		t.Fatalf("it is not leased ahead of its time: %+v", d)
	}
	if code := deliver(1, true); code != timer.OK {
		t.Fatalf("code %d", code)
	}
	r.add("a", 0)
	r.pass(50 * time.Millisecond)
	r.wantCalls("")
	if code := deliver(2, false); code != timer.OK {
		t.Fatalf("turned back: code %d", code)
	}
	r.pass(time.Millisecond)
	calls := r.calls.take()
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, c := range calls {
		c.answer(200)
	}
	r.pass(time.Millisecond)
	if code := deliver(3, true); code != timer.OK {
		t.Fatalf("code %d", code)
	}
	r.add("b", 0)
	r.pulled(nil)
	r.pass(time.Millisecond)
	r.wantPull(2, "b")
	if code := deliver(4, false); code != timer.InFlight {
		t.Errorf("while a consumer has one: code %d", code)
	}
	r.add("c", 0)
	if code := deliver(4, true); code != timer.OK {
		t.Fatalf("turned back: code %d", code)
	}
	r.pass(time.Millisecond)
	r.wantPull(2, "c")
	r.audit()
}
