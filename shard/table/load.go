package table

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"carillon/internal/feature"
	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Bounds of the parts of a snapshot. A part takes memory as it is read, so a bound may be large.
const (
	maxTopics = 1<<32 - 1      // that are closed, or have a delivery: an id of a topic has 32 bits
	maxStart  = 32 * maxTopics // bytes; see appendStart
	maxBody   = 1<<21 - 1
)

// loader builds a table from a snapshot. After the first fault every value reads as zero.
type loader struct {
	r       *bufio.Reader
	t       *Table
	err     error
	hash    uint64 // from the header
	records timer.Handle
	unused  int
	lastSeq uint64
	// foreignOver counts the foreign timers that are done or cancelled.
	foreignOver int64
	targets     map[uint32][]byte // by the row of the writer
	version     byte
	child       *leavingHalf // only its timers are loaded; nil: all are
	scratch     []byte       // for blocks that do not fit into the reader's buffer
}

// Load reads a snapshot and returns a table with the same state and hash. Damage that the checks of
// the format do not find shows as a different hash.
func Load(id timer.ShardID, r io.Reader) (*Table, error) {
	l := loader{r: bufio.NewReaderSize(r, 64<<10), targets: map[uint32][]byte{}}
	l.header(id)
	l.load()
	if l.err == nil {
		if hash := l.t.Hash(); hash != l.hash {
			l.fail("state hash is %016x, the header says %016x", hash, l.hash)
		}
	}
	if l.err != nil {
		return nil, fmt.Errorf("shard: load snapshot of shard %d: %w", id, l.err)
	}
	return l.t, nil
}

// load reads the records. The slots are packed at once if Pack would be worth it then: thus a free
// handle never costs more memory than it does packed.
func (l *loader) load() {
	if l.err == nil && l.t.slots.CanPack() {
		l.t.slots.LoadPacked()
	}
	for l.err == nil && l.record() {
	}
	if l.err == nil {
		l.finish()
	}
}

func (l *loader) fail(format string, args ...any) {
	l.failed(fmt.Errorf("%w: %s", encoding.ErrFormat, fmt.Sprintf(format, args...)))
}

// tooNew is fail for values that only a newer build can have written. Damage is excluded because
// the file around a snapshot has checksums.
func (l *loader) tooNew(format string, args ...any) {
	l.failed(fmt.Errorf("%w: %w: %s", encoding.ErrFormat, feature.ErrNewer, fmt.Sprintf(format, args...)))
}

func (l *loader) failed(err error) {
	if l.err != nil {
		return
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		l.fail("ends early")
		return
	}
	l.err = err
}

func (l *loader) byte() byte {
	if l.err != nil {
		return 0
	}
	b, err := l.r.ReadByte()
	if err != nil {
		l.failed(err)
	}
	return b
}

func (l *loader) number(limit uint64, what string) uint64 {
	if l.err != nil {
		return 0
	}
	b, err := l.r.Peek(binary.MaxVarintLen64)
	v, n := binary.Uvarint(b)
	switch {
	case n == 0:
		l.failed(err)
		return 0
	case n < 0:
		l.fail("%s overflows", what)
		return 0
	case v > limit:
		l.fail("%s %d, at most %d", what, v, limit)
		return 0
	}
	_, _ = l.r.Discard(n)
	return v
}

func (l *loader) signed() int64 {
	u := l.number(1<<64-1, "number")
	return int64(u>>1) ^ -int64(u&1)
}

// bytes reads n bytes, which are valid until the next read. It allocates only as the bytes arrive,
// so a damaged length cannot exhaust memory.
func (l *loader) bytes(n int) []byte {
	if l.err != nil {
		return nil
	}
	if n <= l.r.Size() {
		b, err := l.r.Peek(n)
		if err != nil {
			l.failed(err)
			return nil
		}
		_, _ = l.r.Discard(n)
		return b
	}
	read := bytes.NewBuffer(l.scratch[:0])
	if _, err := io.CopyN(read, l.r, int64(n)); err != nil {
		l.failed(err)
		return nil
	}
	l.scratch = read.Bytes()
	return l.scratch
}

