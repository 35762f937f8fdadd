package table

import (
	"encoding/binary"
	"fmt"

	"carillon/internal/feature"
	"carillon/timer"
	"carillon/timer/encoding"
)

// MaxBatchBytes is the size at which a leader ends an entry. The remaining changes go into the next
// one.
const MaxBatchBytes = 4 << 20

// The kinds of items. The values are part of the log format (docs/formats/commands.md). A run is a
// sequence of items of one kind that share a value. A table must not skip an item that it does not
// know, or replicas would diverge.
const (
	itemCommand = 1 + iota
	itemLeases  // a run
	itemAcks    // a run
	itemOutcome
	itemTakeover
	itemTick
	itemExpire
	itemForget
	itemPulls       = 16 // a run of consumers' leases
	itemExpireAgain = 20 // itemExpire with a next occurrence
	itemSkip        = 21
	itemOverlap     = 22
	itemCompare     = 23
	itemClock       = 24
	itemSeriesSeen  = 25
	itemDivide      = 27
	itemSweep       = 28
	itemFollowUp    = 26 // the outcome of the timer that the next item ends; no item of its own
)

// outcomeAgain is added to an outcome's kind if a next occurrence follows.
const outcomeAgain = 0x40

// outcomeLogged is added to RetryLater if the attempt is logged.
const outcomeLogged = 0x20

// outcomeCallOnly is added if the outcome ends the lease only while a call holds it.
const outcomeCallOnly = 0x80

// maxRun is the maximum number of items in a run.
const maxRun = 1<<16 - 1

// OutcomeKind is the kind of an Outcome.
type OutcomeKind uint8

// The outcomes of a lease. The values are part of the log format.
const (
	Ack        OutcomeKind = 1 + iota // delivered
	RetryLater                        // another attempt at NextMs
	Kill                              // given up
	Release                           // the call never started, so the attempt does not count
	Accepted                          // the receiver will report; its lease lasts for LeaseMs
	Extended                          // the consumer's lease lasts for LeaseMs from now
)

// Outcome ends or extends the lease of a timer with the given Fence.
type Outcome struct {
	Handle    timer.Handle
	Kind      OutcomeKind
	Seq       uint64
	Fence     uint64
	StartedMs int64 // of the attempt
	EndedMs   int64
	Status    int    // HTTP status; 0 none
	Err       string // cut to 1 KiB
	// Answer is what the receiver answered, if the attempt failed; nil: none.
	Answer *timer.Answer
	NextMs int64 // RetryLater: the next attempt
	// Reason and RetainUntilMs (the end of the dead letter's retention) are set with Kill.
	Reason        timer.Reason
	RetainUntilMs int64
	// AgainMs is the due time of the next occurrence, with Ack and Kill of a repeating timer; 0 =
	// there is none.
	AgainMs int64
	LeaseMs int64 // Accepted, Extended

	// CallOnly: RetryLater or Kill of a lease whose process has ended. If the receiver has reported
	// since that it has accepted the timer, the lease is the receiver's, and continues.
	CallOnly bool

	// Logged: RetryLater of a timer whose end may make an outcome, which has its attempts.
	Logged bool

	ByConsumer bool // not the end of a call; for observers, not in the log
}

// Batch builds the data of one raft entry: all changes to a shard in one step of its leader. The
// zero value needs a Reset first. A batch reuses its buffer, so the result of Bytes is valid until
// the next change.
type Batch struct {
	buf   []byte
	items int
	nowMs int64

	run       byte // kind of the open run; 0 none
	runAt     int  // offset of its count
	runLen    int
	runValue  int64 // shared by the items of the run: durMs or status
	handle    timer.Handle
	seq       uint64
	fence     uint64
	startedMs int64
}

// Reset starts a batch. The proposer recognises its own entry by origin and number.
func (b *Batch) Reset(nowMs int64, origin, number uint64) {
	*b = Batch{buf: b.buf[:0], nowMs: nowMs}
	b.buf = append(b.buf, byte(feature.LevelFirst))
	b.buf = binary.AppendVarint(b.buf, nowMs)
	b.buf = binary.AppendUvarint(b.buf, origin)
	b.buf = binary.AppendUvarint(b.buf, number)
}

// SetLevel sets the feature level that a replica must understand to apply the entry.
func (b *Batch) SetLevel(level feature.Level) { b.buf[0] = byte(level) }

func (b *Batch) Size() int { return len(b.buf) }

func (b *Batch) Bytes() []byte { return b.buf }

// item counts an item and returns its number.
func (b *Batch) item() int {
	b.items++
	return b.items - 1
}

// single starts an item outside of a run.
func (b *Batch) single(kind byte) int {
	b.run = 0
	b.buf = append(b.buf, kind)
	return b.item()
}

// inRun continues the open run or starts a new one, and counts the item.
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

func (b *Batch) numbers(all ...uint64) {
	for _, n := range all {
		b.buf = binary.AppendUvarint(b.buf, n)
	}
}

