package table

import (
	"encoding/binary"
	"fmt"

	"carillon/timer"
	"carillon/timer/encoding"
)

// HistoryEvent is the end of a timer, or an attempt after which the timer continued. Shard, entry
// and Item identify it permanently and are the same on all replicas.
type HistoryEvent struct {
	Item  uint32 // number of the event in its entry
	Topic timer.TopicID
	Seq   uint64
	State timer.State // Done, Dead or Cancelled; 0: an attempt that did not end the timer
	EndMs int64       // end of the timer or of the attempt
	ID    []byte
	Body  []byte // see DecodeHistoryEnd and DecodeHistoryAttempt
}

// historyVersion is the first byte of an event's body (docs/formats/history.md). It must change
// when AppendTimer's layout does.
const historyVersion = 1

// Flags of an end event.
const (
	historyByAttempt = 1 // the last attempt ended the timer
	historyContent   = 2 // the content hash of the timer's add or put follows
)

// eventBuffer collects the history events of an entry. It is not replicated state.
type eventBuffer struct {
	events    []HistoryEvent
	ends      []int // ends of each event's id and body in buf, alternating
	buf       []byte
	byAttempt bool // an attempt's outcome is being applied
}

// KeepHistory makes the table collect events from now on.
func (t *Table) KeepHistory() {
	if t.events == nil {
		t.events = &eventBuffer{}
	}
}

// TakeHistory returns the events since the last call. They are valid until the next entry is
// applied.
func (t *Table) TakeHistory() []HistoryEvent {
	c := t.events
	if c == nil || len(c.events) == 0 {
		return nil
	}
	from := 0
	for i := range c.events {
		id, body := c.ends[2*i], c.ends[2*i+1]
		c.events[i].ID, c.events[i].Body = c.buf[from:id:id], c.buf[id:body:body]
		from = body
	}
	events := c.events
	c.events, c.ends = c.events[:0], c.ends[:0]
	if cap(c.buf) > 4<<20 { // do not keep a buffer that grew for large payloads
		c.buf = nil
	}
	c.buf = c.buf[:0]
	return events
}

// note adds an event. The caller appends its body to buf and then calls sealed.
func (c *eventBuffer) note(e HistoryEvent, id []byte) {
	e.Item = uint32(len(c.events))
	c.events = append(c.events, e)
	c.buf = append(c.buf, id...)
	c.ends = append(c.ends, len(c.buf))
}

func (c *eventBuffer) sealed() { c.ends = append(c.ends, len(c.buf)) }

// tellEnd adds the end event of a timer with an open update, with a full copy of the timer.
func (t *Table) tellEnd(h timer.Handle, s *slot) {
	c := t.events
	if c == nil {
		return
	}
	topic := t.topics.rows[s.topic].id
	if topic == CanaryTopic {
		return
	}
	v := t.view(s.ref)
	r := t.runs.at(s.run)
	c.note(HistoryEvent{Topic: topic, Seq: s.seq(), State: s.state(), EndMs: r.endedMs()}, v.id)
	var flags byte
	if c.byAttempt {
		flags |= historyByAttempt
	}
	c.buf = binary.LittleEndian.AppendUint64(append(c.buf, historyVersion, flags|historyContent), v.content)
	c.buf = t.appendTimerAt(c.buf, s, r, &v)
	c.sealed()
}

