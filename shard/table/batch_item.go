package table

import (
	"fmt"

	"carillon/timer"
	"carillon/timer/encoding"
)

// items reads a batch item by item. The items of a run are returned one by one.
type items struct {
	encoding.Reader
	nowMs          int64
	origin, number uint64

	// The current item.
	kind    byte
	handle  timer.Handle
	seq     uint64
	rev     uint32
	durMs   int64 // of a lease
	untilMs int64 // of an expiry: end of the retention
	againMs int64 // next occurrence
	owner   uint64
	shards  uint32 // of the cluster, by a division
	half    []byte // a bit for each slot that leaves
	slots   int    // to be swept
	outcome Outcome
	change  encoding.Command
	// follows: follow is the add of the outcome, if the item ends its timer.
	follows bool
	follow  encoding.Command

	left      int // items left in the run
	value     int64
	fence     uint64
	startedMs int64
}

// BatchHead reads the head of an entry that a Batch made.
func BatchHead(data []byte) (nowMs int64, origin, number uint64, err error) {
	var it items
	if err := it.open(data); err != nil {
		return 0, 0, 0, err
	}
	return it.nowMs, it.origin, it.number, nil
}

func (it *items) open(data []byte) error {
	*it = items{Reader: encoding.Reader{Rest: data}}
	if it.Byte() == 0 {
		it.Fail("feature level 0 of a batch")
	}
	it.nowMs = it.Varint()
	it.origin = it.Uvarint()
	it.number = it.Uvarint()
	if it.nowMs < 0 || it.nowMs > timer.MaxMs {
		it.Fail("time out of range")
	}
	return it.Err()
}

// next reads the next item. It returns false at the end of the batch, or if the item cannot be
// read; Err then returns the error.
func (it *items) next() bool {
	it.follows = false
	if it.left == 0 {
		if len(it.Rest) == 0 {
			return false
		}
		if it.kind = it.Byte(); it.kind == itemFollowUp {
			it.readFollowUp()
		}
		if it.kind == itemLeases || it.kind == itemAcks || it.kind == itemPulls {
			it.value = it.Varint()
			it.left = int(it.U16())
			it.handle, it.seq, it.fence, it.startedMs = 0, 0, 0, it.nowMs
			if it.left == 0 {
				it.Fail("empty run")
			}
		}
	}
	switch it.kind {
	case itemCommand:
		it.readCommand(&it.change)
	case itemLeases, itemPulls:
		it.delta()
		it.durMs = it.value
		it.rev = uint32(it.Reader.Number(1<<32-1, "revision"))
	case itemAcks:
		it.delta()
		it.fence += uint64(it.Varint())
		it.startedMs += it.Varint()
		it.outcome = Outcome{
			Handle: it.handle, Seq: it.seq, Fence: it.fence, Kind: Ack,
			StartedMs: it.startedMs, EndedMs: it.startedMs + it.Varint(), Status: int(it.value),
		}
	case itemOutcome:
		it.readOutcome()
	case itemTakeover:
		it.owner = it.Uvarint()
	case itemTick, itemCompare, itemClock, itemSeriesSeen:
	case itemExpire, itemExpireAgain:
		it.named()
		it.rev = uint32(it.Reader.Number(1<<32-1, "revision"))
		it.untilMs = it.nowMs + it.Varint()
		if it.againMs = 0; it.kind == itemExpireAgain {
			it.againMs = it.again()
		}
	case itemOverlap:
		it.named()
		it.fence = it.Uvarint()
		it.againMs = it.again()
	case itemSkip:
		it.named()
		it.rev = uint32(it.Reader.Number(1<<32-1, "revision"))
		it.againMs = int64(it.Reader.Number(timer.MaxMs, "next occurrence"))
	case itemForget:
		it.named()
	case itemDivide:
		it.shards = uint32(it.Reader.Number(1<<32-1, "shards"))
		it.half = it.Reader.Take(8 * int(it.Reader.Number(encoding.MaxHandle>>6+1, "slots")))
	case itemSweep:
		it.slots = int(it.Reader.Number(1<<32-1, "slots"))
	default:
		it.Fail(fmt.Sprintf("item of kind %d", it.kind))
	}
	return it.Fault == ""
}

func (it *items) readCommand(c *encoding.Command) {
	body := encoding.Reader{Rest: it.Block(1<<21-1, "command")}
	body.Command(c)
	if body.Fault != "" {
		it.Fail(body.Fault)
	} else if c.Kind.UpdatesLease() {
		it.Fail("a claim is no item")
	}
}

// readFollowUp reads the add of an outcome, and the kind of the item that ends its timer.
func (it *items) readFollowUp() {
	it.readCommand(&it.follow)
	it.follows, it.kind = true, it.Byte()
	if c := &it.follow; c.Kind != timer.Add || c.Merge != timer.MergeReject {
		it.Fail("an outcome is made by a plain add")
	}
	switch it.kind {
	case itemAcks, itemOutcome, itemExpire, itemExpireAgain:
	default:
		it.Fail("an outcome before an item that ends no timer")
	}
}

func (it *items) named() {
	it.handle = timer.Handle(it.Reader.Number(1<<32-1, "handle"))
	it.seq = it.Uvarint()
}

func (it *items) delta() {
	it.left--
	h := int64(it.handle) + it.Varint()
	if h < 0 || h > 1<<32-1 {
		it.Fail("handle out of range")
	}
	it.handle = timer.Handle(h)
	it.seq += uint64(it.Varint())
}

func (it *items) readOutcome() {
	first := it.Byte()
	kind := OutcomeKind(first &^ (outcomeAgain | outcomeCallOnly | outcomeLogged))
	it.named()
	o := Outcome{
		Handle: it.handle, Seq: it.seq, Kind: kind, Fence: it.Uvarint(), CallOnly: first&outcomeCallOnly != 0, Logged: first&outcomeLogged != 0,
	}
	o.StartedMs = it.nowMs - it.Varint()
	o.EndedMs = o.StartedMs + it.Varint()
	o.Status = int(it.Varint())
	o.Err, o.Answer = it.Failure()
	switch kind {
	case Ack, Release:
	case RetryLater:
		o.NextMs = it.nowMs + it.Varint()
	case Kill:
		o.Reason = timer.Reason(it.Byte())
		o.RetainUntilMs = it.nowMs + it.Varint()
		if o.Reason > timer.Refused {
			it.Fail("unknown reason")
		}
	case Accepted, Extended:
		if o.LeaseMs = it.Varint(); o.LeaseMs < 0 || o.LeaseMs > timer.MaxMs {
			it.Fail("length of a lease out of range")
		}
	default:
		it.Fail("unknown outcome")
	}
	if o.CallOnly && kind != RetryLater && kind != Kill {
		it.Fail("an outcome of a call that ends nothing")
	}
	if o.Logged && kind != RetryLater {
		it.Fail("an attempt is logged that is not tried again")
	}
	if first&outcomeAgain != 0 {
		if kind != Ack && kind != Kill {
			it.Fail("an occurrence after none has ended")
		}
		o.AgainMs = it.again()
	}
	it.outcome = o
}

// again reads the due time of the next occurrence.
func (it *items) again() int64 {
	ms := it.nowMs + it.Varint()
	if ms <= 0 || ms > timer.MaxMs {
		it.Fail("next occurrence out of range")
	}
	return ms
}
