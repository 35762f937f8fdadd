package table

import (
	"carillon/timer"
	"carillon/timer/encoding"

	"github.com/cespare/xxhash/v2"
)

// Read copies a timer by its id: the live one, or else the last ended one that is still kept. It
// returns nil if there is none.
func (t *Table) Read(topic timer.TopicID, id string) *timer.Timer {
	return t.Copy(t.Find(topic, []byte(id)))
}

// Copy copies a timer. It returns nil if the slot is free.
func (t *Table) Copy(h timer.Handle) *timer.Timer { return t.CopyWith(h, true) }

// CopyWith is Copy with or without the payload.
func (t *Table) CopyWith(h timer.Handle, payload bool) *timer.Timer {
	s := t.get(h)
	if s == nil {
		return nil
	}
	v := t.view(s.ref)
	m := &timer.Timer{
		Topic: t.topics.rows[s.topic].id, ID: string(v.id),
		Seq: s.seq(), Tag: v.tag, Version: v.version,
		State: s.state(), Reason: s.reason(), CancelRequested: s.cancelled(),
		CreatedMs: v.createdMs, UpdatedMs: v.updatedMs,
		LatenessMs: -1, Attempts: s.attempts(), AskedMs: v.askedMs,
		Content: v.content, Occurrence: v.occurrence, FirstMs: v.firstMs,
	}
	if m.FirstMs == 0 && v.waitsFromCreation() {
		m.FirstMs = v.createdMs
	}
	_ = encoding.DecodeRest(&m.Spec, v.rest, payload) // checked when it was proposed
	m.DueMs = t.dueMs(s)
	if v.target != 0 {
		m.Callback = t.targets.at(v.target).callback(&t.blobs)
	}
	if m.State == timer.Scheduled {
		m.NextMs = s.when()
	}
	if s.run != 0 {
		r := t.runs.at(s.run)
		m.Fence, m.FiredMs, m.LatenessMs = r.fence, r.firedMs, r.lateness
		m.Successor = r.successor != 0
		m.LastStatus, m.LastError = int(r.status), string(t.errorText(r))
		if m.State.Over() {
			m.EndedMs = r.endedMs()
		}
	}
	return m
}

// ID returns the id of a timer; "" if the slot is free.
func (t *Table) ID(h timer.Handle) string {
	s := t.get(h)
	if s == nil {
		return ""
	}
	return string(t.view(s.ref).id)
}

// KeyHash returns a hash of a timer's key; 0 if the slot is free. The key is the id's part in
// leading braces, or else the whole id.
func (t *Table) KeyHash(h timer.Handle) uint64 {
	s := t.get(h)
	if s == nil {
		return 0
	}
	id := t.view(s.ref).id
	if len(id) > 0 && id[0] == '{' {
		for i, c := range id {
			if c == '}' {
				id = id[1:i]
				break
			}
		}
	}
	return xxhash.Sum64(id)
}

// IDHash returns a hash of a timer's id; 0 if the slot is free.
func (t *Table) IDHash(h timer.Handle) uint64 {
	s := t.get(h)
	if s == nil {
		return 0
	}
	return xxhash.Sum64(t.view(s.ref).id)
}
