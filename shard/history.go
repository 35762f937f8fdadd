package shard

import (
	"cmp"
	"encoding/binary"
	"fmt"
)

// History is told what became of timers, on every live replica and in the order in which entries are applied; a restart tells
// again what the log still has. Calls come from several workers, one shard always from the same.
type History interface {
	// Record takes the events of one applied entry. What they point to is the caller's again when it returns. It must not block.
	Record(id ID, index uint64, events []HistoryEvent)
}

// HistoryEvent is an attempt after which a timer went on, or the end of a timer. Shard, entry and Item name it for ever, and are
// the same on all replicas.
type HistoryEvent struct {
	Item  uint32 // number of the event in its entry
	Topic TopicID
	Seq   uint64
	State State // Done, Dead or Cancelled; 0: an attempt that ended nothing
	EndMs int64 // of the timer, or of the attempt
	ID    []byte
	Body  []byte // see DecodeHistoryEnd and DecodeHistoryAttempt
}

// historyVersion leads the body of an event (docs/formats/history.md). It must change when appendTimer's layout does.
const historyVersion = 1

// Flags of an end.
const (
	historyByAttempt = 1 // the last attempt is what ended the timer
	historyContent   = 2 // the hash of what its add or put said follows
)

// HistoryKey is a place in a topic's history: by the end, then by the entry that made it.
type HistoryKey struct {
	EndMs int64
	Index uint64
	Shard ID
	Item  uint32
}

// Compare orders two keys.
func (k HistoryKey) Compare(o HistoryKey) int {
	return cmp.Or(cmp.Compare(k.EndMs, o.EndMs), cmp.Compare(k.Index, o.Index), cmp.Compare(k.Shard, o.Shard), cmp.Compare(k.Item, o.Item))
}

// HistoryAttempt is how one attempt went.
type HistoryAttempt struct {
	Attempt            int
	StartedMs, EndedMs int64
	Status             int // 0 none
	Err                string
}

// HistoryEntry is a timer that has ended, as it was then, and its attempts, oldest first.
type HistoryEntry struct {
	Key       HistoryKey
	Timer     *Timer
	ByAttempt bool // its last attempt is what ended it
	Attempts  []HistoryAttempt
	Content   uint64 // Command.Content of the add or put that it is of; 0: not known. It stays on the node that keeps the entry
}

// HistoryQuery selects entries of one topic, in the order of their keys.
type HistoryQuery struct {
	Topic        TopicID
	Shards       []ID   // of these shards only, in rising order; none: of all
	ID           string // of this timer only; "" any
	Content      uint64 // goes with ID and Newest: the last that an add with this content made, of the id's last ContentDepth ends; 0 any
	States       uint8  // bit 1<<State, of Done, Dead, Cancelled
	FromMs, ToMs int64  // of the end, [FromMs, ToMs); ToMs 0 = open
	After        *HistoryKey
	Newest       bool // the last one alone
	Kept         bool // between nodes: what the one that is asked keeps of shards that it does not lead
	Limit        int
}

// ContentDepth is how many ends of an id are looked through for a content: an id that is used again and again has no end of them.
const ContentDepth = 64

// chronicle gathers what an entry does to timers, for the history. Nothing of it is replicated state.
type chronicle struct {
	events    []HistoryEvent
	ends      []int // of each event's id and body in buf, in turn
	buf       []byte
	byAttempt bool // an attempt's outcome is being applied
}

// tell has the table gather events from here on.
func (t *Table) tell() {
	if t.story == nil {
		t.story = &chronicle{}
	}
}

// told gives the events since the last call. They are valid until the next entry is applied.
func (t *Table) told() []HistoryEvent {
	c := t.story
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
	if cap(c.buf) > 4<<20 { // an entry of large payloads need not stay
		c.buf = nil
	}
	c.buf = c.buf[:0]
	return events
}

// note adds an event; its body follows in buf, up to sealed.
func (c *chronicle) note(e HistoryEvent, id []byte) {
	e.Item = uint32(len(c.events))
	c.events = append(c.events, e)
	c.buf = append(c.buf, id...)
	c.ends = append(c.ends, len(c.buf))
}

func (c *chronicle) sealed() { c.ends = append(c.ends, len(c.buf)) }

// tellEnd notes that a touched timer has ended, with all that it was.
func (t *Table) tellEnd(h Handle, s *slot) {
	c := t.story
	if c == nil {
		return
	}
	topic := t.topics.rows[s.topic].id
	if topic == canaryTopic {
		return
	}
	v := t.view(s.ref)
	r := t.runs.at(s.run)
	c.note(HistoryEvent{Topic: topic, Seq: s.seq(), State: s.state(), EndMs: r.nextEnd}, v.id)
	var flags byte
	if c.byAttempt {
		flags |= historyByAttempt
	}
	c.buf = binary.LittleEndian.AppendUint64(append(c.buf, historyVersion, flags|historyContent), v.content)
	c.buf = t.appendTimerAt(c.buf, s, r, &v)
	c.sealed()
}