func (b *Batch) Command(c *timer.Command) int {
	if len(c.ID) > encoding.MaxID {
		panic(fmt.Sprintf("shard: id of %d bytes, at most %d fit", len(c.ID), encoding.MaxID))
	}
	n := b.single(itemCommand)
	b.command(c)
	return n
}

// FollowUp adds the add of an outcome, which is made if the next item ends its timer as done or
// dead.
func (b *Batch) FollowUp(c *timer.Command) {
	b.run = 0
	b.buf = append(b.buf, itemFollowUp)
	b.command(c)
}

func (b *Batch) command(c *timer.Command) {
	// A length prefix of three bytes suffices for up to 2 MiB.
	at := len(b.buf)
	b.buf = append(b.buf, 0, 0, 0)
	b.buf = encoding.AppendCommand(b.buf, c)
	size := len(b.buf) - at - 3
	if size>>21 != 0 {
		panic(fmt.Sprintf("shard: command of %d bytes", size))
	}
	b.buf[at], b.buf[at+1], b.buf[at+2] = byte(size)|0x80, byte(size>>7)|0x80, byte(size>>14)
}

// Lease leases a scheduled timer for durMs from the batch's time if its revision is still rev.
func (b *Batch) Lease(durMs int64, h timer.Handle, seq uint64, rev uint32) int {
	return b.lease(itemLeases, durMs, h, seq, rev)
}

// Pull is Lease on behalf of a consumer.
func (b *Batch) Pull(durMs int64, h timer.Handle, seq uint64, rev uint32) int {
	return b.lease(itemPulls, durMs, h, seq, rev)
}

func (b *Batch) lease(kind byte, durMs int64, h timer.Handle, seq uint64, rev uint32) int {
	n := b.inRun(kind, durMs)
	b.delta(h, seq)
	b.buf = binary.AppendUvarint(b.buf, uint64(rev))
	return n
}

// Outcome ends a lease, or changes its holder and duration.
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
	if o.CallOnly {
		kind |= outcomeCallOnly
	}
	if o.Logged {
		kind |= outcomeLogged
	}
	b.buf = append(b.buf, kind)
	b.numbers(uint64(o.Handle), o.Seq, o.Fence)
	b.buf = binary.AppendVarint(b.buf, b.nowMs-o.StartedMs)
	b.buf = binary.AppendVarint(b.buf, o.EndedMs-o.StartedMs)
	b.buf = binary.AppendVarint(b.buf, int64(o.Status))
	b.buf = encoding.AppendError(b.buf, o.Err, o.Answer)
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

// Takeover records that owner leads from now on; without an owner, that the calls of its leases may
// start late from now on, until it is named again. See leaderships.SlowStart.
func (b *Batch) Takeover(owner uint64) int {
	n := b.single(itemTakeover)
	b.buf = binary.AppendUvarint(b.buf, owner)
	return n
}

// Compare makes all replicas compare their states after this entry.
func (b *Batch) Compare() int { return b.single(itemCompare) }

// Tick only advances the table's clock.
func (b *Batch) Tick() int { return b.single(itemTick) }

// SetClock sets the table's clock back to the batch's time, if that is earlier.
func (b *Batch) SetClock() int { return b.single(itemClock) }

// SeriesSeen ends the work after SetClock: all series follow the new time.
func (b *Batch) SeriesSeen() int { return b.single(itemSeriesSeen) }

// Expire makes a scheduled timer of revision rev a dead letter of reason Expired. For againMs see
// Outcome.AgainMs.
func (b *Batch) Expire(h timer.Handle, seq uint64, rev uint32, retainUntilMs, againMs int64) int {
	kind := byte(itemExpire)
	if againMs != 0 {
		kind = itemExpireAgain
	}
	n := b.single(kind)
	b.numbers(uint64(h), seq, uint64(rev))
	b.buf = binary.AppendVarint(b.buf, retainUntilMs-b.nowMs)
	if againMs != 0 {
		b.buf = binary.AppendVarint(b.buf, againMs-b.nowMs)
	}
	return n
}

// Overlap schedules the next occurrence of a timer while it is leased.
func (b *Batch) Overlap(h timer.Handle, seq, fence uint64, againMs int64) int {
	n := b.single(itemOverlap)
	b.numbers(uint64(h), seq, fence)
	b.buf = binary.AppendVarint(b.buf, againMs-b.nowMs)
	return n
}

// Skip moves a scheduled occurrence of revision rev that missed its time to againMs; 0 = the series
// is over.
func (b *Batch) Skip(h timer.Handle, seq uint64, rev uint32, againMs int64) int {
	n := b.single(itemSkip)
	b.numbers(uint64(h), seq, uint64(rev), uint64(againMs))
	return n
}

// Forget drops a dead letter at the end of its retention.
func (b *Batch) Forget(h timer.Handle, seq uint64) int {
	n := b.single(itemForget)
	b.numbers(uint64(h), seq)
	return n
}
