package shard

import (
	"fmt"

	"carillon/timer"
)

// items reads a batch item by item. Runs are unfolded.
type items struct {
	reader
	nowMs          int64
	origin, number uint64

	// The current item.
	kind    byte
	handle  timer.Handle
	seq     uint64
	rev     uint32
	durMs   int64 // lease
	untilMs int64 // expire: end of the retention
	againMs int64 // expire, skip: the next occurrence
	owner   uint64
	outcome Outcome
	change  change

	left      int // in the run
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
	*it = items{reader: reader{b: data}}
	if v := it.byte(); v < batchVersion || Level(v) > LevelOfBuild {
		it.fail(fmt.Sprintf("version %d of a batch", v))
	}
	it.nowMs = it.varint()
	it.origin = it.uvarint()
	it.number = it.uvarint()
	if it.nowMs < 0 || it.nowMs > timer.MaxMs {
		it.fail("time out of range")
	}
	return it.err()
}

// next reads the next item; false at the end, and when err says that there is none that can be read.
func (it *items) next() bool {
	if it.left == 0 {
		if len(it.b) == 0 {
			return false
		}
		it.kind = it.byte()
		if it.kind == itemLeases || it.kind == itemAcks || it.kind == itemPulls {
			it.value = it.varint()
			it.left = int(it.u16())
			it.handle, it.seq, it.fence, it.startedMs = 0, 0, 0, it.nowMs
			if it.left == 0 {
				it.fail("empty run")
			}
		}
	}
	switch it.kind {
	case itemCommand:
		body := reader{b: it.block(1<<21-1, "command")}
		body.change(&it.change)
		if body.fault != "" {
			it.fail(body.fault)
		} else if it.change.kind.UpdatesLease() {
			it.fail("a claim is no item")
		}
	case itemLeases, itemPulls:
		it.readLease()
	case itemAcks:
		it.readAck()
	case itemOutcome:
		it.readOutcome()
	case itemTakeover:
		it.owner = it.uvarint()
	case itemHash:
		it.uvarint()
		it.u64()
	case itemTick, itemCompare, itemClock, itemSeriesSeen:
	case itemExpire, itemExpireAgain:
		it.named()
		it.rev = uint32(it.reader.number(1<<32-1, "revision"))
		it.untilMs = it.nowMs + it.varint()
		if it.againMs = 0; it.kind == itemExpireAgain {
			it.againMs = it.again()
		}
	case itemOverlap:
		it.named()
		it.fence = it.uvarint()
		it.againMs = it.again()
	case itemSkip:
		it.named()
		it.rev = uint32(it.reader.number(1<<32-1, "revision"))
		it.againMs = int64(it.reader.number(timer.MaxMs, "next occurrence"))
	case itemForget:
		it.named()
	default:
		it.fail(fmt.Sprintf("item of kind %d", it.kind))
	}
	return it.fault == ""
}

func (it *items) named() {
	it.handle = timer.Handle(it.reader.number(1<<32-1, "handle"))
	it.seq = it.uvarint()
}

func (it *items) delta() {
	it.left--
	h := int64(it.handle) + it.varint()
	if h < 0 || h > 1<<32-1 {
		it.fail("handle out of range")
	}
	it.handle = timer.Handle(h)
	it.seq += uint64(it.varint())
}

func (it *items) readLease() {
	it.delta()
	it.durMs = it.value
	it.rev = uint32(it.reader.number(1<<32-1, "revision"))
}

func (it *items) readAck() {
	it.delta()
	it.fence += uint64(it.varint())
	it.startedMs += it.varint()
	it.outcome = Outcome{
		Handle: it.handle, Seq: it.seq, Fence: it.fence, Kind: Ack,
		StartedMs: it.startedMs, EndedMs: it.startedMs + it.varint(), Status: int(it.value),
	}
}

func (it *items) readOutcome() {
	first := it.byte()
	kind := OutcomeKind(first &^ outcomeAgain)
	it.named()
	o := Outcome{Handle: it.handle, Seq: it.seq, Kind: kind, Fence: it.uvarint()}
	o.StartedMs = it.nowMs - it.varint()
	o.EndedMs = o.StartedMs + it.varint()
	o.Status = int(it.varint())
	o.Err = string(it.block(maxErr, "error text"))
	switch kind {
	case Ack, Release:
	case RetryLater:
		o.NextMs = it.nowMs + it.varint()
	case Kill:
		o.Reason = timer.Reason(it.byte())
		o.RetainUntilMs = it.nowMs + it.varint()
		if o.Reason > timer.Refused {
			it.fail("unknown reason")
		}
	case Accepted, Extended:
		if o.LeaseMs = it.varint(); o.LeaseMs < 0 || o.LeaseMs > timer.MaxMs {
			it.fail("length of a lease out of range")
		}
	default:
		it.fail("unknown outcome")
	}
	if first&outcomeAgain != 0 {
		if kind != Ack && kind != Kill {
			it.fail("an occurrence after none has ended")
		}
		o.AgainMs = it.again()
	}
	it.outcome = o
}

// again reads when the next occurrence is due.
func (it *items) again() int64 {
	ms := it.nowMs + it.varint()
	if ms <= 0 || ms > timer.MaxMs {
		it.fail("next occurrence out of range")
	}
	return ms
}
