package table

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"carillon/shard/table/content"
	"carillon/shard/table/slab"
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
// when Codec.Timer's layout does.
const historyVersion = 1

// Flags of an end event.
const (
	historyByAttempt = 1 // the last attempt ended the timer
	historyContent   = 2 // the content hash of the timer's add or put follows
)

// events collects the history events of an entry. It is not replicated state.
type events struct {
	kept      bool // the table has a history
	list      []HistoryEvent
	ends      []int // ends of each event's id and body in buf, alternating
	buf       []byte
	byAttempt bool // an attempt's outcome is being applied
}

// KeepHistory makes the table collect events from now on.
func (e *events) KeepHistory() { e.kept = true }

// TakeHistory returns the events since the last call. They are valid until the next entry is
// applied.
func (e *events) TakeHistory() []HistoryEvent {
	if len(e.list) == 0 {
		return nil
	}
	from := 0
	for i := range e.list {
		id, body := e.ends[2*i], e.ends[2*i+1]
		e.list[i].ID, e.list[i].Body = e.buf[from:id:id], e.buf[id:body:body]
		from = body
	}
	list := e.list
	e.list, e.ends = e.list[:0], e.ends[:0]
	if cap(e.buf) > 4<<20 { // do not keep a buffer that grew for large payloads
		e.buf = nil
	}
	e.buf = e.buf[:0]
	return list
}

// open adds an event of a timer with an open update. The caller appends its body to buf and then
// calls close. It returns false if nobody reads the timer's events.
func (e *events) open(t *timers, s *slab.Slot, state timer.State, endMs int64) bool {
	topic := t.topics.rows[s.Topic].id
	if !e.kept || topic == CanaryTopic {
		return false
	}
	e.list = append(e.list, HistoryEvent{Item: uint32(len(e.list)), Topic: topic, Seq: s.Seq(), State: state, EndMs: endMs})
	e.buf = append(e.buf, t.content.View(s.Ref).ID...)
	e.ends = append(e.ends, len(e.buf))
	return true
}

func (e *events) close() { e.ends = append(e.ends, len(e.buf)) }

// addEnd adds the end event of a timer with an open update, with a full copy of the timer.
func (e *events) addEnd(t *timers, h timer.Handle, s *slab.Slot) {
	r := t.attempts.At(s.Attempt)
	if !e.open(t, s, s.State(), r.EndedMs()) {
		return
	}
	flags := encoding.Flag(e.byAttempt, historyByAttempt)
	v := t.content.View(s.Ref)
	e.buf = binary.LittleEndian.AppendUint64(append(e.buf, historyVersion, flags|historyContent), v.Content)
	e.buf = t.appendTimerAt(e.buf, h, s, r, &v)
	e.close()
}

// appendTimerAt writes an ended timer in the layout of Codec.Timer without making a copy. The
// timer's successor must have been taken from it before.
func (t *timers) appendTimerAt(dst []byte, h timer.Handle, s *slab.Slot, r *slab.Attempt, v *content.Blob) []byte {
	dst = encoding.AppendUvarints(dst, uint64(t.topics.rows[s.Topic].id), uint64(len(v.ID)))
	dst, at := encoding.OpenBlock(append(dst, v.ID...))
	dst = binary.AppendVarint(dst, r.DueMs)
	callback := t.content.EncodedCallback(v.Target)
	dst = binary.AppendUvarint(dst, uint64(len(callback)))
	dst = append(append(dst, callback...), v.Rest...)
	a, collects := t.arrays[h]
	if collects {
		dst = t.content.AppendArray(append(dst, encoding.FieldJSONPayload), &a)
	}
	encoding.CloseBlock(dst, at)
	dst = binary.AppendUvarint(dst, s.Seq())
	dst = binary.LittleEndian.AppendUint32(dst, v.Tag)
	dst = binary.AppendUvarint(dst, uint64(v.Version))
	origin := t.originOf(s.Seq())
	flags := encoding.Flag(s.Cancelled(), encoding.TimerCancelRequested) | encoding.Flag(v.AskedMs != 0, encoding.TimerAsked) |
		encoding.Flag(collects, encoding.TimerCollects) | encoding.Flag(origin != 0, encoding.TimerOrigin)
	dst = append(dst, byte(s.State()), byte(s.Reason()), flags)
	dst = encoding.AppendVarints(dst, 0, v.CreatedMs, v.UpdatedMs, r.EndedMs(), r.FiredMs, r.Lateness, int64(s.Attempts()))
	dst = binary.AppendUvarint(dst, r.Fence)
	dst = binary.AppendVarint(dst, int64(r.Status))
	text, answer := t.content.Failure(r.ErrRef)
	dst = encoding.AppendFailure(dst, text, answer)
	if v.AskedMs != 0 {
		dst = binary.AppendVarint(dst, v.AskedMs)
	}
	if collects {
		dst = encoding.AppendCollected(dst, int(a.Count), a.Closed)
	}
	if origin != 0 {
		dst = binary.AppendUvarint(dst, uint64(origin))
	}
	return dst
}

