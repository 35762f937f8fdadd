package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"carillon/internal/feature"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Bounds of the parts of a snapshot.
const (
	maxClosedTopics = 1 << 20
	maxBody         = 1<<21 - 1
)

// loader builds a table from a snapshot. After the first fault every value reads as zero.
type loader struct {
	r       io.Reader
	buf     []byte
	unread  []byte // of buf
	t       *Table
	err     error
	hash    uint64 // from the header
	records timer.Handle
	unused  int
	targets map[uint32][]byte // by the row of the writer
	version byte
	scratch []byte // for blocks that do not fit into buf
}

// Load reads a snapshot and returns a table with the same state and hash. Damage that the checks of
// the format do not find shows as a different hash.
func Load(id timer.ShardID, r io.Reader) (*Table, error) {
	l := loader{r: r, buf: make([]byte, 64<<10), targets: map[uint32][]byte{}}
	l.header(id)
	for l.err == nil && l.record() {
	}
	if l.err == nil {
		l.finish()
	}
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

func (l *loader) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %s", encoding.ErrFormat, fmt.Sprintf(format, args...))
	}
}

// tooNew is fail for values that only a newer build can have written. Damage is excluded because
// the file around a snapshot has checksums.
func (l *loader) tooNew(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w: %s", encoding.ErrFormat, feature.ErrNewer, fmt.Sprintf(format, args...))
	}
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

// more reads until unread has at least n bytes, where n is at most the size of buf. It returns
// false if there are fewer.
func (l *loader) more(n int) bool {
	if l.err != nil || len(l.unread) >= n {
		return l.err == nil
	}
	at := copy(l.buf, l.unread)
	m, err := io.ReadAtLeast(l.r, l.buf[at:], n-at)
	l.unread = l.buf[:at+m]
	if err != nil {
		l.failed(err)
	}
	return l.err == nil
}

func (l *loader) byte() byte {
	if !l.more(1) {
		return 0
	}
	b := l.unread[0]
	l.unread = l.unread[1:]
	return b
}

func (l *loader) number(limit uint64, what string) uint64 {
	if l.err != nil {
		return 0
	}
	v, n := binary.Uvarint(l.unread)
	for n == 0 && l.more(len(l.unread)+1) {
		v, n = binary.Uvarint(l.unread)
	}
	switch {
	case l.err != nil:
		return 0
	case n < 0:
		l.fail("%s overflows", what)
		return 0
	case v > limit:
		l.fail("%s %d, at most %d", what, v, limit)
		return 0
	}
	l.unread = l.unread[n:]
	return v
}

func (l *loader) signed() int64 {
	u := l.number(1<<64-1, "number")
	return int64(u>>1) ^ -int64(u&1)
}

// bytes reads n bytes, which are valid until the next read. It allocates only as the bytes arrive,
// so a damaged length cannot exhaust memory.
func (l *loader) bytes(n int) []byte {
	if n <= len(l.buf) {
		if !l.more(n) {
			return nil
		}
		b := l.unread[:n]
		l.unread = l.unread[n:]
		return b
	}
	l.scratch = l.scratch[:0]
	for len(l.scratch) < n && l.more(1) {
		m := min(n-len(l.scratch), len(l.unread))
		l.scratch = append(l.scratch, l.unread[:m]...)
		l.unread = l.unread[m:]
	}
	if l.err != nil {
		return nil
	}
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
	t.fence = l.number(1<<64-1, "fence")
	t.slab.high = timer.Handle(l.number(encoding.MaxHandle, "highest handle"))
	high := uint64(t.slab.high)
	t.slab.free = timer.Handle(l.number(high, "first free"))
	t.slab.unused = int(l.number(high, "free slots"))
	t.finished.oldest = timer.Handle(l.number(high, "oldest finished"))
	t.finished.newest = timer.Handle(l.number(high, "newest finished"))
	t.finished.bytes = int64(l.number(1<<62, "finished bytes"))
	for n := l.number(maxClosedTopics, "closed topics"); n > 0 && l.err == nil; n-- {
		topic := timer.TopicID(l.number(1<<32-1, "topic"))
		if t.Closed(topic) {
			l.fail("topic %d is closed twice", topic)
		}
		t.addClosed(tombstone{topic, int64(l.number(timer.MaxMs, "closing time"))})
	}
	for n := l.number(maxLeaderships, "reigns"); n > 0 && l.err == nil; n-- {
		from := l.number(1<<64-1, "first fence")
		t.leaderships = append(t.leaderships, leadership{from, l.number(1<<64-1, "owner")})
	}
	t.restamped = timer.Handle(l.number(uint64(noRestamp), "last restamped"))
	if l.version > noDeliveries {
		l.deliveries()
	}
	if l.version > neverRestored {
		t.leastVersion = uint32(l.number(1<<32-1, "least version"))
	}
	if v := l.byte(); l.err == nil && v != HashVersion {
		l.tooNew("state hash of version %d, this build knows %d", v, HashVersion)
	}
	if b := l.bytes(8); b != nil {
		l.hash = binary.LittleEndian.Uint64(b)
	}
}

