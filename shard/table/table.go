package table

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"carillon/timer"
	"carillon/wheel"
)

// Bounds of the finished timers that a table keeps in memory, besides the history on disk.
const (
	finishedKeepMs   = timer.KeptMs // how long a Done or Cancelled timer can be read by its id
	finishedMaxBytes = 64 << 20     // per table; beyond it the oldest are dropped early
	tombstoneKeepMs  = 60 * 60_000  // how long a closed topic refuses adds
)

// Table is the state machine of one shard. It has no clock, lock or goroutine and does no I/O: its
// state depends only on the entries given to Apply. One goroutine uses it.
//
// Replicated state is the content of the slots, attempt states, blobs, finished list, tombstones,
// deliveries and counters. Two tables that applied the same entries agree on it and on Hash, even
// if one of them was loaded from a snapshot in between. Refs, run numbers, target numbers, topic
// rows, the index and the position of the wheel are local to a replica.
type Table struct {
	id timer.ShardID

	// Replicated counters.
	clockMs     int64        // decreases only by setClock
	seq         uint64       // last number given to a timer
	fence       uint64       // last fence given to a lease
	leaderships []leadership // the most recent ones, oldest first
	// restamped is the last slot that restamp has visited since the clock was set back. It is
	// noRestamp if there is nothing left to visit.
	restamped timer.Handle
	// leastVersion is the minimum version of a timer after a client's change. It is 0 except in a
	// table restored from a backup. There it keeps the table from giving again the versions that
	// were given after the backup and are lost.
	leastVersion uint32

	slab  slab
	runs  attemptStates
	blobs arena
	ids   index
	// seed randomises the hashes of bytes that clients choose, so that clients cannot cause
	// collisions. No replicated state depends on it.
	seed         maphash.Seed
	targets      targets
	topics       topics
	finished     finished
	chains       map[timer.Handle]link // places of timers that share their id with others
	deadReplaced int                   // see TakeDeadReplaced; not replicated
	closedTopics []tombstone           // in the order they were closed
	// the same topics as closedTopics, because every add looks its topic up
	tombOf map[timer.TopicID]struct{}
	// deliveries holds the topics that ever changed their delivery.
	deliveries map[timer.TopicID]delivery
	wheel      *wheel.Wheel
	wheelWaits wheelWaits

	// sums over slots, blobs, closed topics and deliveries; see Hash
	slotSum, blobSum, closedSum, deliverySum uint64

	compares  bool // the last entry makes the replicas compare their states
	snap      *Snapshot
	snapshots uint32       // number of the last snapshot begun
	scratch   []byte       // an encoded spec before it is copied into the arena
	events    *eventBuffer // events for the history; nil if the table keeps none
}

// New makes an empty table.
func New(id timer.ShardID, nowMs int64) *Table {
	t := &Table{id: id, restamped: noRestamp, wheel: wheel.New(wheel.Tick(nowMs)), chains: map[timer.Handle]link{}, tombOf: map[timer.TopicID]struct{}{}, deliveries: map[timer.TopicID]delivery{}, seed: maphash.MakeSeed()}
	t.targets.seed = t.seed
	t.topics.rowOf = map[timer.TopicID]uint32{}
	return t
}

// Len returns the number of timers, including ended ones.
func (t *Table) Len() int { return int(t.slab.high) - t.slab.unused }

// Compares reports whether the last entry makes the replicas compare their states.
func (t *Table) Compares() bool { return t.compares }

// ClockMs returns the latest time of an entry since the clock was last set back.
func (t *Table) ClockMs() int64 { return t.clockMs }

// MemoryBytes returns the bytes allocated for timers, in use or not.
func (t *Table) MemoryBytes() int64 {
	const wheelNode, wheelChunk, chainEntry = 20, 1024, 72
	wheelNodes := (int64(t.slab.high) + wheelChunk) &^ (wheelChunk - 1)
	return t.slab.memory() + t.runs.memory() + t.blobs.memory() + t.ids.memory() + t.targets.memory() +
		wheelNodes*wheelNode + int64(len(t.chains))*chainEntry + int64(cap(t.wheelWaits.counted))*8
}

// Lookup finds a timer by its id: the live one, or else the last ended one that is still kept.
func (t *Table) Lookup(topic timer.TopicID, id string) (timer.Handle, bool) {
	h := t.Find(topic, []byte(id))
	return h, h != 0
}

// Find is Lookup with the id as bytes. It returns 0 if there is no such timer.
func (t *Table) Find(topic timer.TopicID, id []byte) timer.Handle {
	row, ok := t.topics.rowOf[topic]
	if !ok {
		return 0
	}
	return timer.Handle(t.ids.find(t.idHash(topic, id), func(n uint32) bool {
		s := t.slab.at(timer.Handle(n))
		return s.topic == row && string(t.view(s.ref).id) == string(id)
	}))
}

