package table

import (
	"github.com/cespare/xxhash/v2"

	"carillon/shard/table/content"
	"carillon/shard/table/index"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// timers are the timers of a table, and how they are read. Its methods change nothing. To find or
// read a timer is O(1).
type timers struct {
	seq      uint64 // last number given to a timer; replicated
	slots    slab.Slots
	attempts slab.Attempts
	content  content.Store
	topics
	ids       index.Index
	chains    places
	chainRoom room
	naming    outcomeTopics
	collections
	division
}

// Len returns the number of timers, including ended ones.
func (t *timers) Len() int { return int(t.slots.High) - t.slots.Unused }

// LastHandle returns the highest handle ever used. It is the number of slots that a full scan
// visits.
func (t *timers) LastHandle() timer.Handle { return t.slots.High }

// get returns the slot of a handle, or nil if it holds no timer, or a foreign one.
func (t *timers) get(h timer.Handle) *slab.Slot {
	if h == 0 || h > t.slots.High {
		return nil
	}
	if s := t.slots.At(h); s.State() != 0 && !t.foreign(h) {
		return s
	}
	return nil
}

// live returns the slot of a handle, or nil if it no longer holds the timer with this number.
func (t *timers) live(h timer.Handle, seq uint64) *slab.Slot {
	if s := t.get(h); s != nil && s.Seq() == seq {
		return s
	}
	return nil
}

// Live reports whether the handle still holds the timer with this number.
func (t *timers) Live(h timer.Handle, seq uint64) bool { return t.live(h, seq) != nil }

// ScheduledAt reports whether the handle still holds the timer of that number, scheduled and at
// that revision.
func (t *timers) ScheduledAt(h timer.Handle, seq uint64, rev uint32) bool {
	s := t.live(h, seq)
	return s != nil && s.Rev == rev && s.State() == timer.Scheduled
}

// LeasedBy reports whether the handle still holds the timer of that number, under the lease of that
// fence.
func (t *timers) LeasedBy(h timer.Handle, seq, fence uint64) bool {
	s := t.live(h, seq)
	return s != nil && s.State() == timer.Leased && t.attempts.At(s.Attempt).Fence == fence
}

// PastExpiry reports whether a scheduled timer's expiry is over.
func (t *timers) PastExpiry(h timer.Handle, nowMs int64) bool {
	s := t.slots.At(h)
	v := t.content.View(s.Ref)
	end := v.ExpiresMs(t.dueMs(s))
	return end != 0 && nowMs > end
}

// Lookup finds a timer by its id: the live one, or else the last ended one that is still kept. Of
// timers that wait behind each other it is the first.
func (t *timers) Lookup(topic timer.TopicID, id string) (timer.Handle, bool) {
	h := t.Named(topic, []byte(id), 0)
	return h, h != 0
}

// Find finds the newest timer of an id that has not ended, or else the last ended one that is still
// kept. It returns 0 if there is no such timer.
func (t *timers) Find(topic timer.TopicID, id []byte) timer.Handle {
	row, ok := t.topics.rowOf[topic]
	if !ok {
		return 0
	}
	return timer.Handle(t.ids.Find(t.idHash(topic, id), func(n uint32) bool {
		s := t.slots.At(timer.Handle(n))
		return s.Topic == row && string(t.content.View(s.Ref).ID) == string(id) && !t.foreign(timer.Handle(n))
	}))
}

// idHash returns the hash of a timer's id in the index.
func (t *timers) idHash(topic timer.TopicID, id []byte) uint32 { return t.ids.Hash(uint64(topic), id) }

func (t *timers) dueMs(s *slab.Slot) int64 {
	if s.Attempt == 0 {
		return s.When()
	}
	return t.attempts.At(s.Attempt).DueMs
}

func (t *timers) wakeMs(h timer.Handle, s *slab.Slot) (ms int64, in bool) {
	if t.foreign(h) {
		return 0, false
	}
	switch s.State() {
	case timer.Scheduled:
		at, v := s.When(), t.content.View(s.Ref)
		end := v.ExpiresMs(t.dueMs(s))
		if end != 0 {
			at = min(at, end+1)
		}
		return at, true
	case timer.Leased, timer.Dead:
		return s.When(), true
	}
	return 0, false
}

// isBehind reports whether a timer waits for another of its id.
func (t *timers) isBehind(h timer.Handle, s *slab.Slot) bool {
	return s.Chained() && t.chains[h].behind
}

// wasRefused reports whether the last call of a scheduled timer was refused an address. Those
// before a redrive do not count: it may have given another URL.
func (t *timers) wasRefused(s *slab.Slot) bool {
	if s.Attempts() == 0 || s.Attempt == 0 || s.State() != timer.Scheduled {
		return false
	}
	r := t.attempts.At(s.Attempt)
	if r.Holder == ByPuller {
		return false
	}
	text := t.content.ErrorText(r.ErrRef)
	return timer.RefusedAddress(string(text[:min(len(text), 16)])) // its start is enough
}

// slotHash covers the fields of a slot and its attempt. The sums over all slots and blobs follow
// each change, so reading the hash of the whole state costs nothing extra (I7, I12).
func (t *timers) slotHash(h timer.Handle, s *slab.Slot) uint64 {
	seqAttempts, whenMarks := s.Words()
	x := content.Mix(content.Mix(uint64(h), seqAttempts), whenMarks)
	if s.State() == 0 {
		return content.Mix(x, uint64(t.slots.NextFree(h)))
	}
	x = content.Mix(x, uint64(t.topics.rows[s.Topic].id)<<32|uint64(s.Rev))
	if s.Attempt != 0 {
		r := t.attempts.At(s.Attempt)
		x = content.Mix(x, r.Fence)
		x = content.Mix(x, uint64(r.DueMs))
		x = content.Mix(x, uint64(r.EndedMs()))
		x = content.Mix(x, uint64(r.FiredMs))
		x = content.Mix(x, uint64(r.Lateness))
		x = content.Mix(x, uint64(r.Newer)<<32|uint64(r.Older))
		x = content.Mix(x, uint64(r.Status)|uint64(r.DurMs)<<16|uint64(r.Holder)<<48)
	}
	if s.Chained() {
		l := t.chains[h]
		x = content.Mix(x, uint64(l.newer)<<32|uint64(l.older))
		if l.behind {
			x = content.Mix(x, 1)
		}
	}
	return x
}

// Callback returns the callback that n identifies, or an empty one if it is no longer used.
func (t *timers) Callback(n Target) timer.Callback { return t.content.Callback(n) }

// SealedBy adds the number of sealed header values of this table's callback overrides to all, by
// the id of the sealing key.
func (t *timers) SealedBy(all map[string]int64) map[string]int64 { return t.content.SealedBy(all) }

// Read copies a timer by its id: the live one, or else the last ended one that is still kept. It
// returns nil if there is none.
func (t *timers) Read(topic timer.TopicID, id string) *timer.Timer {
	return t.Copy(t.Named(topic, []byte(id), 0))
}

// Copy copies a timer. It returns nil if the slot is free.
func (t *timers) Copy(h timer.Handle) *timer.Timer { return t.CopyWith(h, true) }

// CopyWith is Copy with or without the payload.
func (t *timers) CopyWith(h timer.Handle, payload bool) *timer.Timer {
	s := t.get(h)
	if s == nil {
		return nil
	}
	v := t.content.View(s.Ref)
	m := &timer.Timer{
		Topic: t.topics.rows[s.Topic].id, ID: string(v.ID),
		Seq: s.Seq(), Origin: t.originOf(s.Seq()), Tag: v.Tag, Version: v.Version,
		State: s.State(), Reason: s.Reason(), CancelRequested: s.Cancelled(), Paused: s.Paused(),
		CreatedMs: v.CreatedMs, UpdatedMs: v.UpdatedMs,
		LatenessMs: -1, Attempts: s.Attempts(), AskedMs: v.AskedMs,
		Content: v.Content, Occurrence: v.Occurrence, FirstMs: v.FirstAdd(0),
	}
	_ = encoding.DecodeRest(&m.Spec, v.Rest, payload) // checked when it was proposed
	if a, ok := t.arrays[h]; ok {
		m.Collected, m.Full, m.PayloadKind = uint16(a.Count), a.Closed, timer.JSONPayload
		if payload {
			m.Payload = t.content.AppendArray(make([]byte, 0, a.Sent()), &a)
		}
	}
	m.DueMs = t.dueMs(s)
	m.Callback = t.content.CallbackAt(v.Target)
	if m.State == timer.Scheduled {
		m.NextMs = s.When()
	}
	m.Successor = t.Awaited(h)
	if s.Attempt != 0 {
		r := t.attempts.At(s.Attempt)
		m.Fence, m.FiredMs, m.LatenessMs = r.Fence, r.FiredMs, r.Lateness
		m.Successor = m.Successor || r.Successor != 0
		text, answer := t.content.Failure(r.ErrRef)
		m.LastStatus, m.LastError = int(r.Status), string(text)
		m.LastAnswer, _ = encoding.DecodeAnswer(answer) // checked when it was proposed
		if m.State.Over() {
			m.EndedMs = r.EndedMs()
		}
	}
	return m
}

// ID returns the id of a timer; "" if the slot is free.
func (t *timers) ID(h timer.Handle) string { return string(t.viewOf(h).ID) }

// TopicOf returns the topic of a timer; 0 if the slot is free.
func (t *timers) TopicOf(h timer.Handle) timer.TopicID {
	s := t.get(h)
	if s == nil {
		return 0
	}
	return t.topics.rows[s.Topic].id
}

// viewOf returns the content of a timer; an empty one if the slot is free.
func (t *timers) viewOf(h timer.Handle) (v content.Blob) {
	if s := t.get(h); s != nil {
		v = t.content.View(s.Ref)
	}
	return v
}

// KeyHash returns a hash of a timer's key; 0 if the slot is free. The key is the id's part in
// leading braces, or else the whole id.
func (t *timers) KeyHash(h timer.Handle) uint64 {
	key, _ := timer.KeyOf(t.viewOf(h).ID)
	return hashOf(key)
}

// Keyed reports whether a timer's id names its key.
func (t *timers) Keyed(h timer.Handle) bool {
	_, keyed := timer.KeyOf(t.viewOf(h).ID)
	return keyed
}

// WeightOf returns the weight that a timer gives its key.
func (t *timers) WeightOf(h timer.Handle) uint8 { return encoding.RestWeight(t.viewOf(h).Rest) }

// IDHash returns a hash of a timer's id; 0 if the slot is free.
func (t *timers) IDHash(h timer.Handle) uint64 { return hashOf(t.viewOf(h).ID) }

func hashOf(id []byte) uint64 {
	if id == nil {
		return 0
	}
	return xxhash.Sum64(id)
}

// RetryOf returns the timer's own retry settings.
func (t *timers) RetryOf(h timer.Handle) timer.Retry {
	var spec timer.Spec
	_ = encoding.DecodeRest(&spec, t.viewOf(h).Rest, false)
	return spec.Retry
}

// CopySize returns the Size of a timer in the table without copying it.
func (t *timers) CopySize(h timer.Handle, payload bool) int {
	s := t.get(h)
	if s == nil {
		return 0
	}
	v := t.viewOf(h)
	n := timer.BaseSize + len(v.ID) + len(v.Rest) + len(t.content.EncodedCallback(v.Target))
	if s.Attempt != 0 {
		_, answer := t.content.Failure(t.attempts.At(s.Attempt).ErrRef)
		n += len(answer)
	}
	if !payload {
		n -= len(encoding.PayloadIn(v.Rest))
	} else if a, ok := t.arrays[h]; ok {
		n += a.Sent()
	}
	return n
}

// BatchBytes returns how many bytes a timer takes at most of the body of a call of many timers,
// without the name of its topic: it has the id and the key, fixed names and numbers, and the
// payload.
func (t *timers) BatchBytes(h timer.Handle) int {
	v := t.viewOf(h)
	payload, contentType := encoding.BodySize(v.Rest)
	if a, ok := t.arrays[h]; ok {
		payload = a.Sent()
	}
	const fixed, escaped = 320, 6
	return fixed + 2*len(v.ID) + payload + escaped*contentType
}

// RefusedAddress is the error of a scheduled timer whose last call was refused an address; "" of
// any other.
func (t *timers) RefusedAddress(h timer.Handle) string {
	if s := t.get(h); s != nil && t.wasRefused(s) {
		return string(t.content.ErrorText(t.attempts.At(s.Attempt).ErrRef))
	}
	return ""
}