func (l *loader) deliveries() {
	for n := l.number(maxClosedTopics, "deliveries"); n > 0 && l.err == nil; n-- {
		topic := timer.TopicID(l.number(1<<32-1, "topic"))
		word := l.number(1<<33-1, "delivery")
		d := delivery{turn: uint32(word >> 1), pull: word&1 != 0}
		if _, twice := l.t.deliveries[topic]; twice {
			l.fail("topic %d has two deliveries", topic)
		}
		l.t.setDelivery(topic, d)
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
		h, s := l.slot()
		next := uint32(l.number(uint64(l.t.slab.high), "next free"))
		if l.err == nil {
			*s = slot{ref: next, rev: 1} // rev 1 marks the slot as seen until finish
			l.unused++
			_ = h
		}
	case recordSuccessor:
		l.successor()
	case recordEnd:
		if n := l.number(encoding.MaxHandle, "slots"); l.err == nil && timer.Handle(n) != l.t.slab.high {
			l.fail("ends with %d slots, the header says %d", n, l.t.slab.high)
		}
		return false
	default:
		l.fail("record of kind %d", kind)
	}
	return l.err == nil
}

// slot reads a handle and returns its slot. The handle must be new.
func (l *loader) slot() (timer.Handle, *slot) {
	h := timer.Handle(l.number(uint64(l.t.slab.high), "handle"))
	if l.err == nil && h == 0 {
		l.fail("handle 0")
	}
	if l.err != nil {
		return 0, nil
	}
	l.t.slab.extend(h)
	s := l.t.slab.at(h)
	if s.state() != 0 || s.rev != 0 {
		l.fail("handle %d comes twice", h)
	}
	l.records++
	return h, s
}

func (l *loader) timer(hasRun bool) {
	t := l.t
	h, s := l.slot()
	seq := l.number(t.seq, "sequence")
	attempts := l.number(lowMask, "attempts")
	when := l.number(timer.MaxMs, "time")
	marks := l.number(lowMask, "marks")
	topic := timer.TopicID(l.number(1<<32-1, "topic"))
	rev := l.number(1<<32-1, "revision")
	target := uint32(l.number(1<<32-1, "target"))
	v := blob{flags: l.byte()}
	body := l.bytes(int(l.number(maxBody, "body")))
	if l.err != nil {
		return
	}
	made := slot{seqAttempts: seq<<lowBits | attempts, whenMarks: when<<lowBits | marks, rev: uint32(rev)}
	l.check(&made, &v, body, hasRun, target)
	if l.err != nil {
		return
	}
	callback := l.targets[target]
	v.target = t.targets.intern(&t.blobs, callback)
	made.topic = t.topics.retain(topic)
	made.ref = t.putBlob(h, &v)
	if hasRun {
		l.run(h, &made)
	}
	if made.chained() {
		newer := timer.Handle(l.number(uint64(t.slab.high), "newer of an id"))
		t.chains[h] = link{newer: newer, older: timer.Handle(l.number(uint64(t.slab.high), "older of an id"))}
	}
	*s = made
}

