package loadtest

import (
	"sync"
	"sync/atomic"
	"time"
)

// settleBatch is how many timers one request of the settlement cancels.
const settleBatch = 500

// verification is the source of calls that cancel, after the load, every timer
// that is not waited for. The answers prove that the server still held them.
type verification struct {
	ledger  *ledger
	names   *names
	afterMs int64 // due later than this; -1 = all
	unseen  bool  // deliveries went to an external receiver
	paused  bool  // a topic of the run is

	overdueMs int64 // unseen, paused: timers that were due by then should have been delivered

	mu     sync.Mutex
	topic  int64
	number int64
	// Asked about in vain, to be asked about again; bound: settleRepeats × settleBatch.
	again   []int64
	repeats int // calls that asked again

	vain atomic.Int64 // calls since the last one that settled something
}

// When the settlement gives up: a bad server is not asked forever.
const (
	settleVain    = 20  // after so many calls in a row that settled nothing
	settleRepeats = 100 // no more calls than that ask again
)

// next gathers the next timers of one topic.
func (v *verification) next(c *call, _ time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	c.op, c.numbers = opCancel, c.numbers[:0]
	if v.vain.Load() >= settleVain {
		return false
	}
	if v.repeat(c); len(c.numbers) > 0 {
		return true
	}
	issued := v.ledger.issued.Load()
	for ; v.topic < v.names.topics; v.topic, v.number = v.topic+1, 0 {
		for ; v.number < issued && len(c.numbers) < settleBatch; v.number++ {
			if t := v.names.topicOf(v.number); t != v.topic {
				v.number = v.nextOf(v.number) - 1
				continue
			}
			if v.open(v.number) {
				c.numbers = append(c.numbers, v.number)
			}
		}
		if len(c.numbers) > 0 {
			return true
		}
	}
	return false
}

// repeat gathers timers of one topic that were asked about in vain.
func (v *verification) repeat(c *call) {
	if len(v.again) == 0 || v.repeats == settleRepeats {
		return
	}
	v.repeats++
	for len(v.again) > 0 && len(c.numbers) < settleBatch {
		last := v.again[len(v.again)-1]
		if len(c.numbers) > 0 && v.names.topicOf(last) != v.names.topicOf(c.numbers[0]) {
			return
		}
		c.numbers = append(c.numbers, last)
		v.again = v.again[:len(v.again)-1]
	}
}

// nextOf is the first number after this one that belongs to the topic: topics
// take turns, a block of one batch each.
func (v *verification) nextOf(number int64) int64 {
	n := v.names
	round := n.batch * n.topics
	at := number/round*round + v.topic*n.batch
	if at <= number {
		at += round
	}
	return at
}

// open reports whether the server must still be asked about the timer.
func (v *verification) open(number int64) bool {
	m := v.ledger.marks(number)
	if m.has(markRefused | markDelivered | markPrevented | markExcused | markVanished) {
		return false
	}
	return m.has(markAcked|markUnknown) && v.ledger.lastDueMs(number, m) > v.afterMs
}

// record enters the answer about one timer. No answer settles nothing: the timer
// is asked about again, and stays pending if that is in vain, too.
func (v *verification) record(t *tally, number int64, r result) bool {
	switch {
	case r.status == 200 && r.outcome == "prevented":
		t.prevented.Add(1)
		if (v.unseen || v.paused) && v.ledger.lastDueMs(number, v.ledger.marks(number)) <= v.overdueMs {
			t.overdue.Add(1)
		}
		v.ledger.add(number, markPrevented)
	case r.status == 202 && v.unseen:
		return v.postpone(number) // how its call ends shows a little later
	case r.status == 202:
		v.ledger.add(number, markExcused)
	case r.status == 410 && r.outcome == "dead":
		t.dead.Add(1)
		v.ledger.add(number, markExcused)
	case r.status == 410 && v.unseen:
		t.fired.Add(1)
		v.ledger.add(number, markExcused)
	case r.status == 404 && v.ledger.marks(number).has(markUncertain):
		v.ledger.add(number, markExcused) // its add has not taken effect
	case r.status == 404 || r.status == 410:
		// Gone: forgotten, or reported as fired without having arrived here.
		return t.recordMissing(v.ledger, number)
	default:
		return v.postpone(number)
	}
	return true
}

// postpone has a timer asked about again, if there is room for it. It returns false: nothing is
// settled.
func (v *verification) postpone(number int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.repeats < settleRepeats && len(v.again) < settleRepeats*settleBatch {
		v.again = append(v.again, number)
	}
	return false
}

// ended notes whether a call has settled anything.
func (v *verification) ended(cannotSucceed bool) {
	if cannotSucceed {
		v.vain.Add(1)
	} else {
		v.vain.Store(0)
	}
}
