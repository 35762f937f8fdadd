package table

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"

	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// collections are the arrays of the timers that collect. A timer that does not collect has no part
// in them. To find an array or a part is O(1).
type collections struct {
	arrays map[timer.Handle]content.Array
	// parts finds the timer whose array has a payload of a name, by a hash of topic, id and name.
	// The hash has secrets, so that clients cannot cause collisions; no replicated state depends on
	// it. An array that has ended has no names, and neither has one whose retries will not come.
	parts map[partHash]timer.Handle
	seeds [2]maphash.Seed
	// waiting are the timers behind another, by their numbers.
	waiting map[uint64]timer.Handle

	arraysRoom, partsRoom, waitingRoom room
}

type partHash [2]uint64

func newCollections() collections {
	return collections{
		arrays: map[timer.Handle]content.Array{}, parts: map[partHash]timer.Handle{}, waiting: map[uint64]timer.Handle{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

func (c *collections) memory() int64 {
	const entry = 48
	return (c.arraysRoom.of(len(c.arrays)) + c.partsRoom.of(len(c.parts)) + c.waitingRoom.of(len(c.waiting))) * entry
}

func (c *collections) partHash(topic timer.TopicID, id, name []byte) partHash {
	var room [4 + 1 + encoding.MaxID + timer.MaxPart]byte
	b := binary.LittleEndian.AppendUint32(room[:0], uint32(topic))
	b = append(append(append(b, byte(len(id))), id...), name...)
	return partHash{maphash.Bytes(c.seeds[0], b), maphash.Bytes(c.seeds[1], b)}
}

// collects reports whether a timer has an array.
func (c *collections) collects(h timer.Handle) bool {
	_, ok := c.arrays[h]
	return ok
}

// forgetParts releases the names of an array. The timer's update is open. O(their bytes), which
// their adds have paid for.
func (u *updater) forgetParts(h timer.Handle, s *slab.Slot) {
	a, ok := u.arrays[h]
	if !ok {
		return
	}
	topic, id := u.topics.rows[s.Topic].id, u.content.View(s.Ref).ID
	for name := range u.content.Names(&a) {
		u.parts = without(u.parts, &u.partsRoom, u.partHash(topic, id, name))
	}
	u.content.ForgetNames(h, &a)
	u.arrays[h] = a
}

// dropArray ends the collecting of a timer with an open update.
func (u *updater) dropArray(h timer.Handle, s *slab.Slot) {
	if !u.collects(h) {
		return
	}
	u.forgetParts(h, s)
	a := u.arrays[h]
	u.content.DropArray(h, &a)
	u.arrays = without(u.arrays, &u.arraysRoom, h)
}

func (t *Table) collect(c *encoding.Command, f *encoding.Summary) timer.Result {
	var add encoding.Collect
	add, t.scratch = encoding.SplitCollect(t.scratch[:0], c.Spec.Rest)
	c.Spec.Rest = t.scratch
	if len(add.Part) > 0 {
		if h := t.parts[t.partHash(c.Topic, c.ID, add.Part)]; h != 0 {
			return timer.Result{Code: timer.Merged, Handle: h, Unchanged: true}
		}
	}
	h := t.Find(c.Topic, c.ID)
	switch {
	case !add.IsJSON || f.Repeats: // no node proposes it
		return timer.Result{Code: timer.Exists, Handle: h}
	case c.Late(c.Spec.DueMs, t.clockMs):
		return timer.Result{Code: timer.TooLate, Handle: h}
	case h == 0 || t.slots.At(h).State().Over():
		return t.beginArray(c, f, &add, h)
	case t.viewOf(h).Flags&content.IsSeries != 0:
		return timer.Result{Code: timer.Exists, Handle: h}
	}
	s := t.slots.At(h)
	if s.State() == timer.Leased && t.attempts.At(s.Attempt).Successor != 0 {
		if h = t.detach(h); h == 0 {
			return timer.Result{Code: timer.Exists, Handle: t.Find(c.Topic, c.ID)}
		}
		s = t.slots.At(h)
	}
	v := t.content.View(s.Ref)
	switch {
	case s.State() != timer.Scheduled || s.Attempts() > 0 || v.Flags&content.NoExpiry != 0:
		return t.beginNext(c, f, &add, h) // what may have been sent stays as it is
	case !t.collects(h):
		switch code := t.makeArray(h, s, &v); code {
		case timer.OK:
		case timer.Merged:
			return t.beginNext(c, f, &add, h)
		default:
			return timer.Result{Code: code, Handle: h}
		}
	}
	if a := t.arrays[h]; !a.FitsMore(add.Payload) {
		if !a.Closed {
			s = t.beginUpdate(h)
			t.closeArray(h, s)
			t.endUpdate(h, s)
		}
		return t.beginNext(c, f, &add, h)
	}
	s = t.beginUpdate(h)
	v = t.content.View(s.Ref)
	v.Version, v.UpdatedMs = t.versionAfter(v.Version), t.clockMs
	first := v.FirstAdd(t.clockMs)
	t.rewriteSame(h, s, &v)
	if c.MaxWaitMs != 0 && v.AskedMs == 0 {
		t.moveTo(h, s, timer.Debounced(c.Merge, c.Spec.DueMs, first, c.MaxWaitMs))
	}
	t.appendTo(h, s, c, &add)
	t.endUpdate(h, s)
	return timer.Result{Code: timer.Merged, Handle: h}
}

func (t *Table) beginArray(c *encoding.Command, f *encoding.Summary, add *encoding.Collect, old timer.Handle) timer.Result {
	r := t.create(c, f, old)
	s := t.beginUpdate(r.Handle)
	t.appendTo(r.Handle, s, c, add)
	t.endUpdate(r.Handle, s)
	return r
}

// beginNext is beginArray behind a timer that has not ended.
func (t *Table) beginNext(c *encoding.Command, f *encoding.Summary, add *encoding.Collect, old timer.Handle) timer.Result {
	h := t.beginArray(c, f, add, old).Handle
	t.setBehind(h, true)
	return timer.Result{Code: timer.Merged, Handle: h}
}

// appendTo appends the payload of an add to the array of a timer with an open update. It is
// amortised O(the payload's bytes).
func (t *Table) appendTo(h timer.Handle, s *slab.Slot, c *encoding.Command, add *encoding.Collect) {
	a := t.arrays[h]
	t.content.Collect(h, &a, add.Payload, add.Part)
	t.arrays[h] = a
	if len(add.Part) > 0 {
		t.parts[t.partHash(c.Topic, c.ID, add.Part)] = h
	}
	most := cmp.Or(add.Max, timer.DefaultCollectMax)
	if int(a.Count) >= most {
		t.closeArray(h, s)
	}
}

// closeArray makes an array take no more: its timer, with an open update, is due now.
func (t *Table) closeArray(h timer.Handle, s *slab.Slot) {
	a := t.arrays[h]
	t.content.CloseArray(h, &a)
	t.arrays[h] = a
	t.moveTo(h, s, min(t.dueMs(s), t.clockMs))
}

// moveTo changes the due time of a scheduled timer with an open update that was not attempted. An
// attempt that somebody has asked for by hand before that time stays.
func (t *Table) moveTo(h timer.Handle, s *slab.Slot, dueMs int64) {
	dueMs = timer.ClampMs(dueMs)
	if dueMs == t.dueMs(s) {
		return
	}
	next := dueMs
	if t.content.View(s.Ref).AskedMs != 0 {
		next = min(next, s.When())
	}
	t.setDue(s, dueMs)
	t.transition(h, s, timer.Scheduled, next)
}

// makeArray makes the payload of a scheduled timer the first of an array; one without a payload
// gets an empty array. If the payload does not fit into one, the timer is due now and the answer is
// Merged. If it is not JSON, or nests too deep, the answer is Exists.
func (t *Table) makeArray(h timer.Handle, s *slab.Slot, v *content.Blob) timer.Code {
	has, rest := encoding.SplitCollect(nil, v.Rest)
	switch {
	case has.IsPresent && (!has.IsJSON || !timer.NestsInArray(has.Payload)):
		return timer.Exists
	case !timer.FitsAlone(has.Payload):
		t.beginUpdate(h)
		t.moveTo(h, s, min(t.dueMs(s), t.clockMs))
		t.endUpdate(h, s)
		return timer.Merged
	}
	t.beginUpdate(h)
	var a content.Array
	if has.IsPresent {
		t.content.Collect(h, &a, has.Payload, nil)
	}
	t.arrays[h] = a
	v.Rest = rest
	t.rewriteSame(h, s, v)
	t.endUpdate(h, s)
	return timer.OK
}

// detach makes the successor of a leased timer a timer behind it, which no longer supersedes its
// retries. It returns 0 if the successor cannot collect.
func (t *Table) detach(h timer.Handle) timer.Handle {
	s := t.slots.At(h)
	r := t.attempts.At(s.Attempt)
	old, next := t.content.View(s.Ref), t.content.View(r.Successor)
	f, _ := encoding.Summarize(next.Rest) // checked when it was proposed
	if has, _ := encoding.SplitCollect(nil, next.Rest); f.Repeats || has.IsPresent && !has.IsJSON {
		return 0
	}
	next.ID, next.Version = old.ID, t.versionAfter(old.Version)
	next.Begin(false)
	topic := t.topics.rows[s.Topic].id
	t.content.Retain(next.Target)
	n, made := t.makeBlob(topic, &next, f.Priority, next.DueMs)
	t.endUpdate(n, made)
	t.supersede(t.idHash(topic, next.ID), h, n)
	t.setBehind(n, true)
	s = t.beginUpdate(h)
	t.dropSuccessor(h, r)
	t.endUpdate(h, s)
	return n
}

// shownPayload is the largest array that the answer to an add shows: otherwise n adds would copy
// O(n²) bytes.
const shownPayload = 16 << 10

// AnswersWhole reports whether the answer to a command has the timer's payload.
func (t *timers) AnswersWhole(h timer.Handle, kind timer.Kind, merge timer.Merge) bool {
	a, ok := t.arrays[h]
	return !ok || kind != timer.Add || merge != timer.MergeCollect || a.Sent() <= shownPayload
}