func (l *loader) header(id timer.ShardID) {
	if string(l.bytes(4)) != snapshotMagic {
		l.fail("not a table snapshot")
	}
	if l.version = l.byte(); l.version < noDeliveries || l.version > snapshotVersion {
		l.tooNew("version %d, this build reads %d to %d", l.version, noDeliveries, snapshotVersion)
	}
	if got := timer.ShardID(l.number(1<<32-1, "shard")); got != id {
		l.fail("it is of shard %d", got)
	}
	clock := int64(l.number(timer.MaxMs, "clock"))
	t := New(id, clock)
	l.t = t
	t.clockMs = clock
	t.seq = l.number(timer.MaxMs, "sequence")
	l.lastSeq = t.seq
	t.fence = l.number(1<<64-1, "fence")
	t.slots.High = timer.Handle(l.number(encoding.MaxHandle, "highest handle"))
	high := uint64(t.slots.High)
	t.slots.Free = timer.Handle(l.number(high, "first free"))
	t.slots.Unused = int(l.number(high, "free slots"))
	t.finished.oldest = timer.Handle(l.number(high, "oldest finished"))
	t.finished.newest = timer.Handle(l.number(high, "newest finished"))
	t.finished.bytes = int64(l.number(1<<62, "finished bytes"))
	l.closed()
	l.leaderships()
	t.restamped = timer.Handle(l.number(uint64(noRestamp), "last restamped"))
	if l.version > noDeliveries {
		l.deliveries()
	}
	if l.version > neverRestored {
		t.leastVersion = uint32(l.number(1<<32-1, "least version"))
	}
	if l.version > neverDivided {
		l.division()
	}
	if v := l.byte(); l.err == nil && v != HashVersion {
		l.tooNew("state hash of version %d, this build knows %d", v, HashVersion)
	}
	if b := l.bytes(8); b != nil {
		l.hash = binary.LittleEndian.Uint64(b)
	}
}

func (l *loader) closed() {
	for n := l.number(maxTopics, "closed topics"); n > 0 && l.err == nil; n-- {
		topic := timer.TopicID(l.number(1<<32-1, "topic"))
		if l.t.Closed(topic) {
			l.fail("topic %d is closed twice", topic)
		}
		l.t.closedTopics.add(tombstone{topic, int64(l.number(timer.MaxMs, "closing time"))})
	}
}

func (l *loader) leaderships() {
	for n := l.number(maxLeaderships, "reigns"); n > 0 && l.err == nil; n-- {
		from := l.number(1<<64-1, "first fence")
		l.t.terms = append(l.t.terms, leadership{from, l.number(1<<64-1, "owner")})
	}
}

func (l *loader) deliveries() {
	for n := l.number(maxTopics, "deliveries"); n > 0 && l.err == nil; n-- {
		topic := timer.TopicID(l.number(1<<32-1, "topic"))
		word := l.number(1<<33-1, "delivery")
		d := delivery{turn: uint32(word >> 1), pull: word&1 != 0}
		if _, twice := l.t.deliveries.find(topic); twice {
			l.fail("topic %d has two deliveries", topic)
		}
		l.t.deliveries.set(topic, d)
	}
}

// record reads one record. It returns false at the end.
func (l *loader) record() bool {
	switch kind := l.byte(); kind {
	case recordTarget:
		row := uint32(l.number(1<<32-1, "target"))
		b := l.bytes(int(l.number(encoding.MaxCallback, "callback")))
		if err := encoding.CheckCallback(b); err != nil {
			l.fail("callback: %v", err)
		}
		l.targets[row] = append([]byte(nil), b...)
	case recordTimer, recordRun:
		l.timer(kind == recordRun)
	case recordFree:
		h := l.slot()
		next := timer.Handle(l.number(uint64(l.t.slots.High), "next free"))
		if l.err == nil {
			l.t.slots.LoadFree(h, next)
			l.unused++
		}
	case recordSuccessor:
		l.successor()
	case recordArray:
		l.array()
	case recordAttempts:
		l.attempts()
	case recordEnd:
		if n := l.number(encoding.MaxHandle, "slots"); l.err == nil && timer.Handle(n) != l.t.slots.High {
			l.fail("ends with %d slots, the header says %d", n, l.t.slots.High)
		}
		return false
	default:
		l.fail("record of kind %d", kind)
	}
	return l.err == nil
}

