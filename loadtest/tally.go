package loadtest

import (
	"strings"
	"sync/atomic"
	"unicode"

	"carillon/loadtest/hist"
)

// tally has the counts of a run. All of it is written by many goroutines.
type tally struct {
	// Operations inside the measured time.
	ops, errors atomic.Int64

	// Over the whole run, warm-up included.
	byOperation                      [len(operationNames)]atomic.Int64
	added, changed, refused, unknown atomic.Int64
	prevented                        atomic.Int64
	conflicts, timeouts, broken      atomic.Int64
	vanished, dead, addedLate        atomic.Int64
	unsent, overdue, staleReads      atomic.Int64
	inFlight, serverErrors           atomic.Int64
	deliveries

	first atomic.Pointer[string] // the first failure, in words

	latency *hist.Recorder
	due     dueBins
}

// deliveries are the counts of what the receiver gets.
type deliveries struct {
	fired, retries, early, duplicate      atomic.Int64
	cancelledFired, stale, wrong, foreign atomic.Int64
	unexpected                            atomic.Int64
	firstFiredUs, lastFiredUs             atomic.Int64 // arrivals, Unix µs

	lateness *hist.Recorder
}

func newTally(baseMs int64) *tally {
	t := &tally{latency: hist.NewRecorder()}
	t.lateness = hist.NewRecorder()
	t.due.baseMs = baseMs
	return t
}

// failed keeps the first failure of a run, so that the report can show a cause.
func (t *tally) failed(what string) {
	if t.first.Load() == nil {
		what = plain(what)
		t.first.CompareAndSwap(nil, &what)
	}
}

func (t *tally) firstError() string {
	if first := t.first.Load(); first != nil {
		return *first
	}
	return ""
}

const firstErrorRunes = 300

// plain is the start of a text on one line, without characters that a terminal could take for a
// command.
func plain(text string) string {
	shown := 0
	return strings.Map(func(r rune) rune {
		if shown++; shown > firstErrorRunes {
			return -1
		}
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, text)
}

// dueBins counts how many timers fall due in each tenth of a second, for the
// progress line only: changes whose outcome is unknown are not in it.
type dueBins struct {
	baseMs int64
	bins   [dueBinCount]atomic.Int64
}

const (
	dueBinMs    = 100
	dueBinCount = 36_000 // one hour; timers that are due later are in the last bin
)

func (d *dueBins) move(dueMs, by int64) {
	d.bins[min(max((dueMs-d.baseMs)/dueBinMs, 0), dueBinCount-1)].Add(by)
}

// until is the number of timers due before a moment.
func (d *dueBins) until(ms int64) (n int64) {
	for i := range min(max((ms-d.baseMs)/dueBinMs, 0), dueBinCount-1) {
		n += d.bins[i].Load()
	}
	return n
}