// appendTimerAt writes an ended timer in the layout of AppendTimer without making a copy. The
// timer's successor must have been taken from it before.
func (t *Table) appendTimerAt(dst []byte, s *slot, r *attemptState, v *blob) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.topics.rows[s.topic].id))
	dst = binary.AppendUvarint(dst, uint64(len(v.id)))
	dst, at := encoding.OpenBlock(append(dst, v.id...))
	dst = binary.AppendVarint(dst, r.dueMs)
	var callback []byte
	if v.target != 0 {
		callback = t.targets.at(v.target).bytes(&t.blobs)
	}
	dst = binary.AppendUvarint(dst, uint64(len(callback)))
	dst = append(append(dst, callback...), v.rest...)
	encoding.CloseBlock(dst, at)
	dst = binary.AppendUvarint(dst, s.seq())
	dst = binary.LittleEndian.AppendUint32(dst, v.tag)
	dst = binary.AppendUvarint(dst, uint64(v.version))
	var flags byte
	if s.cancelled() {
		flags |= encoding.TimerCancelRequested
	}
	if v.askedMs != 0 {
		flags |= encoding.TimerAsked
	}
	dst = append(dst, byte(s.state()), byte(s.reason()), flags)
	for _, ms := range [...]int64{0, v.createdMs, v.updatedMs, r.endedMs(), r.firedMs, r.lateness, int64(s.attempts())} {
		dst = binary.AppendVarint(dst, ms)
	}
	dst = binary.AppendUvarint(dst, r.fence)
	dst = binary.AppendVarint(dst, int64(r.status))
	text := t.errorText(r)
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	dst = append(dst, text...)
	if v.askedMs != 0 {
		dst = binary.AppendVarint(dst, v.askedMs)
	}
	return dst
}

// tellAttempt adds the event of an attempt after which its timer continues. The timer's update is
// open. It must be called before the next attempt is leased.
func (t *Table) tellAttempt(o *Outcome, s *slot) {
	c := t.events
	if c == nil || o.Kind == Release || s.state().Over() {
		return
	}
	topic := t.topics.rows[s.topic].id
	if topic == CanaryTopic {
		return
	}
	v := t.view(s.ref)
	r := t.runs.at(s.run)
	ended := t.endMs(o)
	c.note(HistoryEvent{Topic: topic, Seq: s.seq(), EndMs: ended}, v.id)
	text := t.errorText(r)
	c.buf = binary.AppendUvarint(append(c.buf, historyVersion), uint64(s.attempts()))
	c.buf = binary.AppendVarint(c.buf, r.firedMs)
	c.buf = binary.AppendVarint(c.buf, ended-r.firedMs)
	c.buf = binary.AppendUvarint(c.buf, uint64(r.status))
	c.buf = binary.AppendUvarint(c.buf, uint64(len(text)))
	c.buf = append(c.buf, text...)
	c.sealed()
}

// DecodeHistoryEnd reads the body of an end event. If the last attempt ended the timer, it is the
// only one in the entry's attempts (see Join); otherwise there is none.
func DecodeHistoryEnd(body []byte) (*timer.HistoryEntry, error) {
	r, err := openHistory(body)
	if err != nil {
		return nil, err
	}
	flags := r.Byte()
	if flags&^(historyByAttempt|historyContent) != 0 {
		r.Fail("unknown flags of an end")
	}
	e := &timer.HistoryEntry{ByAttempt: flags&historyByAttempt != 0}
	if flags&historyContent != 0 {
		e.Content = r.U64()
	}
	e.Timer = r.Timer()
	if r.Fault == "" && !e.Timer.State.Over() {
		r.Fail("timer has not ended")
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	if t := e.Timer; e.ByAttempt {
		e.Attempts = []timer.HistoryAttempt{{Attempt: t.Attempts, StartedMs: t.FiredMs, EndedMs: t.EndedMs, Status: t.LastStatus, Err: t.LastError}}
	}
	return e, nil
}

// DecodeHistoryAttempt reads the body of an attempt event.
func DecodeHistoryAttempt(body []byte) (timer.HistoryAttempt, error) {
	r, err := openHistory(body)
	if err != nil {
		return timer.HistoryAttempt{}, err
	}
	a := timer.HistoryAttempt{Attempt: int(r.Number(encoding.MaxAttempt, "attempt")), StartedMs: r.Varint()}
	a.EndedMs = a.StartedMs + r.Varint()
	a.Status = int(r.Number(1<<16-1, "status"))
	a.Err = string(r.Block(encoding.MaxErr, "error text"))
	return a, r.Close()
}

func openHistory(body []byte) (encoding.Reader, error) {
	r := encoding.Reader{Rest: body}
	if v := r.Byte(); v != historyVersion {
		r.Fail(fmt.Sprintf("version %d of an event", v))
	}
	return r, r.Err()
}