// slot reads a handle, which must be new, and makes room for its slot.
func (l *loader) slot() timer.Handle {
	h := timer.Handle(l.number(uint64(l.t.slots.High), "handle"))
	if l.err == nil && h == 0 {
		l.fail("handle 0")
	}
	if l.err != nil {
		return 0
	}
	l.t.slots.Extend(h)
	if l.t.slots.Loaded(h) {
		l.fail("handle %d comes twice", h)
	}
	l.records++
	return h
}

func (l *loader) timer(hasRun bool) {
	t := l.t
	h := l.slot()
	seq := l.number(l.lastSeq, "sequence")
	attempts := l.number(slab.LowMask, "attempts")
	when := l.number(timer.MaxMs, "time")
	marks := l.number(slab.LowMask, "marks")
	topic := timer.TopicID(l.number(1<<32-1, "topic"))
	rev := l.number(1<<32-1, "revision")
	target := uint32(l.number(1<<32-1, "target"))
	v := content.Blob{Flags: l.byte()}
	body := l.bytes(int(l.number(maxBody, "body")))
	if l.err != nil {
		return
	}
	made := slab.Made(seq, attempts, when, marks, uint32(rev))
	l.check(&made, &v, body, hasRun, target)
	if l.err != nil {
		return
	}
	if l.child != nil && !l.child.has(h) {
		l.fail("handle %d is not the child's", h)
		return
	}
	callback := l.targets[target]
	v.Target = t.content.Intern(callback)
	made.Topic = t.topics.retain(topic)
	made.Ref = t.content.Put(h, &v)
	t.naming.read(h, v.Rest)
	if hasRun {
		l.run(h, &made)
	}
	if made.Chained() {
		newer := timer.Handle(l.number(uint64(t.slots.High), "newer of an id"))
		t.chains[h] = link{newer: newer, older: timer.Handle(l.number(uint64(t.slots.High), "older of an id"))}
	}
	t.slots.Load(h, &made)
}

// check compares a timer's parts with the table's invariants and decodes its body.
func (l *loader) check(s *slab.Slot, v *content.Blob, body []byte, hasRun bool, target uint32) {
	state := s.State()
	if !s.Valid() || s.Rev == 0 {
		l.fail("state %d, marks %x, revision %d", state, s.Marks(), s.Rev)
	}
	if !hasRun && (state != timer.Scheduled || s.Attempts() != 0) {
		l.fail("no run in state %d after %d attempts", state, s.Attempts())
	}
	f := l.checkBlob(v, body, target)
	if l.err == nil && (f.Priority != s.Priority() || v.Flags&content.HasDue != 0 || f.Repeats != (v.Flags&content.IsSeries != 0)) {
		l.fail("priority %d, the slot says %d; flags %x", f.Priority, s.Priority(), v.Flags)
	}
}

func (l *loader) checkBlob(v *content.Blob, body []byte, target uint32) (f encoding.Summary) {
	if (target != 0) != (v.Flags&content.HasTarget != 0) || target != 0 && l.targets[target] == nil {
		l.fail("target %d is not defined", target)
	}
	if l.err == nil {
		l.err = v.Check(body)
	}
	if l.err != nil {
		return f
	}
	v.Decode(body)
	f, err := encoding.Summarize(v.Rest)
	if err != nil {
		l.fail("spec: %v", err)
	}
	return f
}

func (l *loader) successor() {
	t := l.t
	h := timer.Handle(l.number(uint64(t.slots.High), "handle"))
	target := uint32(l.number(1<<32-1, "target"))
	v := content.Blob{Flags: l.byte()}
	body := l.bytes(int(l.number(maxBody, "body")))
	if l.err != nil {
		return
	}
	t.slots.Extend(h)
	s := t.slots.At(h)
	if s.State() != timer.Leased || t.attempts.At(s.Attempt).Successor != 0 || v.Flags&content.HasDue == 0 {
		l.fail("handle %d can have no successor", h)
	}
	if l.checkBlob(&v, body, target); l.err != nil {
		return
	}
	v.Target = t.content.Intern(l.targets[target])
	t.attempts.At(s.Attempt).Successor = t.content.Put(h, &v)
}

