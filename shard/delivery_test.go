package shard

import (
	"bytes"
	"testing"
	"time"

	"carillon/timer"
)

// TestDeliveryInTheLog: a shard's log takes over a delivery only while nothing is leased otherwise, and then leases nothing otherwise; what
// comes late from an older change does nothing.
func TestDeliveryInTheLog(t *testing.T) {
	d := newTableHarness(t)
	add := func(id string) timer.Result {
		return d.command(timer.Command{Kind: timer.Add, Topic: 7, ID: id, Spec: &timer.Spec{DueMs: 1}})
	}
	lease := func(add timer.Result, pull bool) timer.Result {
		return d.do(func(b *Batch) {
			if pull {
				b.Pull(30_000, add.Handle, add.Seq, d.table.Due(add.Handle).Rev)
			} else {
				b.Lease(30_000, add.Handle, add.Seq, d.table.Due(add.Handle).Rev)
			}
		})
	}
	release := func(r timer.Result, add timer.Result) {
		d.do(func(b *Batch) { b.Outcome(&Outcome{Kind: Release, Handle: r.Handle, Seq: add.Seq, Fence: r.Fence}) })
	}
	deliver := func(turn uint32, pull bool, want timer.Code) timer.Result {
		t.Helper()
		r := d.command(timer.Command{Kind: timer.Deliver, Topic: 7, Turn: turn, Pull: pull})
		if r.Code != want {
			t.Errorf("change %d to pull %t: %d, want %d", turn, pull, r.Code, want)
		}
		return r
	}
	a, b := add("a"), add("b")
	called := lease(a, false)
	if r := deliver(1, true, timer.InFlight); r.Removed != 1 {
		t.Errorf("%d are leased otherwise", r.Removed)
	}
	deliver(2, false, timer.OK) // it is called, and stays so
	release(called, a)
	deliver(1, true, timer.VersionMismatch)
	deliver(3, true, timer.OK)
	deliver(3, true, timer.OK) // asked twice
	deliver(3, false, timer.VersionMismatch)
	if r := lease(a, false); r.Code != timer.Skipped {
		t.Errorf("a call of what is pulled: %d", r.Code)
	}
	pulled := lease(b, true)
	if pulled.Code != timer.OK {
		t.Fatalf("a pull: %d", pulled.Code)
	}
	deliver(4, false, timer.InFlight)
	again, err := LoadTable(1, bytes.NewReader(image(d.table)))
	if err != nil || again.Hash() != d.table.Hash() || again.delivers(7, false) || again.leasedOtherwise(7, false) != 1 {
		t.Fatalf("read again: %v, state %x, was %x", err, again.Hash(), d.table.Hash())
	}
	release(pulled, b)
	deliver(4, false, timer.OK)
	if r := lease(b, true); r.Code != timer.Skipped {
		t.Errorf("a pull of what is called: %d", r.Code)
	}
	if err := d.table.Audit(true); err != nil {
		t.Error(err)
	}
}

// TestDeliveryGoesWithItsTopic: a closed topic's is not changed, and is forgotten with it.
func TestDeliveryGoesWithItsTopic(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Deliver, Topic: 7, Turn: 1, Pull: true})
	d.command(timer.Command{Kind: timer.CloseTopic, Topic: 7})
	if r := d.command(timer.Command{Kind: timer.Deliver, Topic: 7, Turn: 2}); r.Code != timer.TopicClosed {
		t.Errorf("of a closed topic: %d", r.Code)
	}
	d.now += tombstoneKeepMs + 1
	d.command(timer.Command{Kind: timer.OpenTopic, Topic: 8})
	if n := len(d.table.deliveries); n != 0 || d.table.deliverySum != 0 {
		t.Errorf("%d deliveries are left, sum %x", n, d.table.deliverySum)
	}
}

// TestNothingGoesWhileDeliveryChanges: between the shard's word and the topic's, nothing is called and nothing is handed out, and when the
// topic has followed, or the shard was turned back, all goes on. A lease whose call has not started is given back.
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