func (t *Table) idHash(topic timer.TopicID, id []byte) uint32 {
	hi, lo := bits.Mul64(maphash.Bytes(t.seed, id)^uint64(topic)*0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
	return uint32((hi ^ lo) >> 32)
}

// get returns the slot of a handle, or nil if it holds no timer.
func (t *Table) get(h timer.Handle) *slot {
	if h == 0 || h > t.slab.high {
		return nil
	}
	s := t.slab.at(h)
	if s.state() == 0 {
		return nil
	}
	return s
}

// live returns the slot of a handle, or nil if it no longer holds the timer with this number.
func (t *Table) live(h timer.Handle, seq uint64) *slot {
	if s := t.get(h); s != nil && s.seq() == seq {
		return s
	}
	return nil
}

// Live reports whether the handle still holds the timer with this number.
func (t *Table) Live(h timer.Handle, seq uint64) bool { return t.live(h, seq) != nil }

// beginUpdate opens the update of a slot that is or was in use; endUpdate closes it. A snapshot in
// progress saves the slot's old content, and the sums and counts follow the change. Another slot
// may change meanwhile only within its own beginUpdate and endUpdate.
func (t *Table) beginUpdate(h timer.Handle) *slot {
	if t.snap != nil {
		t.snap.keep(h)
	}
	s := t.slab.at(h)
	t.addSlot(-t.slotHash(h, s))
	t.countSlot(s, -1)
	t.uncountWait(h)
	return s
}

func (t *Table) endUpdate(h timer.Handle, s *slot) {
	t.addSlot(t.slotHash(h, s))
	t.countSlot(s, +1)
	t.countWait(h, s)
}

// countSlot adds by to the counts of the slot's topic and state.
func (t *Table) countSlot(s *slot, by int64) {
	state := s.state()
	if state == 0 {
		return
	}
	t.topics.count(s.topic, state, by)
	if state == timer.Leased && t.runs.at(s.run).holder == ByPuller {
		t.topics.rows[s.topic].pulled += by
	}
	if !state.Over() && !t.ownURL(s) {
		t.topics.rows[s.topic].noURL += by
	}
}

// wasRefused reports whether the last call of a scheduled timer was refused an address.
func (t *Table) wasRefused(s *slot) bool {
	if s.run == 0 || s.state() != timer.Scheduled {
		return false
	}
	r := t.runs.at(s.run)
	if r.holder == ByPuller {
		return false
	}
	text := t.errorText(r)
	return timer.RefusedAddress(string(text[:min(len(text), 16)])) // its start is enough
}

// ownURL reports whether a timer has a callback URL of its own.
func (t *Table) ownURL(s *slot) bool {
	n := t.targetOf(s.ref)
	return n != 0 && hasURL(t.targets.at(n).bytes(&t.blobs))
}

// newSlot returns a slot for a new timer, with its update open.
func (t *Table) newSlot() (timer.Handle, *slot) {
	if h := t.slab.free; h != 0 {
		s := t.beginUpdate(h)
		t.slab.free = timer.Handle(s.ref)
		t.slab.unused--
		*s = slot{}
		return h, s
	}
	t.slab.high++
	h := t.slab.high
	t.slab.extend(h)
	return h, t.slab.at(h)
}

// drop removes a timer and frees its slot. Its id then names the next timer of the same id, if there
// is one.
func (t *Table) drop(h timer.Handle) {
	t.unchain(h)
	s := t.beginUpdate(h)
	t.forget(h, s)
	t.endUpdate(h, s)
}

// forget frees a slot with an open update. The slot must be in no chain, and the index must no
// longer name it.
func (t *Table) forget(h timer.Handle, s *slot) {
	if s.state() == timer.Done || s.state() == timer.Cancelled {
		t.finished.remove(t, h, s)
	}
	t.wheel.Remove(wheel.Handle(h))
	t.freeRun(h, s)
	t.dropBlob(h, s.ref)
	row := s.topic
	*s = slot{ref: uint32(t.slab.free)}
	t.slab.free = h
	t.slab.unused++
	t.topics.release(row)
}

// transition moves a timer with an open update to another state and updates its place in the
// wheel. The state lasts until whenMs.
func (t *Table) transition(h timer.Handle, s *slot, to timer.State, whenMs int64) {
	s.setState(to)
	s.setWhen(whenMs)
	s.rev++
	t.place(h, s)
}

// place arms the wheel for a timer according to its state:
//
//	Scheduled  at its next attempt, or right after its expiry if that is earlier
//	Leased     at the end of the lease
//	Dead       at the end of its retention
//	Done, Cancelled  not armed
func (t *Table) place(h timer.Handle, s *slot) {
	at, in := t.wakeMs(s)
	if !in {
		t.wheel.Remove(wheel.Handle(h))
		return
	}
	t.Arm(h, at)
}

func (t *Table) wakeMs(s *slot) (ms int64, in bool) {
	switch s.state() {
	case timer.Scheduled:
		at := s.when()
		if end := t.expiresMs(s); end != 0 {
			at = min(at, end+1)
		}
		return at, true
	case timer.Leased, timer.Dead:
		return s.when(), true
	}
	return 0, false
}

// TopicIDs returns the topics that have timers here, in ascending order.
func (t *Table) TopicIDs() []timer.TopicID {
	var ids []timer.TopicID
	for i := range t.topics.rows {
		if t.topics.rows[i].timers > 0 {
			ids = append(ids, t.topics.rows[i].id)
		}
	}
	slices.Sort(ids)
	return ids
}
