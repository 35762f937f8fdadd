// Package libs measures libraries that do what parts of ours do. It is a module of its own, so
// that they are no dependencies of the product.
package libs

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/RussellLuo/timingwheel"

	"carillon/wheel"
)

const (
	benchStart wheel.Tick = 1_800_000_000_000
	benchSpan             = time.Hour
)

// The same work on the alternatives: the Go runtime's timers, a container/heap, and the best-known
// wheel library. Each of n handles has one pending timer, in the same random order, due within the
// same hour (and never fired).

// rival is a set of n timers by handle.
type rival interface {
	add(h wheel.Handle, in time.Duration)
	remove(h wheel.Handle)
}

func rivals(n int) map[string]func() rival {
	return map[string]func() rival{
		"carillon": func() rival { return &ours{wheel.New(benchStart)} },
		"runtime":  func() rival { return &runtimeTimers{make([]*time.Timer, n+1)} },
		"heap":     func() rival { return &heapTimers{timers: make([]*heapTimer, n+1)} },
		"russellluo": func() rival {
			return &libraryWheel{timingwheel.NewTimingWheel(time.Millisecond, 64), make([]*timingwheel.Timer, n+1)}
		},
	}
}

type ours struct{ w *wheel.Wheel }

func (o *ours) add(h wheel.Handle, in time.Duration) {
	o.w.Add(h, benchStart+wheel.Tick(in.Milliseconds()))
}
func (o *ours) remove(h wheel.Handle) { o.w.Remove(h) }

type runtimeTimers struct{ timers []*time.Timer }

func (r *runtimeTimers) add(h wheel.Handle, in time.Duration) {
	r.timers[h] = time.AfterFunc(in+time.Hour, func() {})
}
func (r *runtimeTimers) remove(h wheel.Handle) {
	r.timers[h].Stop()
	r.timers[h] = nil
}

type libraryWheel struct {
	w      *timingwheel.TimingWheel // not started: nothing fires
	timers []*timingwheel.Timer
}

func (l *libraryWheel) add(h wheel.Handle, in time.Duration) {
	l.timers[h] = l.w.AfterFunc(in+time.Hour, func() {})
}
func (l *libraryWheel) remove(h wheel.Handle) {
	l.timers[h].Stop()
	l.timers[h] = nil
}

type heapTimer struct {
	at    time.Duration
	index int
}

type heapTimers struct {
	order  []*heapTimer
	timers []*heapTimer
}

func (h *heapTimers) Len() int           { return len(h.order) }
func (h *heapTimers) Less(i, j int) bool { return h.order[i].at < h.order[j].at }
func (h *heapTimers) Swap(i, j int) {
	h.order[i], h.order[j] = h.order[j], h.order[i]
	h.order[i].index, h.order[j].index = i, j
}
func (h *heapTimers) Push(x any) {
	x.(*heapTimer).index = len(h.order)
	h.order = append(h.order, x.(*heapTimer))
}
func (h *heapTimers) Pop() any {
	last := h.order[len(h.order)-1]
	h.order[len(h.order)-1] = nil
	h.order = h.order[:len(h.order)-1]
	return last
}
func (h *heapTimers) add(handle wheel.Handle, in time.Duration) {
	h.timers[handle] = &heapTimer{at: in}
	heap.Push(h, h.timers[handle])
}
func (h *heapTimers) remove(handle wheel.Handle) {
	heap.Remove(h, h.timers[handle].index)
	h.timers[handle] = nil
}

// BenchmarkCompare fills (add), collects (gc) and empties (remove) each rival once
// per iteration, and reports the three per timer and per cycle.
func BenchmarkCompare(b *testing.B) {
	millions := []int{1}
	if os.Getenv("CARILLON_BENCH_10M") != "" {
		millions = append(millions, 10)
	}
	for _, name := range []string{"carillon", "runtime", "heap", "russellluo"} {
		for _, m := range millions {
			b.Run(fmt.Sprintf("%s/n=%dM", name, m), func(b *testing.B) { compare(b, m*1_000_000, rivals(m * 1_000_000)[name]) })
		}
	}
}

func compare(b *testing.B, n int, start func() rival) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	addOrder, removeOrder := rng.Perm(n), rng.Perm(n) // handles less 1
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = time.Millisecond + time.Duration(rng.Int64N(int64(benchSpan)))
	}
	var adding, collecting, removing time.Duration
	var bytes uint64
	for b.Loop() {
		empty := heapBytes()
		r := start()
		began := time.Now()
		for i, h := range addOrder {
			r.add(wheel.Handle(h+1), delays[i])
		}
		adding += time.Since(began)
		bytes += heapBytes() - empty
		began = time.Now()
		runtime.GC()
		collecting += time.Since(began)
		began = time.Now()
		for _, h := range removeOrder {
			r.remove(wheel.Handle(h + 1))
		}
		removing += time.Since(began)
	}
	each := float64(b.N) * float64(n)
	b.ReportMetric(float64(adding.Nanoseconds())/each, "ns/add")
	b.ReportMetric(float64(removing.Nanoseconds())/each, "ns/remove")
	b.ReportMetric(float64(collecting.Microseconds())/1e3/float64(b.N), "ms/gc")
	b.ReportMetric(float64(bytes)/each, "B/timer")
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
