package feed

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/transport/api/backend"
)

// Rates counts the work of this node, so that its last minute can be shown. Its methods may be
// called from any goroutine; to count is one addition.
type Rates struct {
	counts [kinds]atomic.Int64
	late   [latenessSteps + 1]atomic.Int64

	mu      sync.Mutex
	samples []sample // of each second, the oldest first; at most one more than window
}

// The counts of Rates.
const (
	Added = iota
	Changed
	Cancelled
	Succeeded
	Retried
	Died
	kinds
)

const (
	// SampleInterval is how often Sample is to be called.
	SampleInterval = time.Second

	window        = 60 // seconds that are shown
	latenessSteps = 96 // of a fifth more each: from 1 ms to eleven hours; the last is all beyond
)

// latenessStep is the longest lateness, in ms, that counts in a step.
var latenessStep = func() (steps [latenessSteps]int64) {
	for i, last := 0, 0.0; i < latenessSteps; i++ {
		last = math.Max(last+1, math.Floor(last*1.2))
		steps[i] = int64(last) - 1
	}
	return steps
}()

// sample is all that was counted up to a moment.
type sample struct {
	at     time.Duration
	counts [kinds]int64
	late   [latenessSteps + 1]int64
}

func (r *Rates) Count(kind int) { r.counts[kind].Add(1) }

func (r *Rates) Late(ms int64) {
	step, _ := slices.BinarySearch(latenessStep[:], ms) // the first that is long enough
	r.late[step].Add(1)
}

// Sample keeps the counts of now.
func (r *Rates) Sample(now time.Duration) {
	s := sample{at: now}
	for i := range r.counts {
		s.counts[i] = r.counts[i].Load()
	}
	for i := range r.late {
		s.late[i] = r.late[i].Load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) > window {
		copy(r.samples, r.samples[1:])
		r.samples = r.samples[:window]
	}
	r.samples = append(r.samples, s)
}

// Minute has the counts of the last minute, or since the first sample.
func (r *Rates) Minute() backend.Minute {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := backend.Minute{Late: make([]int64, latenessSteps+1)}
	if len(r.samples) < 2 {
		return m
	}
	first, last := &r.samples[0], &r.samples[len(r.samples)-1]
	m.WindowMs = (last.at - first.at).Milliseconds()
	since := func(kind int) int64 { return last.counts[kind] - first.counts[kind] }
	m.Added, m.Changed, m.Cancelled = since(Added), since(Changed), since(Cancelled)
	m.Succeeded, m.Retried, m.Died = since(Succeeded), since(Retried), since(Died)
	for i := range m.Late {
		m.Late[i] = last.late[i] - first.late[i]
	}
	for i := range r.samples[1:] {
		a, b := &r.samples[i], &r.samples[i+1]
		m.AddedEach = append(m.AddedEach, b.counts[Added]-a.counts[Added])
		fired := int64(0)
		for _, kind := range []int{Succeeded, Retried, Died} {
			fired += b.counts[kind] - a.counts[kind]
		}
		m.FiredEach = append(m.FiredEach, fired)
	}
	return m
}

// percentiles is the lateness of a minute in ms: at most P50 for half of the attempts, and so on.
func percentiles(late []int64) backend.Lateness {
	total := int64(0)
	for _, n := range late {
		total += n
	}
	at := func(part float64) int64 {
		want, seen := int64(math.Ceil(part*float64(total))), int64(0)
		for i, n := range late {
			if seen += n; n > 0 && seen >= want {
				return latenessStep[min(i, latenessSteps-1)]
			}
		}
		return 0
	}
	return backend.Lateness{Count: total, P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1)}
}
