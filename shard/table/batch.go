package table

import (
	"encoding/binary"
	"fmt"

	"carillon/shard/feature"
	"carillon/timer"
	"carillon/timer/encoding"
)

// MaxBatchBytes is the size at which a leader ends an entry: what else there is goes into the next.
const MaxBatchBytes = 4 << 20

// The version of a batch is the least feature level that reads all its items: a table must not
// skip what it does not
// know, or replicas would part.
const batchVersion = byte(feature.LevelFirst)

// The kinds of items. The values are part of the log format (docs/formats/commands.md).
const (
	itemCommand = 1 + iota
	itemLeases  // a run
	itemAcks    // a run
	itemOutcome
	itemTakeover
	itemTick
	itemExpire
	itemForget
	itemHash             // what a leader's state was after an entry; it is not written any more
	itemPulls       = 16 // a run of leases that consumers take
	itemExpireAgain = 20 // as itemExpire, and a next occurrence
	itemSkip        = 21
	itemOverlap     = 22
	itemCompare     = 23 // LevelCompare
	itemClock       = 24
	itemSeriesSeen  = 25
)

// outcomeAgain is added to an outcome's kind when a next occurrence follows.
const outcomeAgain = 0x40

// maxRun is the most items of one run.
const maxRun = 1<<16 - 1

// OutcomeKind says what becomes of a leased timer.
type OutcomeKind uint8

// The outcomes of a lease. The values are part of the log format.
const (
	Ack        OutcomeKind = 1 + iota // delivered
	RetryLater                        // another attempt at NextMs
	Kill                              // given up
	Release                           // the call never started: the attempt does not count
	Accepted                          // the receiver has it and will report: the lease goes on for LeaseMs
	Extended                          // its consumer holds it for LeaseMs from now on
)

// Outcome says what becomes of the lease Fence of a timer.
type Outcome struct {
	Handle    timer.Handle
	Seq       uint64
	Fence     uint64
	Kind      OutcomeKind
	StartedMs int64 // of the attempt
	EndedMs   int64
	Status    int    // HTTP status, 0 none
	Err       string // cut to 1 KiB
	NextMs    int64  // Retry: the next attempt
	// Reason and RetainUntilMs (when the dead letter may be forgotten) go with Kill.
	Reason        timer.Reason
	RetainUntilMs int64
	// AgainMs goes with Ack and Kill of a timer that repeats: when its next occurrence is due; 0 =
	// there is none.
	AgainMs int64
	LeaseMs int64 // Accepted, Extended

	ByConsumer bool // not a call's end; for observers, and not in the log
}

// Batch builds the data of one raft entry: all that happens to a shard in one turn of its leader.
// The zero value needs a Reset first. It keeps its buffer; Bytes is valid until the next change.
type Batch struct {
	buf   []byte
	items int
	nowMs int64

	run       byte // kind of the run that is open, 0 none
	runAt     int  // where its count is
	runLen    int
	runValue  int64 // what all of the run share: durMs, status
	handle    timer.Handle
	seq       uint64
	fence     uint64
	startedMs int64
}

// Reset starts a batch. Origin and number let the proposer recognise its own entry.
func (b *Batch) Reset(nowMs int64, origin, number uint64) {
	*b = Batch{buf: b.buf[:0], nowMs: nowMs}
	b.buf = append(b.buf, batchVersion)
	b.buf = binary.AppendVarint(b.buf, nowMs)
	b.buf = binary.AppendUvarint(b.buf, origin)
	b.buf = binary.AppendUvarint(b.buf, number)
}

// Len is the number of items.
func (b *Batch) Len() int { return b.items }

// Size is the number of bytes.
func (b *Batch) Size() int { return len(b.buf) }

// Bytes is the entry.
func (b *Batch) Bytes() []byte { return b.buf }

// item counts one more and returns its number.
func (b *Batch) item() int {
	b.items++
	return b.items - 1
}

