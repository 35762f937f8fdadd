package wheel

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
)

// Benchmarks at 1 and 10 million pending timers (the latter with
// CARILLON_BENCH_10M=1), all due within the next hour. Handles come in random
// order, as from a table in long use: the worst case for the cache.
const benchStart Tick = 1_800_000_000_000
const benchSpan = 3_600_000 // ms

func eachSize(b *testing.B, run func(b *testing.B, n int)) {
	b.Run("n=1M", func(b *testing.B) { run(b, 1_000_000) })
	b.Run("n=10M", func(b *testing.B) {
		if os.Getenv("CARILLON_BENCH_10M") == "" {
			b.Skip("set CARILLON_BENCH_10M=1")
		}
		run(b, 10_000_000)
	})
}

// shuffled returns 1…n in random order.
func shuffled(n int) []Handle {
	order := make([]Handle, n)
	for i := range order {
		order[i] = Handle(i + 1)
	}
	shuffle(order)
	return order
}

func shuffle(order []Handle) {
	rng := rand.New(rand.NewPCG(1, uint64(len(order))))
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
}

// ticks is a cheap random source: splitmix64.
type ticks uint64

func (t *ticks) next() Tick {
	*t += 0x9e3779b97f4a7c15
	z := uint64(*t)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return benchStart + 1 + Tick((z^z>>31)>>32*benchSpan>>32)
}

func filled(order []Handle, rng *ticks) *Wheel {
	w := New(benchStart)
	for _, h := range order {
		w.Add(h, rng.next())
	}
	return w
}

// BenchmarkAdd adds to a wheel of n; every eighth handle is free at the start.
func BenchmarkAdd(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		rng := ticks(1)
		order := shuffled(n + n/8)
		w := filled(order, &rng)
		shuffle(order) // random order, so that list neighbours are not memory neighbours
		free := order[n:]
		i := len(free)
		b.ReportAllocs()
		for b.Loop() {
			if i == len(free) {
				b.StopTimer()
				for _, h := range free {
					w.Remove(h)
				}
				i = 0
				b.StartTimer()
			}
			w.Add(free[i], rng.next())
			i++
		}
	})
}

// BenchmarkAddDense fills an empty wheel with handles in order: a young table.
func BenchmarkAddDense(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		rng := ticks(1)
		w := New(benchStart)
		b.ReportAllocs()
		for b.Loop() {
			if w.Len() == n {
				b.StopTimer()
				w = New(benchStart)
				runtime.GC()
				b.StartTimer()
			}
			w.Add(Handle(w.Len()+1), rng.next())
		}
	})
}

func BenchmarkRemove(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		rng := ticks(1)
		order := shuffled(n + n/8)
		w := filled(order, &rng)
		shuffle(order)
		busy := order[n:]
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			if i == len(busy) {
				b.StopTimer()
				for _, h := range busy {
					w.Add(h, rng.next())
				}
				shuffle(order)
				busy, i = order[n:], 0
				b.StartTimer()
			}
			w.Remove(busy[i])
			i++
		}
	})
}

func BenchmarkMove(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		rng := ticks(1)
		order := shuffled(n)
		w := filled(order, &rng)
		shuffle(order)
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			w.Move(order[i], rng.next())
			if i++; i == n {
				b.StopTimer()
				shuffle(order)
				i = 0
				b.StartTimer()
			}
		}
	})
}

// BenchmarkExpire lets a wheel of n run out, 1 ms at a time in slices of 10,000:
// all cascades, the walk through the hour and Pop, per timer.
func BenchmarkExpire(b *testing.B) {
	for _, shape := range []string{"random", "dense"} {
		b.Run(shape, func(b *testing.B) {
			eachSize(b, func(b *testing.B, n int) { benchmarkExpire(b, n, shape == "dense") })
		})
	}
}

func benchmarkExpire(b *testing.B, n int, dense bool) {
	rng := ticks(1)
	order := shuffled(n)
	if dense {
		for i := range order {
			order[i] = Handle(i + 1)
		}
	}
	out := make([]Handle, 4096)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		w := filled(order, &rng)
		runtime.GC()
		b.StartTimer()
		for to := benchStart; w.Len() > 0; to++ {
			for done := false; !done; {
				_, done = w.Advance(to, 10_000)
			}
			for w.Due() > 0 {
				w.Pop(out)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/timer")
}

// BenchmarkGC is a whole forced collection while n timers are pending.
func BenchmarkGC(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		rng := ticks(1)
		w := filled(shuffled(n), &rng)
		runtime.GC()
		for b.Loop() {
			runtime.GC()
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/1e3/float64(b.N), "ms/cycle")
		runtime.KeepAlive(w)
	})
}

// BenchmarkBytes reports the memory of n timers.
func BenchmarkBytes(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		for b.Loop() {
			before := heapBytes()
			rng := ticks(1)
			w := New(benchStart)
			for h := range Handle(n) {
				w.Add(h+1, rng.next())
			}
			b.ReportMetric(float64(heapBytes()-before)/float64(n), "B/timer")
			runtime.KeepAlive(w)
		}
	})
}

func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkSameTick makes 50,000 timers of one tick due and hands them out, beside n others. The
// tick is 10 s ahead when they are added; the last second is measured: two cascades, the due tick
// and Pop.
func BenchmarkSameTick(b *testing.B) {
	const herd = 50_000
	eachSize(b, func(b *testing.B, n int) {
		rng := ticks(1)
		order := shuffled(n + herd)
		w := New(benchStart)
		for _, h := range order[:n] {
			w.Add(h, rng.next()+1<<40) // decades away
		}
		out := make([]Handle, herd)
		at := benchStart
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			at = (at + 10_000) | 4095 - 33
			for _, h := range order[n:] {
				w.Add(h, at)
			}
			w.Advance(at-4_062, 1<<30)
			b.StartTimer()
			w.Advance(at, 1<<30)
			if got := w.Pop(out); got != herd {
				b.Fatalf("popped %d of %d", got, herd)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/1e3/float64(b.N), "ms/herd")
	})
}
