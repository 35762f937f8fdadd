package table

import (
	"bytes"

	"carillon/shard/table/content"
	"carillon/timer"
	"carillon/timer/encoding"

	"github.com/cespare/xxhash/v2"
)

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
	id := t.viewOf(h).ID
	if len(id) > 0 && id[0] == '{' {
		if end := bytes.IndexByte(id, '}'); end > 0 {
			id = id[1:end]
		}
	}
	return hashOf(id)
}

// Keyed reports whether a timer's id names its key.
func (t *timers) Keyed(h timer.Handle) bool {
	id := t.viewOf(h).ID
	return len(id) > 0 && id[0] == '{' && bytes.IndexByte(id, '}') > 0
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
