package demo

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"carillon/loadtest/hist"
	"carillon/loadtest/sink"
)

// fate is the client's knowledge of one of its requests.
type fate uint8

const (
	none    fate = iota // not sent
	pending             // sent, and no answer, or none that tells: it may have taken effect
	yes
	no
)

// timer has the client's requests for a timer, and their outcomes.
type timer struct {
	shard           int // known once the add is answered
	dueMs, newDueMs int64
	added, changed  fate
	cancelled       fate // yes: prevented; pending: perhaps
	calls           int
}

// book has an entry for each timer before it is sent. Bound: rate × duration.
type book struct {
	mu     sync.Mutex
	timers []timer // the index is the number in the timer's id
	tallies
	lateness *hist.Histogram
	fell     time.Time         // when the node was killed
	again    map[int]time.Time // by shard: the first answer to an add that was sent after that
}

// tallies count timers, but for the last line: calls.
type tallies struct {
	acked, changed, prevented            int
	called                               int
	early, duplicate, altered, forbidden int
}

func newBook() *book { return &book{lateness: hist.New(), again: map[int]time.Time{}} }

func timerID(number int) string { return "t" + strconv.Itoa(number) }

func payloadOf(number, version int) string {
	return fmt.Sprintf(`{"timer":%d,"version":%d}`, number, version)
}

// enter opens the entry of a timer that is about to be sent.
func (b *book) enter(dueMs int64) (number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timers = append(b.timers, timer{dueMs: dueMs, added: pending})
	return len(b.timers) - 1
}

// add books how an add ended: its last try began at tried and was answered now.
func (b *book) add(number int, f fate, shard int, tried time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.timers[number]
	t.added, t.shard = f, shard
	if f != yes {
		return
	}
	b.acked++
	if _, had := b.again[shard]; !had && !b.fell.IsZero() && tried.After(b.fell) {
		b.again[shard] = time.Now()
	}
}

// changing is called before a change is sent, with its new due time.
func (b *book) changing(number int, dueMs int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timers[number].newDueMs, b.timers[number].changed = dueMs, pending
}

func (b *book) change(number int, f fate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timers[number].changed = f
	if f == yes {
		b.changed++
	}
}

func (b *book) cancelling(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timers[number].cancelled = pending
}

func (b *book) cancel(number int, f fate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timers[number].cancelled = f
	if f == yes {
		b.prevented++
	}
}

// deliver judges a call. It is the receiver's handler.
func (b *book) deliver(d *sink.Delivery) int {
	number, err := strconv.Atoi(string(d.Timer[min(1, len(d.Timer)):]))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil || number < 0 || number >= len(b.timers) {
		b.altered++
		return 200
	}
	t := &b.timers[number]
	due, current := t.version(number, string(d.Body))
	if !current || d.DueMs != due {
		b.altered++
	}
	if d.ArrivedUs < max(due, d.DueMs)*1000 {
		b.early++
	}
	if t.cancelled == yes {
		b.forbidden++
	}
	if t.calls++; t.calls > 1 {
		b.duplicate++
		return 200
	}
	b.called++
	b.lateness.Record(d.ArrivedUs - due*1000)
	return 200
}

// version is the due time of the version that a call brought, and whether that may still be called.
func (t *timer) version(number int, body string) (dueMs int64, current bool) {
	switch body {
	case payloadOf(number, 1):
		return t.dueMs, t.changed != yes
	case payloadOf(number, 2):
		return t.newDueMs, t.changed == yes || t.changed == pending
	}
	return t.dueMs, false
}

// fall notes when the node was killed.
func (b *book) fall(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fell = at
}

// owes tells whether a timer must be called: acknowledged, and no cancel can have kept it back.
func (t *timer) owes() bool {
	return t.added == yes && t.calls == 0 && (t.cancelled == none || t.cancelled == no)
}

func (t *timer) lastDueMs() int64 {
	if t.changed == none || t.changed == no {
		return t.dueMs
	}
	return max(t.dueMs, t.newDueMs)
}

// owed is how many timers have not been called and must be.
func (b *book) owed() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.timers {
		if b.timers[i].owes() {
			n++
		}
	}
	return n
}

// busiest is the shard in which most timers wait.
func (b *book) busiest() (shard, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byShard := map[int]int{}
	for i := range b.timers {
		if t := &b.timers[i]; t.owes() {
			byShard[t.shard]++
		}
	}
	for s, n := range byShard {
		if n > waiting || n == waiting && s < shard {
			shard, waiting = s, n
		}
	}
	return shard, waiting
}

func (b *book) lastDue() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last int64
	for i := range b.timers {
		last = max(last, b.timers[i].lastDueMs())
	}
	return time.UnixMilli(last)
}

// now is the count for the status line.
func (b *book) now() (acked, called, waiting, overdue int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	nowMs := time.Now().UnixMilli()
	for i := range b.timers {
		if t := &b.timers[i]; t.owes() {
			waiting++
			if t.lastDueMs() < nowMs-overdueSlackMs {
				overdue++
			}
		}
	}
	return b.acked, b.called, waiting, overdue
}

// overdueSlackMs is how late a timer may be before the status line calls it overdue.
const overdueSlackMs = 100