// array reads the array of a timer, and whether that waits behind another. The chain is checked in
// the end.
func (l *loader) array() {
	t := l.t
	h := timer.Handle(l.number(uint64(t.slots.High), "handle"))
	flags := l.byte()
	if l.err != nil {
		return
	}
	t.slots.Extend(h)
	s := t.slots.At(h)
	_, twice := t.arrays[h]
	if s.State() == 0 || twice || flags&^arrayFlags != 0 || flags&arrayBehind != 0 && !s.Chained() {
		l.fail("handle %d can have no array", h)
		return
	}
	if flags&arrayBehind != 0 {
		n := t.chains[h]
		n.behind = true
		t.chains[h] = n
	}
	if flags&arrayCollects == 0 {
		return
	}
	count := uint32(l.number(timer.MaxCollectMax, "count"))
	payloads := bytes.Clone(l.bytes(int(l.number(maxBody, "payloads"))))
	names := l.bytes(int(l.number(maxBody, "names")))
	v := t.content.View(s.Ref)
	switch {
	case l.err != nil:
		return
	case (count == 0) != (len(payloads) == 0) || count > 0 && payloads[0] != '[' || encoding.PayloadIn(v.Rest) != nil || !content.WellFormedNames(names):
		l.fail("array of handle %d is broken", h)
		return
	}
	a := t.content.LoadArray(h, payloads, names, count, flags&arrayClosed != 0)
	t.arrays[h] = a
	topic := t.topics.rows[s.Topic].id
	for name := range t.content.Names(&a) {
		key := t.partHash(topic, v.ID, name)
		if other, twice := t.parts[key]; twice {
			l.fail("handles %d and %d have one part", other, h)
		}
		t.parts[key] = h
	}
}

func (l *loader) attempts() {
	t := l.t
	h := timer.Handle(l.number(uint64(t.slots.High), "handle"))
	log := encoding.Reader{Rest: bytes.Clone(l.bytes(int(l.number(maxLog, "attempts"))))}
	if l.err != nil {
		return
	}
	t.slots.Extend(h)
	s := t.slots.At(h)
	if s.Attempt == 0 || s.State().Over() || len(log.Rest) == 0 || len(t.content.Attempts(t.attempts.At(s.Attempt).ErrRef)) > 0 {
		l.fail("handle %d can have no log of attempts", h)
		return
	}
	r, all := t.attempts.At(s.Attempt), log.Rest
	for len(log.Rest) > 0 && log.Fault == "" {
		readAttempt(&log)
	}
	if log.Fault != "" {
		l.fail("attempts of handle %d: %s", h, log.Fault)
		return
	}
	text, answer := t.content.Failure(r.ErrRef)
	r.ErrRef = t.content.SetError(h, r.ErrRef, string(text), bytes.Clone(answer), all)
}

func (l *loader) run(h timer.Handle, s *slab.Slot) {
	t := l.t
	s.Attempt = t.attempts.Take()
	r := t.attempts.At(s.Attempt)
	high := uint64(t.slots.High)
	r.Fence = l.number(1<<64-1, "fence")
	r.DueMs = l.signed()
	r.SetEndedMs(l.signed())
	r.FiredMs, r.Lateness = l.signed(), l.signed()
	r.Newer, r.Older = uint32(l.number(high, "newer finished")), uint32(l.number(high, "older finished"))
	r.Status = uint16(l.number(1<<16-1, "status"))
	r.DurMs = uint32(l.number(1<<32-1, "length of the lease"))
	r.Holder = Holder(l.number(uint64(slab.ByReport), "holder of the lease"))
	n := int(l.number(encoding.MaxErr|encoding.AnswerFollows, "error text"))
	if n&^encoding.AnswerFollows > encoding.MaxErr {
		l.fail("error text of handle %d is too long", h)
	}
	text := string(l.bytes(n &^ encoding.AnswerFollows))
	var answer []byte
	if n&encoding.AnswerFollows != 0 && l.err == nil {
		answer = l.bytes(int(l.number(encoding.MaxAnswer, "answer")))
		if a, err := encoding.DecodeAnswer(answer); l.err == nil && (err != nil || a == nil) {
			l.fail("answer of handle %d cannot be read", h)
		}
	}
	r.ErrRef = t.content.SetError(h, 0, text, answer, nil)
}
