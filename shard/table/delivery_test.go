package table

import (
	"bytes"
	"testing"

	"carillon/timer"
)

// TestDeliveryInTheLog: a shard accepts a delivery only while no timer is leased in the other way,
// and from then on leases none in the other way. A late command of an older change does nothing.
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
	deliver(2, false, timer.OK) // already called; unchanged
	release(called, a)
	deliver(1, true, timer.VersionMismatch)
	deliver(3, true, timer.OK)
	deliver(3, true, timer.OK) // sent twice
	deliver(3, false, timer.VersionMismatch)
	if r := lease(a, false); r.Code != timer.Skipped {
		t.Errorf("a call of what is pulled: %d", r.Code)
	}
	pulled := lease(b, true)
	if pulled.Code != timer.OK {
		t.Fatalf("a pull: %d", pulled.Code)
	}
	deliver(4, false, timer.InFlight)
	again, err := Load(1, bytes.NewReader(image(d.table)))
	if err != nil || again.Hash() != d.table.Hash() || again.Delivers(7, false) || again.leasedOtherwise(7, false) != 1 {
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

// TestDeliveryGoesWithItsTopic: the delivery of a closed topic cannot change, and is dropped with
// the topic.
func TestDeliveryGoesWithItsTopic(t *testing.T) {
	d := newTableHarness(t)
	d.command(timer.Command{Kind: timer.Deliver, Topic: 7, Turn: 1, Pull: true})
	d.command(timer.Command{Kind: timer.CloseTopic, Topic: 7})
	if r := d.command(timer.Command{Kind: timer.Deliver, Topic: 7, Turn: 2}); r.Code != timer.TopicClosed {
		t.Errorf("of a closed topic: %d", r.Code)
	}
	d.now += tombstoneKeepMs + 1
	d.command(timer.Command{Kind: timer.OpenTopic, Topic: 8})
	if n := len(d.table.deliveries.of); n != 0 || d.table.deliveries.sum != 0 {
		t.Errorf("%d deliveries are left, sum %x", n, d.table.deliveries.sum)
	}
}