// check compares a timer's parts with the table's invariants and decodes its body.
func (l *loader) check(s *slot, v *blob, body []byte, hasRun bool, target uint32) {
	state := s.state()
	if state < timer.Scheduled || state > timer.Cancelled || s.reason() > timer.Refused || s.rev == 0 {
		l.fail("state %d, reason %d, revision %d", state, s.reason(), s.rev)
	}
	if !hasRun && (state != timer.Scheduled || s.attempts() != 0) {
		l.fail("no run in state %d after %d attempts", state, s.attempts())
	}
	f := l.checkBlob(v, body, target)
	if l.err == nil && (f.Priority != s.priority() || v.flags&blobDue != 0 || f.Repeats != (v.flags&blobSeries != 0)) {
		l.fail("priority %d, the slot says %d; flags %x", f.Priority, s.priority(), v.flags)
	}
}

// checkBlob checks a blob and decodes it.
func (l *loader) checkBlob(v *blob, body []byte, target uint32) (f encoding.Summary) {
	if (target != 0) != (v.flags&blobTarget != 0) || target != 0 && l.targets[target] == nil {
		l.fail("target %d is not defined", target)
	}
	if l.err == nil {
		l.err = v.checkBody(body)
	}
	if l.err != nil {
		return f
	}
	v.readBody(body)
	f, err := encoding.Summarize(v.rest)
	if err != nil {
		l.fail("spec: %v", err)
	}
	return f
}

// successor reads the successor of a leased timer.
func (l *loader) successor() {
	t := l.t
	h := timer.Handle(l.number(uint64(t.slab.high), "handle"))
	target := uint32(l.number(1<<32-1, "target"))
	v := blob{flags: l.byte()}
	body := l.bytes(int(l.number(maxBody, "body")))
	if l.err != nil {
		return
	}
	var s *slot
	if h != 0 {
		t.slab.extend(h)
		s = t.slab.at(h)
	}
	if s == nil || s.state() != timer.Leased || t.runs.at(s.run).successor != 0 || v.flags&blobDue == 0 {
		l.fail("handle %d can have no successor", h)
	}
	if l.checkBlob(&v, body, target); l.err != nil {
		return
	}
	v.target = t.targets.intern(&t.blobs, l.targets[target])
	t.runs.at(s.run).successor = t.putBlob(h, &v)
}

// checkBody checks the assumptions of readBody, and that putBlob would write the same flags.
func (v *blob) checkBody(body []byte) error {
	r := encoding.Reader{Rest: body}
	r.Take(4 + 8 + createdLen)
	if v.flags&^blobFlags != 0 {
		r.Fail("unknown flags")
	}
	if v.flags&blobVersion != 0 && r.Number(1<<32-1, "version") == 1 {
		r.Fail("version 1 is not written")
	}
	if v.flags&blobUpdated != 0 && r.Number(timer.MaxMs, "update time") == 0 {
		r.Fail("an update at the creation is not written")
	}
	if v.flags&blobFirst != 0 && r.Number(timer.MaxMs, "first add") == 0 {
		r.Fail("a first add at the creation is not written")
	}
	if v.flags&blobSeries != 0 {
		r.Number(1<<32-1, "occurrence")
	}
	if v.flags&blobDue != 0 {
		r.Number(timer.MaxMs, "due time")
	}
	if v.flags&blobAsked != 0 {
		r.Varint()
	}
	r.Take(int(r.Byte()))
	return r.Err()
}

func (l *loader) run(h timer.Handle, s *slot) {
	t := l.t
	s.run = t.runs.take()
	r := t.runs.at(s.run)
	high := uint64(t.slab.high)
	r.fence = l.number(1<<64-1, "fence")
	r.dueMs, r.dueOrEndMs, r.firedMs, r.lateness = l.signed(), l.signed(), l.signed(), l.signed()
	r.newer, r.older = uint32(l.number(high, "newer finished")), uint32(l.number(high, "older finished"))
	r.status = uint16(l.number(1<<16-1, "status"))
	r.durMs = uint32(l.number(1<<32-1, "length of the lease"))
	r.holder = Holder(l.number(uint64(byReport), "holder of the lease"))
	t.setError(h, r, string(l.bytes(int(l.number(encoding.MaxErr, "error text")))))
}
