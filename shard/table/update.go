package table

import (
	"bytes"
	"maps"

	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// updater changes timers, and keeps in step what follows from a change: sums, counts, the index,
// the timetable, and a snapshot in progress. A change is O(1).
type updater struct {
	timetable
	finished     finished
	slotSum      uint64 // of the hashes of all slots
	deadReplaced int    // see TakeDeadReplaced; not replicated
	snap         *Snapshot

	updates []openUpdate // that are open; the innermost is the last; not replicated
	moving  bool         // MoveContents has slots to visit; not replicated
	moved   timer.Handle // the last one that it has visited; not replicated
}

// openUpdate is how a timer waited in the wheel as its update began. It waits so afterwards, unless
// a transition has moved it.
type openUpdate struct {
	rev            uint32
	waited, spread bool
}

// beginUpdate opens the update of a slot that is or was in use; endUpdate closes it. A snapshot in
// progress saves the slot's old content, and the sums and counts follow the change. Another slot
// may change meanwhile only within its own beginUpdate and endUpdate.
func (u *updater) beginUpdate(h timer.Handle) *slab.Slot {
	if u.snap != nil {
		u.snap.keep(h)
	}
	s := u.slots.At(h)
	u.slotSum -= u.slotHash(h, s)
	u.countSlot(h, s, -1)
	u.updates = append(u.updates, openUpdate{s.Rev, u.wheelWaits.counted.has(h), u.wheelWaits.spread.has(h)})
	u.uncountWait(h)
	return s
}

func (u *updater) endUpdate(h timer.Handle, s *slab.Slot) {
	u.slotSum += u.slotHash(h, s)
	u.countSlot(h, s, +1)
	last := len(u.updates) - 1
	o := u.updates[last]
	if u.updates = u.updates[:last]; o.waited && o.rev == s.Rev {
		u.setWait(h, s, o.spread)
		return
	}
	u.countWait(h, s)
}

// countSlot adds by to the counts of the slot's topic and state.
func (u *updater) countSlot(h timer.Handle, s *slab.Slot, by int64) {
	state := s.State()
	if state == 0 || u.foreign(h) {
		return
	}
	u.topics.count(s.Topic, state, by)
	if state == timer.Leased && u.attempts.At(s.Attempt).Holder == ByPuller {
		u.topics.rows[s.Topic].pulled += by
	}
	if state.Over() {
		return
	}
	if !u.content.HasURL(s.Ref) {
		u.topics.rows[s.Topic].noURL += by
	}
	u.naming.add(h, by)
}

// newSlot returns a slot for a new timer, with its update open.
func (u *updater) newSlot() (timer.Handle, *slab.Slot) {
	if h := u.slots.Free; h != 0 {
		u.beginUpdate(h)
	} else {
		u.updates = append(u.updates, openUpdate{})
	}
	return u.slots.Take()
}

// transition moves a timer with an open update to another state and updates its place in the
// wheel. The state lasts until whenMs.
func (u *updater) transition(h timer.Handle, s *slab.Slot, to timer.State, whenMs int64) {
	if to != timer.Scheduled && to != timer.Dead {
		s.SetReason(timer.NoReason)
	}
	s.SetState(to)
	s.SetWhen(whenMs)
	s.Rev++
	u.WaitIn(h, nil, 0)
	u.place(h, s)
}

// attemptOf returns the attempt of a timer with an open update. It creates one if there is none.
func (u *updater) attemptOf(s *slab.Slot) *slab.Attempt {
	if s.Attempt == 0 {
		s.Attempt = u.attempts.Take()
		r := u.attempts.At(s.Attempt)
		r.DueMs, r.Lateness = s.When(), -1
		return r
	}
	return u.attempts.At(s.Attempt)
}

func (u *updater) freeAttempt(h timer.Handle, s *slab.Slot) {
	if s.Attempt == 0 {
		return
	}
	r := u.attempts.At(s.Attempt)
	r.ErrRef = u.content.SetError(h, r.ErrRef, "", nil, nil)
	u.dropSuccessor(h, r)
	u.attempts.Give(s.Attempt)
	s.Attempt = 0
}

// setDue changes the due time of a timer with an open update. Without an attempt, the due time is
// the slot's when, which the caller sets.
func (u *updater) setDue(s *slab.Slot, ms int64) {
	if s.Attempt != 0 {
		u.attempts.At(s.Attempt).DueMs = ms
	}
}

// rewrite gives a timer with an open update a new blob. v may view the old one.
func (u *updater) rewrite(h timer.Handle, s *slab.Slot, v *content.Blob, callback []byte) {
	v.Target = u.content.Intern(callback)
	u.naming.read(h, v.Rest)
	s.Ref = u.content.Replace(h, s.Ref, v)
}

// rewriteSame writes a timer's changed blob with the same content. The timer's update is open.
func (u *updater) rewriteSame(h timer.Handle, s *slab.Slot, v *content.Blob) {
	u.content.Retain(v.Target)
	u.naming.read(h, v.Rest)
	s.Ref = u.content.Replace(h, s.Ref, v)
}

func (u *updater) dropSuccessor(h timer.Handle, r *slab.Attempt) {
	if r.Successor != 0 {
		u.content.Drop(h, r.Successor)
		r.Successor = 0
	}
}

// drop removes a timer and frees its slot. Its id then names the next timer of the same id, if
// there is one.
func (u *updater) drop(h timer.Handle) {
	u.unchain(h)
	s := u.beginUpdate(h)
	u.forget(h, s)
	u.endUpdate(h, s)
}

// forget frees a slot with an open update. The slot must be in no chain, and the index must no
// longer name it.
func (u *updater) forget(h timer.Handle, s *slab.Slot) {
	if s.State() == timer.Done || s.State() == timer.Cancelled {
		list := &u.finished
		if u.foreign(h) {
			list = &u.leaving.finished
		}
		list.remove(u, h, s)
	}
	u.wheel.Remove(wheelHandle(&u.slots, h))
	u.WaitIn(h, nil, 0)
	u.dropArray(h, s)
	u.freeAttempt(h, s)
	u.content.Drop(h, s.Ref)
	u.naming.read(h, nil)
	row := s.Topic
	u.slots.Give(h)
	u.topics.release(row)
}

// makeBlob fills a new slot and leaves its update open.
func (u *updater) makeBlob(topic timer.TopicID, v *content.Blob, priority uint8, dueMs int64) (timer.Handle, *slab.Slot) {
	h, s := u.newSlot()
	u.seq++
	s.SetSeq(u.seq)
	s.Topic = u.topics.retain(topic)
	s.Ref = u.content.Put(h, v)
	u.naming.read(h, v.Rest)
	s.SetPriority(priority)
	u.transition(h, s, timer.Scheduled, dueMs)
	return h, s
}

// setSuccessor makes a timer that takes over the id of one that has just ended, and waits behind
// others if that one did. A dead letter is kept but superseded; any other ended timer is dropped.
func (u *updater) setSuccessor(old timer.Handle, v *content.Blob, priority uint8, dueMs int64, paused bool) {
	o := u.slots.At(old)
	topic := u.topics.rows[o.Topic].id
	hash := u.idHash(topic, v.ID)
	u.content.Retain(v.Target)
	h, s := u.makeBlob(topic, v, priority, dueMs)
	s.SetPaused(paused, false)
	u.endUpdate(h, s)
	u.supersede(hash, old, h)
	if u.chains[old].behind { // it has expired while it waited
		u.setBehind(h, true)
	}
	if state := o.State(); state == timer.Done || state == timer.Cancelled {
		u.drop(old)
	}
}

// markContinued records that a timer's series has continued without it. v views its blob.
func (u *updater) markContinued(h timer.Handle, v *content.Blob) {
	s := u.beginUpdate(h)
	v.Occurrence = 0
	u.rewriteSame(h, s, v)
	u.endUpdate(h, s)
}

// dropWork is the cost of dropping a timer, in units of visiting a slot.
func (u *updater) dropWork(h timer.Handle) int64 {
	a := u.arrays[h]
	return 16 + a.DropWork()
}

// dropTopic drops a topic's timers, visiting the slots after from. It stops when work is used up (0
// is unlimited) and returns the slot to continue after, or 0 when it has finished. The row
// disappears with its last timer. removed counts the pending timers among those dropped.
func (u *updater) dropTopic(row uint32, from timer.Handle, work int64) (removed int, next timer.Handle) {
	bounded := work > 0
	left := u.topics.rows[row].timers
	for h := from + 1; h <= u.slots.High && left > 0; h++ {
		if bounded && work <= 0 {
			return removed, h - 1
		}
		work--
		if s := u.slots.At(h); s.State() != 0 && s.Topic == row && !u.foreign(h) {
			if s.State() == timer.Scheduled || s.State() == timer.Leased {
				removed++
			}
			work -= u.dropWork(h)
			u.drop(h)
			left--
		}
	}
	return removed, 0
}

// MoveContents gives back the memory of contents that have left: it moves those of so many slots to
// where less memory is unused, and continues with the next slots when it is called again. It
// changes no state.
func (u *updater) MoveContents(slots int) {
	if !u.moving {
		return
	}
	for ; slots > 0 && u.moved < u.slots.High; slots-- {
		var s *slab.Slot
		if u.moved, s = u.slots.Visit(u.moved, u.slots.High); s.State() != 0 {
			s.Ref = u.content.Move(s.Ref)
		}
	}
	if u.moved >= u.slots.High {
		u.moving = false
		u.content.EndMoves()
	}
}

// record stores the attempt's status, error, answer and start, and logs it if its end may be the
// timer's outcome one day.
func (u *updater) record(o *Outcome, s *slab.Slot, endMs int64) {
	if o.Kind == Release {
		s.SetAttempts(s.Attempts() - 1)
		return
	}
	r := u.attempts.At(s.Attempt)
	r.Status = uint16(min(max(o.Status, 0), 1<<16-1))
	u.started(s, r, o.StartedMs)
	var log []byte
	switch {
	case o.Kind == Accepted: // the attempt has not ended
		log = bytes.Clone(u.content.Attempts(r.ErrRef))
	case o.Logged:
		log = logAttempt(u.content.Attempts(r.ErrRef), s.Attempts(), r, endMs, o.Err, o.Answer)
	}
	r.ErrRef = u.content.SetError(o.Handle, r.ErrRef, o.Err, encoding.AppendAnswer(nil, o.Answer), log)
}

func (u *updater) dropLog(h timer.Handle, s *slab.Slot) {
	r := u.attempts.At(s.Attempt)
	if len(u.content.Attempts(r.ErrRef)) > 0 {
		text, answer := u.content.Failure(r.ErrRef)
		r.ErrRef = u.content.SetError(h, r.ErrRef, string(text), bytes.Clone(answer), nil)
	}
}

// started stores the start of the attempt and, for the first attempt, its lateness.
func (u *updater) started(s *slab.Slot, r *slab.Attempt, ms int64) {
	r.FiredMs = timer.ClampMs(ms)
	if r.Lateness < 0 {
		v := u.content.View(s.Ref)
		r.Lateness = max(r.FiredMs-v.LateFrom(r.DueMs), 0)
	}
}

// room is the most entries that a map has had since it was made. A map of Go keeps room for so many
// when it has fewer.
type room int

// Bounds of a map that is made again.
const (
	leastRoom  = 1 << 10
	mostCopied = 1 << 13
)

// without deletes a key. A map that has become much smaller is made again, which its deletes have
// paid for: a delete is amortised O(1). One of more than mostCopied entries keeps its room, because
// to copy it would make a turn long.
func without[M ~map[K]V, K comparable, V any](m M, most *room, key K) M {
	*most = max(*most, room(len(m)))
	delete(m, key)
	if n := len(m); *most <= leastRoom || n > mostCopied || n > int(*most)/8 {
		return m
	}
	smaller := make(M, len(m))
	maps.Copy(smaller, m)
	*most = room(len(m))
	return smaller
}

// of is how many entries a map with n of them has room for.
func (r room) of(n int) int64 { return max(int64(r), int64(n)) }
