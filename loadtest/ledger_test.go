package loadtest

import (
	"sync"
	"testing"
)

func TestLedgerKeepsNeighboursApart(t *testing.T) {
	l := newLedger(1_000_000)
	const timers = 3 * slabTimers / 2 // two slabs
	first, n := l.issue(timers, maxTimers)
	if first != 0 || n != timers {
		t.Fatalf("issued %d from %d", n, first)
	}
	var writers sync.WaitGroup
	for w := range int64(4) { // the four timers of each word, side by side
		writers.Go(func() {
			for number := w; number < timers; number += 4 {
				l.setDue(number, 1_000_000+number)
				l.add(number, mark(1)<<w)
				if w == 3 {
					l.add(number, markVanished)
				}
			}
		})
	}
	writers.Wait()
	for number := range int64(timers) {
		want := mark(1) << (number % 4)
		if number%4 == 3 {
			want |= markVanished
		}
		if got := l.marks(number); got != want || l.firstDueMs(number) != 1_000_000+number {
			t.Fatalf("timer %d: marks %b, due %d", number, got, l.firstDueMs(number))
		}
	}
}

// The ledger holds the latest due time that a delay can give.
func TestLedgerReachesTheHorizon(t *testing.T) {
	l := newLedger(1_000_000)
	l.issue(2, 2)
	far := 1_000_000 + maxDelay.Milliseconds()
	l.setDue(0, far)
	l.add(0, markAcked|markSecond)
	if got := l.firstDueMs(0); got != far || l.marks(0) != markAcked|markSecond || l.marks(1) != 0 {
		t.Errorf("due %d, want %d; marks %b", got, far, l.marks(0))
	}
}

func TestLedgerIssuesUpToTheLimit(t *testing.T) {
	l := newLedger(0)
	for _, c := range []struct{ ask, first, got int64 }{{4, 0, 4}, {4, 4, 4}, {4, 8, 2}, {4, 10, 0}} {
		if first, n := l.issue(c.ask, 10); first != c.first || n != c.got {
			t.Errorf("issue(%d) = %d, %d, want %d, %d", c.ask, first, n, c.first, c.got)
		}
	}
}

func TestOwed(t *testing.T) {
	for _, c := range []struct {
		marks mark
		byMs  int64
		want  bool
	}{
		{0, 5000, false},
		{markAcked, 1000, true},
		{markAcked, 999, false},
		{markAcked | markUnknown, 5000, false},
		{markUnknown, 5000, false},
		{markAcked | markDelivered, 5000, false},
		{markAcked | markPrevented, 5000, false},
		{markAcked | markExcused, 5000, false},
		{markAcked | markVanished, 5000, true},
		{markAcked | markChanged, 1000, false}, // its due time has moved
		{markAcked | markChanged, 2200, true},
	} {
		l := newLedger(0)
		l.issue(1, 1)
		l.setDue(0, 1000)
		l.add(0, c.marks)
		if got := l.owed(0, c.byMs); got != c.want {
			t.Errorf("marks %08b by %d: owed = %v, want %v", c.marks, c.byMs, got, c.want)
		}
	}
}

func TestSettlementVisitsEachTimerOnce(t *testing.T) {
	l := newLedger(0)
	c := Config{Topics: 5, Batch: 3, Payload: 100}
	n := newNames(c, "r")
	const timers = 1000
	l.issue(timers, timers)
	for number := range int64(timers) {
		l.setDue(number, 100)
		if number%11 != 0 {
			l.add(number, markAcked)
		}
	}
	s := &verification{ledger: l, names: n, afterMs: 50}
	seen := map[int64]bool{}
	var got call
	for s.next(&got, noTime) {
		if got.op != opCancel || len(got.numbers) > settleBatch {
			t.Fatalf("call = %+v", got)
		}
		for _, number := range got.numbers {
			if seen[number] || number%11 == 0 || n.topicOf(number) != n.topicOf(got.numbers[0]) {
				t.Fatalf("timer %d is out of place", number)
			}
			seen[number] = true
		}
	}
	if want := timers - (timers+10)/11; len(seen) != want {
		t.Errorf("visited %d timers, want %d", len(seen), want)
	}
}

func BenchmarkLedgerDelivery(b *testing.B) {
	l := newLedger(0)
	l.issue(1<<20, 1<<20)
	b.ReportAllocs()
	var number int64
	for b.Loop() {
		number = (number + 1) & (1<<20 - 1)
		l.add(number, markDelivered)
	}
}
