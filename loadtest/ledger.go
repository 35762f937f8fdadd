package loadtest

import (
	"sync"
	"sync/atomic"
)

// Bounds of the ledger: slabs are made as the run reaches them.
const (
	slabTimers = 1 << 16
	maxSlabs   = 1 << 13
	maxTimers  = slabTimers * maxSlabs // 537 million
)

// mark is the knowledge of one timer: a set of bits that only grows.
type mark uint16

const (
	markAcked     mark = 1 << iota // its add was answered 2xx
	markUnknown                    // its add timed out or was answered 5xx
	markRefused                    // its add was answered 4xx: it must not arrive
	markDelivered                  // it arrived, and was answered 2xx
	// Its cancel was answered "prevented": it must not arrive any more.
	markPrevented
	markExcused  // a cancel may have taken effect: it need not arrive
	markChanged  // its patch was answered 2xx: only the second version may arrive
	markVanished // the server answered that it does not know it

	markMaybeChanged // its patch had no answer: either version may arrive
	markUnchanged    // its patch was answered 4xx: the second version must not arrive
	markSecond       // its second version arrived
	// Its patch was answered 2xx when only the first version had arrived: the second must follow.
	markSecondOwed
)

func (m mark) has(bits mark) bool { return m&bits != 0 }

// ledger books every timer of a run in one word: two bytes of marks and six of due time.
// Connections and receiver use it at once, without locks.
type ledger struct {
	baseMs int64 // Unix ms that due times are kept relative to
	issued atomic.Int64
	slabs  [maxSlabs]atomic.Pointer[slab]
	grow   sync.Mutex
}

type slab struct {
	// Atomically: 16 bits of marks, above them the due time in ms since baseMs.
	words [slabTimers]uint64
}

func newLedger(baseMs int64) *ledger { return &ledger{baseMs: baseMs} }

// issue hands out the numbers of the next count timers, fewer when the limit is
// near, none at it.
func (l *ledger) issue(count, limit int64) (first, n int64) {
	for {
		first = l.issued.Load()
		n = min(count, limit-first)
		if n <= 0 {
			return first, 0
		}
		if l.issued.CompareAndSwap(first, first+n) {
			return first, n
		}
	}
}

// slab returns the slab of a timer, made if need be.
func (l *ledger) slab(number int64) *slab {
	at := &l.slabs[number/slabTimers]
	if s := at.Load(); s != nil {
		return s
	}
	l.grow.Lock()
	defer l.grow.Unlock()
	if at.Load() == nil {
		at.Store(new(slab))
	}
	return at.Load()
}

const markBits = 16

func (l *ledger) word(number int64) *uint64 { return &l.slab(number).words[number%slabTimers] }

// add sets bits and returns the marks as they were before.
func (l *ledger) add(number int64, bits mark) mark {
	return mark(atomic.OrUint64(l.word(number), uint64(bits)))
}

func (l *ledger) marks(number int64) mark { return mark(atomic.LoadUint64(l.word(number))) }

// setDue books the due time of a timer's first version. The connection that issued the timer does
// that, once, before it is sent.
func (l *ledger) setDue(number, dueMs int64) {
	atomic.OrUint64(l.word(number), uint64(max(dueMs-l.baseMs, 0))<<markBits)
}

// firstDueMs is the due time of the first version.
func (l *ledger) firstDueMs(number int64) int64 {
	return l.baseMs + int64(atomic.LoadUint64(l.word(number))>>markBits)
}

// dueMs is the due time of a version. The second one's follows from the first
// one's, so that it needs no memory.
func (l *ledger) dueMs(number int64, version int) int64 {
	due := l.firstDueMs(number)
	if version == 2 {
		due += 200 + int64(uint64(number)*0x9E3779B97F4A7C15>>33)%1000 // a patch postpones by 0.2 to 1.2 s
	}
	return due
}

// lastDueMs is the due time as of the last change that was not refused.
func (l *ledger) lastDueMs(number int64, m mark) int64 {
	if m.has(markChanged | markMaybeChanged) {
		return l.dueMs(number, 2)
	}
	return l.firstDueMs(number)
}

// markUncertain is a fate of the add of which nothing can be demanded.
const markUncertain = markUnknown | markRefused

// owed reports whether the timer had to arrive by now: acknowledged, due, and not
// cancelled. A change that was acknowledged after the old version had arrived
// has to arrive, too.
func (l *ledger) owed(number int64, byMs int64) bool {
	m := l.marks(number)
	if !m.has(markAcked) || m.has(markUncertain|markPrevented|markExcused) {
		return false
	}
	if m.has(markDelivered) && (!m.has(markSecondOwed) || m.has(markSecond)) {
		return false
	}
	return l.lastDueMs(number, m) <= byMs
}

// audit is an account of the deliveries that are owed to the ledger.
type audit struct {
	lost     int64 // had to arrive by now and did not
	vanished int64 // need not have arrived yet, but the server does not know it
	pending  int64 // need not have arrived yet
}

// takeAudit walks the whole ledger. byMs is until when due timers had to arrive.
func takeAudit(l *ledger, byMs int64) (a audit) {
	for number := range l.issued.Load() {
		switch {
		case l.owed(number, byMs):
			a.lost++
		case !l.owed(number, 1<<62):
		case l.marks(number).has(markVanished):
			a.vanished++
		default:
			a.pending++
		}
	}
	return a
}