// single starts an item of its own.
func (b *Batch) single(kind byte) int {
	b.run = 0
	b.buf = append(b.buf, kind)
	return b.item()
}

// inRun continues the open run, or starts one, and counts the item.
func (b *Batch) inRun(kind byte, value int64) int {
	if b.run != kind || b.runValue != value || b.runLen == maxRun {
		b.buf = append(b.buf, kind)
		b.buf = binary.AppendVarint(b.buf, value)
		b.run, b.runValue, b.runLen, b.runAt = kind, value, 0, len(b.buf)
		b.buf = append(b.buf, 0, 0)
		b.handle, b.seq, b.fence, b.startedMs = 0, 0, 0, b.nowMs
	}
	b.runLen++
	binary.LittleEndian.PutUint16(b.buf[b.runAt:], uint16(b.runLen))
	return b.item()
}

func (b *Batch) delta(h timer.Handle, seq uint64) {
	b.buf = binary.AppendVarint(b.buf, int64(h)-int64(b.handle))
	b.buf = binary.AppendVarint(b.buf, int64(seq-b.seq))
	b.handle, b.seq = h, seq
}

// Command adds a client's change.
func (b *Batch) Command(c *timer.Command) int {
	if len(c.ID) > encoding.MaxID {
		panic(fmt.Sprintf("shard: id of %d bytes, at most %d fit", len(c.ID), encoding.MaxID))
	}
	b.buf[0] = max(b.buf[0], byte(commandLevel(c)))
	n := b.single(itemCommand)
	// The length comes first; three bytes hold any but those over 2 MiB.
	at := len(b.buf)
	b.buf = append(b.buf, 0, 0, 0)
	b.buf = encoding.AppendCommand(b.buf, c)
	size := len(b.buf) - at - 3
	if size>>21 != 0 {
		panic(fmt.Sprintf("shard: command of %d bytes", size))
	}
	b.buf[at], b.buf[at+1], b.buf[at+2] = byte(size)|0x80, byte(size>>7)|0x80, byte(size>>14)
	return n
}

// Lease leases a scheduled timer for durMs from the batch's time, if its revision is still rev.
func (b *Batch) Lease(durMs int64, h timer.Handle, seq uint64, rev uint32) int {
	n := b.inRun(itemLeases, durMs)
	b.delta(h, seq)
	b.buf = binary.AppendUvarint(b.buf, uint64(rev))
	return n
}

// Pull is Lease on behalf of a consumer.
func (b *Batch) Pull(durMs int64, h timer.Handle, seq uint64, rev uint32) int {
	n := b.inRun(itemPulls, durMs)
	b.delta(h, seq)
	b.buf = binary.AppendUvarint(b.buf, uint64(rev))
	return n
}

// Outcome ends a lease, or changes who holds it and for how long.
func (b *Batch) Outcome(o *Outcome) int {
	if o.Kind == Ack && o.Err == "" && o.AgainMs == 0 {
		n := b.inRun(itemAcks, int64(o.Status))
		b.delta(o.Handle, o.Seq)
		b.buf = binary.AppendVarint(b.buf, int64(o.Fence-b.fence))
		b.buf = binary.AppendVarint(b.buf, o.StartedMs-b.startedMs)
		b.buf = binary.AppendVarint(b.buf, o.EndedMs-o.StartedMs)
		b.fence, b.startedMs = o.Fence, o.StartedMs
		return n
	}
	n := b.single(itemOutcome)
	kind := byte(o.Kind)
	if o.AgainMs != 0 {
		kind |= outcomeAgain
	}
	b.buf = append(b.buf, kind)
	b.buf = binary.AppendUvarint(b.buf, uint64(o.Handle))
	b.buf = binary.AppendUvarint(b.buf, o.Seq)
	b.buf = binary.AppendUvarint(b.buf, o.Fence)
	b.buf = binary.AppendVarint(b.buf, b.nowMs-o.StartedMs)
	b.buf = binary.AppendVarint(b.buf, o.EndedMs-o.StartedMs)
	b.buf = binary.AppendVarint(b.buf, int64(o.Status))
	b.buf = encoding.AppendBlock(b.buf, encoding.Cut(o.Err, encoding.MaxErr))
	switch o.Kind {
	case RetryLater:
		b.buf = binary.AppendVarint(b.buf, o.NextMs-b.nowMs)
	case Kill:
		b.buf = append(b.buf, byte(o.Reason))
		b.buf = binary.AppendVarint(b.buf, o.RetainUntilMs-b.nowMs)
	case Accepted, Extended:
		b.buf = binary.AppendVarint(b.buf, o.LeaseMs)
	}
	if o.AgainMs != 0 {
		b.buf = binary.AppendVarint(b.buf, o.AgainMs-b.nowMs)
	}
	return n
}