// addAttempt adds the event of an attempt after which its timer continues. The timer's update is
// open. It must be called before the next attempt is leased.
func (e *events) addAttempt(t *timers, o *Outcome, s *slab.Slot, endedMs int64) {
	if o.Kind == Release || s.State().Over() || !e.open(t, s, 0, endedMs) {
		return
	}
	r := t.attempts.At(s.Attempt)
	text, answer := t.content.Failure(r.ErrRef)
	e.buf = appendAttempt(append(e.buf, historyVersion), s.Attempts(), r, endedMs, text, answer)
	e.close()
}

func appendAttempt(dst []byte, number int, r *slab.Attempt, endedMs int64, text, answer []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(number))
	dst = encoding.AppendVarints(dst, r.FiredMs, endedMs-r.FiredMs)
	dst = binary.AppendUvarint(dst, uint64(r.Status))
	return encoding.AppendFailure(dst, text, answer)
}

func readAttempt(r *encoding.Reader) timer.HistoryAttempt {
	a := timer.HistoryAttempt{Attempt: int(r.Number(encoding.MaxAttempt, "attempt")), StartedMs: r.Varint()}
	a.EndedMs = a.StartedMs + r.Varint()
	a.Status = int(r.Number(1<<16-1, "status"))
	a.Err, a.Answer = r.Failure()
	return a
}

// maxLog bounds the log of a timer's attempts, in bytes. One of them has less.
const maxLog = 4 << 10

// loggedAnswer is how many bytes of an answer are logged: maxLog has room for 20 attempts then,
// and a timer that is retried keeps its log in memory.
const loggedAnswer = 120

// logAttempt returns a copy of a log with one more attempt, with the beginning of what its receiver
// answered if that is text. If that is too large the oldest are left out. O(maxLog).
func logAttempt(log []byte, number int, r *slab.Attempt, endedMs int64, text string, answer *timer.Answer) []byte {
	var begins []byte
	if answer != nil && answer.Text() {
		begins = encoding.AppendAnswer(nil, &timer.Answer{Body: encoding.Cut(answer.Body, loggedAnswer)})
	}
	log = appendAttempt(bytes.Clone(log), number, r, endedMs, []byte(text), begins)
	kept := encoding.Reader{Rest: log}
	for len(kept.Rest) > maxLog {
		readAttempt(&kept)
	}
	return kept.Rest
}

// DecodeHistoryEnd reads the body of an end event. If the last attempt ended the timer, it is the
// only one in the entry's attempts (see Join); otherwise there is none.
func DecodeHistoryEnd(body []byte) (*timer.HistoryEntry, error) {
	c, err := openHistory(body)
	if err != nil {
		return nil, err
	}
	e := &timer.HistoryEntry{Timer: new(timer.Timer)}
	var content bool
	if c.Flags("an end", &e.ByAttempt, &content); content {
		c.Fixed64(&e.Content)
	}
	if c.Timer(e.Timer); c.Fault == "" && !e.Timer.State.Over() {
		c.Fail("timer has not ended")
	}
	if err := c.Close(); err != nil {
		return nil, err
	}
	if t := e.Timer; e.ByAttempt {
		e.Attempts = []timer.HistoryAttempt{{Attempt: t.Attempts, StartedMs: t.FiredMs, EndedMs: t.EndedMs, Status: t.LastStatus, Err: t.LastError, Answer: t.LastAnswer}}
	}
	return e, nil
}

// DecodeHistoryAttempt reads the body of an attempt event.
func DecodeHistoryAttempt(body []byte) (timer.HistoryAttempt, error) {
	c, err := openHistory(body)
	if err != nil {
		return timer.HistoryAttempt{}, err
	}
	a := readAttempt(&c.Reader)
	return a, c.Close()
}

func openHistory(body []byte) (encoding.Codec, error) {
	c := encoding.Reading(body)
	if v := c.Byte(); v != historyVersion {
		c.Fail(fmt.Sprintf("version %d of an event", v))
	}
	return c, c.Err()
}