// appendTimerAt writes a timer that has ended as appendTimer writes its copy, without making one. Its successor was taken from it before.
func (t *Table) appendTimerAt(dst []byte, s *slot, r *run, v *blob) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.topics.rows[s.topic].id))
	dst = binary.AppendUvarint(dst, uint64(len(v.id)))
	dst, at := openBlock(append(dst, v.id...))
	dst = binary.AppendVarint(dst, r.dueMs)
	var callback []byte
	if v.target != 0 {
		callback = t.targets.at(v.target).bytes(&t.blobs)
	}
	dst = binary.AppendUvarint(dst, uint64(len(callback)))
	dst = append(append(dst, callback...), v.rest...)
	closeBlock(dst, at)
	dst = binary.AppendUvarint(dst, s.seq())
	dst = binary.LittleEndian.AppendUint32(dst, v.tag)
	dst = binary.AppendUvarint(dst, uint64(v.version))
	var flags byte
	if s.cancelled() {
		flags |= timerCancelRequested
	}
	dst = append(dst, byte(s.state()), byte(s.reason()), flags)
	for _, ms := range [...]int64{0, v.createdMs, v.updatedMs, r.nextEnd, r.firedMs, r.lateness, int64(s.attempts())} {
		dst = binary.AppendVarint(dst, ms)
	}
	dst = binary.AppendUvarint(dst, r.fence)
	dst = binary.AppendVarint(dst, int64(r.status))
	text := t.errorText(r)
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// tellAttempt notes an attempt after which its touched timer goes on. It must be told before the next one is leased.
func (t *Table) tellAttempt(o *Outcome, s *slot) {
	c := t.story
	if c == nil || o.Kind == Release || s.state().Over() {
		return
	}
	topic := t.topics.rows[s.topic].id
	if topic == canaryTopic {
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

// DecodeHistoryEnd reads the body of a timer's end. The entry's attempts are the last one alone, if it is what ended the timer: see Join.
func DecodeHistoryEnd(body []byte) (*HistoryEntry, error) {
	r, err := openHistory(body)
	if err != nil {
		return nil, err
	}
	flags := r.byte()
	if flags&^(historyByAttempt|historyContent) != 0 {
		r.fail("unknown flags of an end")
	}
	e := &HistoryEntry{ByAttempt: flags&historyByAttempt != 0}
	if flags&historyContent != 0 {
		e.Content = r.u64()
	}
	e.Timer = r.timer()
	if r.fault == "" && !e.Timer.State.Over() {
		r.fail("timer has not ended")
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	if t := e.Timer; e.ByAttempt {
		e.Attempts = []HistoryAttempt{{Attempt: t.Attempts, StartedMs: t.FiredMs, EndedMs: t.EndedMs, Status: t.LastStatus, Err: t.LastError}}
	}
	return e, nil
}

// DecodeHistoryAttempt reads the body of an attempt.
func DecodeHistoryAttempt(body []byte) (HistoryAttempt, error) {
	r, err := openHistory(body)
	if err != nil {
		return HistoryAttempt{}, err
	}
	a := HistoryAttempt{Attempt: int(r.number(lowMask, "attempt")), StartedMs: r.varint()}
	a.EndedMs = a.StartedMs + r.varint()
	a.Status = int(r.number(1<<16-1, "status"))
	a.Err = string(r.block(maxErr, "error text"))
	return a, r.close()
}

func openHistory(body []byte) (reader, error) {
	r := reader{b: body}
	if v := r.byte(); v != historyVersion {
		r.fail(fmt.Sprintf("version %d of an event", v))
	}
	return r, r.err()
}

// Missing is how many attempts came before those that the entry has.
func (e *HistoryEntry) Missing() int { return e.Timer.Attempts - len(e.Attempts) }

// Join puts earlier attempts into the entry. Given are those of its timer that were applied before its end, oldest first: when the
// timer was replaced or driven again its attempts began anew, and what was before that is not this entry's.
func (e *HistoryEntry) Join(earlier []HistoryAttempt) {
	next := e.Missing()
	from := len(earlier)
	for from > 0 && earlier[from-1].Attempt <= next {
		from--
		next = earlier[from].Attempt - 1
	}
	e.Attempts = append(append([]HistoryAttempt(nil), earlier[from:]...), e.Attempts...)
}