// Takeover says that owner leads from here on.
func (b *Batch) Takeover(owner uint64) int {
	n := b.single(itemTakeover)
	b.buf = binary.AppendUvarint(b.buf, owner)
	return n
}

// Compare has all replicas compare what their states are after this entry.
func (b *Batch) Compare() int {
	b.buf[0] = max(b.buf[0], byte(feature.LevelCompare))
	return b.single(itemCompare)
}

// Tick only moves the table's clock.
func (b *Batch) Tick() int { return b.single(itemTick) }

// SetClock has the table's clock be the batch's time, if that is earlier.
func (b *Batch) SetClock() int { return b.single(itemClock) }

// SeriesSeen ends what follows from that: all series go by the new time.
func (b *Batch) SeriesSeen() int { return b.single(itemSeriesSeen) }

// Expire makes a scheduled timer of revision rev a dead letter of reason Expired. againMs is as in
// Outcome.
func (b *Batch) Expire(h timer.Handle, seq uint64, rev uint32, retainUntilMs, againMs int64) int {
	kind := byte(itemExpire)
	if againMs != 0 {
		kind = itemExpireAgain
	}
	n := b.single(kind)
	b.buf = binary.AppendUvarint(b.buf, uint64(h))
	b.buf = binary.AppendUvarint(b.buf, seq)
	b.buf = binary.AppendUvarint(b.buf, uint64(rev))
	b.buf = binary.AppendVarint(b.buf, retainUntilMs-b.nowMs)
	if againMs != 0 {
		b.buf = binary.AppendVarint(b.buf, againMs-b.nowMs)
	}
	return n
}

// Overlap schedules the next occurrence of a timer while its lease runs.
func (b *Batch) Overlap(h timer.Handle, seq, fence uint64, againMs int64) int {
	n := b.single(itemOverlap)
	for _, v := range [...]uint64{uint64(h), seq, fence} {
		b.buf = binary.AppendUvarint(b.buf, v)
	}
	b.buf = binary.AppendVarint(b.buf, againMs-b.nowMs)
	return n
}

// Skip moves a scheduled occurrence of revision rev, whose time was missed, on to againMs; 0 = the
// series is over.
func (b *Batch) Skip(h timer.Handle, seq uint64, rev uint32, againMs int64) int {
	n := b.single(itemSkip)
	b.buf = binary.AppendUvarint(b.buf, uint64(h))
	b.buf = binary.AppendUvarint(b.buf, seq)
	b.buf = binary.AppendUvarint(b.buf, uint64(rev))
	b.buf = binary.AppendUvarint(b.buf, uint64(againMs))
	return n
}

// Forget drops a dead letter whose retention ended.
func (b *Batch) Forget(h timer.Handle, seq uint64) int {
	n := b.single(itemForget)
	b.buf = binary.AppendUvarint(b.buf, uint64(h))
	b.buf = binary.AppendUvarint(b.buf, seq)
	return n
}
