package table

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"carillon/timer"
	"carillon/wheel"
)

// Bounds of what a table keeps of finished timers, beside the history on disk.
const (
	finishedKeepMs   = 10 * 60_000 // how long a Done or Cancelled timer answers by its id
	finishedMaxBytes = 64 << 20    // per table; beyond, the oldest go earlier
	tombstoneKeepMs  = 60 * 60_000 // how long a closed topic stays refused
)

// Table is the state machine of one shard: its timers, and what happens to them. It has no clock,
// lock or goroutine and does no I/O; what it becomes depends only on the entries that Apply was
// given. One goroutine uses it.
//
// Replicated state is what the slots, runs, blobs, finished list, tombstones, deliveries and
// counters say; two tables that applied the same entries agree on it and on Hash, and so does one
// that was loaded from a snapshot between. Refs, run numbers, target numbers, topic rows, the
// index, and how far the wheel was advanced or popped are a replica's own.
type Table struct {
	id timer.ShardID

	// Replicated counters.
	clockMs     int64        // goes back by setClock alone
	seq         uint64       // last given
	fence       uint64       // last given
	leaderships []leadership // the last that took over, oldest first
	// restamped is how far the slots were gone through since the clock was set back, see restamp.
	// noRestamp: all of them, or it never was.
	restamped timer.Handle
	// leastVersion is the least that a timer has after a client's change. It is 0 but in a table
	// that was restored from a backup: versions that were given after the backup was taken, and are
	// lost, are not given again.
	leastVersion uint32

	slab         slab
	runs         attemptStates
	blobs        arena
	ids          index
	seed         maphash.Seed // of what is looked up by client's bytes: nobody outside can tell which of them meet. Nothing that replicas agree on depends on it
	targets      targets
	topics       topics
	finished     finished
	chains       map[timer.Handle]link
	closedTopics []tombstone                // by when they were closed
	tombOf       map[timer.TopicID]struct{} // those in closed topics: every add asks
	// deliveries are of the topics that have ever changed theirs.
	deliveries map[timer.TopicID]delivery
	wheel      *wheel.Wheel

	slotSum, blobSum, closedSum, deliverySum uint64 // over slots, blobs, closed topics and deliveries; see Hash

	scrub     scrub
	compares  bool // the last entry has the replicas compare their states
	snap      *Snapshot
	snapshots uint32       // begun; the number of the last
	scratch   []byte       // a spec on its way into the arena
	events    *eventBuffer // what the history is told; nil: there is none
}

// New makes an empty table.
func New(id timer.ShardID, nowMs int64) *Table {
	t := &Table{id: id, restamped: noRestamp, wheel: wheel.New(wheel.Tick(nowMs)), chains: map[timer.Handle]link{}, tombOf: map[timer.TopicID]struct{}{}, deliveries: map[timer.TopicID]delivery{}, seed: maphash.MakeSeed()}
	t.targets.seed = t.seed
	t.topics.rowOf = map[timer.TopicID]uint32{}
	return t
}

// Len is the number of timers, ended ones included.
func (t *Table) Len() int { return int(t.slab.high) - t.slab.unused }

// Compares says whether the last entry has the replicas compare their states.
func (t *Table) Compares() bool { return t.compares }

// ClockMs is the latest time of an entry since the clock was last set back.
func (t *Table) ClockMs() int64 { return t.clockMs }

// MemoryBytes is what is allocated for timers, in use or not.
func (t *Table) MemoryBytes() int64 {
	const wheelNode, wheelChunk, chainEntry = 20, 1024, 40
	wheelNodes := (int64(t.slab.high) + wheelChunk) &^ (wheelChunk - 1)
	return t.slab.memory() + t.runs.memory() + t.blobs.memory() + t.ids.memory() + t.targets.memory() +
		wheelNodes*wheelNode + int64(len(t.chains))*chainEntry
}

// Lookup finds a timer by its id: the one in use, else the last one that ended and is still kept.
func (t *Table) Lookup(topic timer.TopicID, id string) (timer.Handle, bool) {
	h := t.Find(topic, []byte(id))
	return h, h != 0
}

// Find is Lookup; 0: there is none.
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

// get returns the slot of a handle that holds a timer, else nil.
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

// live returns the slot of a handle that still holds the timer of that number, else nil.
func (t *Table) live(h timer.Handle, seq uint64) *slot {
	if s := t.get(h); s != nil && s.seq() == seq {
		return s
	}
	return nil
}

// Live says whether the handle still holds the timer of that number.
func (t *Table) Live(h timer.Handle, seq uint64) bool { return t.live(h, seq) != nil }

// beginUpdate must come before a change of a slot that is or was in use, and settle after it: a
// snapshot under way saves what the slot was, and the sums and counts follow the change. Between
// the two no other slot is touched but in pairs of its own.
func (t *Table) beginUpdate(h timer.Handle) *slot {
	if t.snap != nil {
		t.snap.keep(h)
	}
	s := t.slab.at(h)
	t.addSlot(h, -t.slotHash(h, s))
	t.countSlot(s, -1)
	return s
}

func (t *Table) endUpdate(h timer.Handle, s *slot) {
	t.addSlot(h, t.slotHash(h, s))
	t.countSlot(s, +1)
}

// countSlot counts a timer of its topic in or out.
func (t *Table) countSlot(s *slot, by int64) {
	state := s.state()
	if state == 0 {
		return
	}
	t.topics.count(s.topic, state, by)
	if state == timer.Leased && t.runs.at(s.run).holder == ByPuller {
		t.topics.rows[s.topic].pulled += by
	}
}

// newSlot takes a slot for a timer that is about to be created, and leaves it touched.
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

// drop forgets a timer: its slot is free, its id unknown unless an older dead letter of that id is
// left.
func (t *Table) drop(h timer.Handle) {
	t.unchain(h)
	s := t.beginUpdate(h)
	t.forget(h, s)
	t.endUpdate(h, s)
}

// forget empties a slot that is touched, in no chain and not in the index under its own number any
// more.
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

// transition moves a touched timer to a state that lasts until when (see slot.when), and its place
// in the wheel.
func (t *Table) transition(h timer.Handle, s *slot, to timer.State, whenMs int64) {
	s.setState(to)
	s.setWhen(whenMs)
	s.rev++
	t.place(h, s)
}

// place puts a timer where its state says into the wheel:
//
//	Scheduled  at its next attempt, or right after the moment it expires if that is earlier
//	Leased     at the end of the lease
//	Dead       at the end of its retention
//	Done, Cancelled  nowhere
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

// TopicIDs are the topics that have timers here, in rising order.
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
