package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

func every(d time.Duration, set ...func(*timer.Repeat)) func(*timer.Command) {
	return func(c *timer.Command) {
		c.Spec.Repeat = &timer.Repeat{EveryMs: d.Milliseconds()}
		for _, f := range set {
			f(c.Spec.Repeat)
		}
	}
}

func cron(zone string) func(*timer.Command) {
	return func(c *timer.Command) { c.Spec.Repeat = &timer.Repeat{Cron: "* * * * *", Zone: zone} }
}

func (r *replica) named(id string) timer.Handle {
	r.t.Helper()
	h, ok := r.table.Lookup(1, id)
	if !ok {
		r.t.Fatalf("there is no %s", id)
	}
	return h
}

func TestSeriesGoesOn(t *testing.T) {
	r := newReplica(t)
	r.add("a", 0, every(time.Minute))
	r.turn()
	r.end(delivery.Outcome{Status: 200})
	if d := r.state(r.named("a"), timer.Scheduled); d.NextMs != startMs+60_000 {
		t.Errorf("the next is due after %d ms", d.NextMs-startMs)
	}
}

func TestMissedOccurrences(t *testing.T) {
	r := newReplica(t)
	r.End()
	skip := func(p *timer.Repeat) { p.CatchUp = timer.CatchUpSkip }
	r.add("skips", 0, every(time.Minute, skip))
	r.now.WallMs += 10*60_000 + 30_000
	r.Begin()
	r.turn()
	r.want("")
	if d := r.state(r.named("skips"), timer.Scheduled); d.NextMs != startMs+11*60_000 {
		t.Errorf("the next is due after %d ms", d.NextMs-startMs)
	}
}

// TestSpreadOccurrenceIsNotMissed: an occurrence is not late while its spread keeps it, also for a
// leader that comes meanwhile. After that it is.
func TestSpreadOccurrenceIsNotMissed(t *testing.T) {
	const ids = "abcdefgh"
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.SpreadMs = 10 * 60_000 })
	skip := func(p *timer.Repeat) { p.CatchUp = timer.CatchUpSkip }
	for i := range ids {
		r.add(ids[i:i+1], 0, every(time.Hour, skip))
	}
	r.pass(5 * time.Minute)
	before := len(r.calls)
	r.endAll()
	r.End()
	r.Begin()
	r.pass(5 * time.Minute)
	if n := len(r.calls); before == 0 || n == 0 || before+n != len(ids) {
		t.Errorf("of %d occurrences %d were called before the change of leaders, %d after it", len(ids), before, n)
	}
	r.endAll()
	r.End()
	r.now.WallMs = startMs + 3_600_000 + 10*60_000 + 11_000
	r.Begin()
	r.turn()
	r.want("")
}

// TestOccurrenceOutsideTheWindowIsNotMissed: an occurrence is not late before the window opens, also
// for a leader that comes meanwhile. One is that no leader called when it opened.
func TestOccurrenceOutsideTheWindowIsNotMissed(t *testing.T) {
	r := newReplica(t)
	// startMs is 22:13:20 UTC.
	r.topic(1, func(p *timer.Policy) { p.Window = &timer.Window{From: "22:15", To: "22:30"} })
	skip := func(p *timer.Repeat) { p.CatchUp = timer.CatchUpSkip }
	r.add("a", 0, every(24*time.Hour, skip))
	r.pass(30 * time.Second)
	r.End()
	r.Begin()
	r.pass(70 * time.Second)
	r.want("a")
	r.endAll()
	r.End()
	r.add("b", 24*3_600_000-100_000, every(24*time.Hour, skip))
	r.now.WallMs = startMs + 24*3_600_000 + 100_000 + missedAfterMs + 1
	r.Begin()
	r.turn()
	r.want("")
	r.now.WallMs += 3_600_000 // the window is shut again
	r.End()
	r.Begin()
	r.turn()
	for _, id := range []string{"a", "b"} {
		if d := r.state(r.named(id), timer.Scheduled); d.NextMs != startMs+2*24*3_600_000 {
			t.Errorf("%s: the next is due after %d ms", id, d.NextMs-startMs)
		}
	}
}

// TestOccurrenceOfABatchIsNotMissed: an occurrence is not late while its call waits for others.
func TestOccurrenceOfABatchIsNotMissed(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Batch = &timer.Batch{Max: 5, WaitMs: 30_000} })
	r.add("a", 0, every(time.Hour, func(p *timer.Repeat) { p.CatchUp = timer.CatchUpSkip }))
	r.pass(20 * time.Second)
	r.End()
	r.Begin()
	r.pass(11 * time.Second)
	r.wantBatches("a")
}

// TestSeriesPassesEveryGate: whatever keeps a topic's timers for a while, and though leaders change
// meanwhile, each occurrence of a series is called once, however it treats those that it missed.
func TestSeriesPassesEveryGate(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"none":               func(*timer.Policy) {},
		"spread":             func(p *timer.Policy) { p.SpreadMs = 60_000 },
		"serial":             func(p *timer.Policy) { p.Serial = true },
		"serial and spread":  func(p *timer.Policy) { p.Serial, p.SpreadMs = true, 60_000 },
		"per key":            perKey(timer.PerKey{Concurrency: 1}),
		"per key and spread": perKey(timer.PerKey{Concurrency: 1}, func(p *timer.Policy) { p.SpreadMs = 60_000 }),
		"rate":               func(p *timer.Policy) { p.Rate = timer.Rate{PerSecond: 5, Burst: 1} },
		"rate and spread":    func(p *timer.Policy) { p.Rate, p.SpreadMs = timer.Rate{PerSecond: 5, Burst: 1}, 60_000 },
		"concurrency":        func(p *timer.Policy) { p.Concurrency = 1 },
		"batch":              func(p *timer.Policy) { p.Batch = &timer.Batch{Max: 50, WaitMs: 30_000} },
		"batch and spread": func(p *timer.Policy) {
			p.Batch, p.SpreadMs = &timer.Batch{Max: 50, WaitMs: 30_000, ByKey: true}, 60_000
		},
	} {
		t.Run(name, func(t *testing.T) {
			const times, interval = 4, 120_000
			r := newReplica(t)
			r.topic(1, set)
			for i := range 5 {
				for mode, set := range map[string]func(*timer.Repeat){
					"one":     func(*timer.Repeat) {},
					"skip":    func(p *timer.Repeat) { p.CatchUp = timer.CatchUpSkip },
					"all":     func(p *timer.Repeat) { p.CatchUp = timer.CatchUpAll },
					"overlap": func(p *timer.Repeat) { p.Overlap = true },
				} {
					r.add(fmt.Sprint(mode, i), 1000, every(interval*time.Millisecond, set, func(p *timer.Repeat) { p.Count = times }))
				}
			}
			called := map[string][]int64{}
			for second := range times*interval/1000 + 60 {
				r.pass(time.Second)
				for _, c := range r.calls {
					called[c.Job.ID] = append(called[c.Job.ID], c.Job.DueMs-startMs-1000)
				}
				for _, b := range r.batches {
					for _, j := range b.Jobs {
						called[j.ID] = append(called[j.ID], j.DueMs-startMs-1000)
					}
				}
				for len(r.batches) > 0 {
					r.endBatch(delivery.Outcome{Status: 200})
				}
				if r.endAll(); second%37 == 36 {
					r.End()
					r.Begin()
				}
			}
			want := []int64{0, interval, 2 * interval, 3 * interval}
			for id, got := range called {
				if !slices.Equal(got, want) {
					t.Errorf("%s was called for %d, want %d", id, got, want)
				}
			}
			if len(called) != 20 {
				t.Errorf("%d of 20 series were called", len(called))
			}
		})
	}
}

// TestOccurrencesOverlap: the next occurrence does not wait for the end of the last, if it may not.
func TestOccurrencesOverlap(t *testing.T) {
	r := newReplica(t)
	r.add("a", 0, every(time.Second, func(p *timer.Repeat) { p.Overlap = true }))
	r.pass(1500 * time.Millisecond)
	r.want("aa")
}

// TestClockIsSetBack: a series that a wrong clock scheduled continues from the right time.
func TestClockIsSetBack(t *testing.T) {
	r := newReplica(t)
	r.now.WallMs += 24 * 3_600_000 // wrong
	r.add("a", 0, every(time.Hour))
	r.add("late", 0, every(time.Hour))
	r.turn()
	r.end(delivery.Outcome{Status: 200})
	r.want("late")
	r.now.WallMs -= 24 * 3_600_000
	r.now.Trust = clocks.Held
	r.turn()
	r.now.Trust = clocks.Sure
	r.apply(func(b *table.Batch) { b.SetClock() })
	r.Rebase()
	r.pass(time.Second)
	if d := r.state(r.named("a"), timer.Scheduled); d.NextMs > r.now.WallMs+3_600_000 {
		t.Errorf("the next is due in %d s", (d.NextMs-r.now.WallMs)/1000)
	}
	r.end(delivery.Outcome{Status: 200})
	r.pass(time.Second)
	if d := r.state(r.named("late"), timer.Scheduled); d.NextMs > r.now.WallMs+3_600_000 {
		t.Errorf("the next is due in %d s", (d.NextMs-r.now.WallMs)/1000)
	}
	if r.table.AwaitsSeries() {
		t.Error("the leader does not end the work")
	}
}

// TestRedrivenOccurrenceDoesNotHoldItsSeries: an occurrence that a wrong clock called, that died and
// was redriven, waits for its time. Its series goes by the right clock meanwhile.
func TestRedrivenOccurrenceDoesNotHoldItsSeries(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 1 })
	r.now.WallMs += 24 * 3_600_000 // wrong
	r.add("a", 0, every(time.Hour))
	for range 2 {
		r.turn()
		r.end(delivery.Outcome{Status: 500})
		r.now.WallMs += 3_600_000
	}
	r.now.WallMs -= 26*3_600_000 + 1
	r.now.Trust = clocks.Held
	r.turn()
	r.now.Trust = clocks.Sure
	r.command(timer.Command{Kind: timer.Redrive, ID: "a"})
	r.apply(func(b *table.Batch) { b.SetClock() })
	r.Rebase()
	r.pass(time.Second)
	series := r.named("a")
	if redriven := r.table.NextLive(series); redriven == 0 || !r.table.Redriven(redriven) {
		t.Fatal("no occurrence is redriven")
	}
	if d := r.state(series, timer.Scheduled); d.NextMs > r.now.WallMs+3_600_000 {
		t.Errorf("the next is due in %d s", (d.NextMs-r.now.WallMs)/1000)
	}
}

// TestUnknownZone: a timer whose zone this node lacks waits, and what is known of it counts.
func TestUnknownZone(t *testing.T) {
	r := newReplica(t)
	r.start(recurrence.Without("Asia/Tokyo"))
	r.Begin()
	a := r.add("a", -1, cron("Asia/Tokyo"))
	b := r.add("b", -2, cron("Asia/Tokyo"))
	r.turn()
	r.want("")
	r.waits(a, timer.WaitZone)
	if r.View.InUnknownZones() != 2 || len(r.zones) != 2 || r.zones[0] != "Asia/Tokyo" {
		t.Errorf("%d timers in %v", r.View.InUnknownZones(), r.zones)
	}
	var sums [1]timer.Counts
	if r.View.Count([]timer.TopicID{1}, sums[:]); sums[0].Waiting[timer.WaitZone] != 2 || sums[0].OldestOverdueMs != 2 {
		t.Errorf("counts: %+v", sums[0])
	}
	at, overdue := 0, int64(0)
	r.View.Overdue(&at, func(_ timer.TopicID, timers, _ int64) { overdue += timers })
	if overdue != 2 {
		t.Errorf("%d are overdue", overdue)
	}
	r.RearmAll()
	r.turn()
	if n := len(r.Scheduler.zones.list); n != 2 || r.View.InUnknownZones() != 2 {
		t.Errorf("%d entries for %d timers after all were rearmed", n, r.View.InUnknownZones())
	}
	r.command(timer.Command{Kind: timer.Cancel, ID: "b"})
	r.pass(zoneRetry + time.Second)
	if r.View.InUnknownZones() != 1 {
		t.Errorf("%d timers", r.View.InUnknownZones())
	}
	r.command(timer.Command{Kind: timer.Cancel, ID: "a"})
	r.pass(zoneRetry + time.Second)
	if r.View.InUnknownZones() != 0 {
		t.Errorf("%d timers, of %d", r.View.InUnknownZones(), b)
	}
}

func TestWindow(t *testing.T) {
	r := newReplica(t)
	// startMs is 22:13:20 UTC.
	r.topic(1, func(p *timer.Policy) { p.Window = &timer.Window{From: "22:14", To: "22:15"} })
	a := r.add("a", 0)
	r.turn()
	r.want("")
	r.waits(a, timer.WaitWindow)
	var sum timer.Waiting
	at := 0
	if r.View.Waiting(&at, &sum); sum[timer.WaitWindow] != 1 {
		t.Errorf("they wait for %v", sum)
	}
	if wake := r.NextWake(); wake != startMs+40_000 {
		t.Errorf("it runs next in %d ms", wake-startMs)
	}
	r.pass(39 * time.Second)
	r.want("")
	r.pass(time.Second)
	r.want("a")
	r.pass(59 * time.Second)
	b := r.add("b", 1015)
	r.pass(999 * time.Millisecond)
	r.state(b, timer.Leased) // ahead of its time
	r.pass(time.Second)
	r.state(b, timer.Scheduled)
	r.want("a")
	r.topic(1, func(p *timer.Policy) { p.Pull, p.Window = true, &timer.Window{From: "23:00"} })
	r.turn()
	if got := r.pull(1, 1); got != nil {
		t.Errorf("pulled %v while the window is shut", got)
	}
}

func TestWindowInAnUnknownZone(t *testing.T) {
	r := newReplica(t)
	r.start(recurrence.Without("Asia/Tokyo"))
	r.Begin()
	r.topic(1, func(p *timer.Policy) { p.Window = &timer.Window{Zone: "Asia/Tokyo"} })
	r.add("a", 0)
	r.pass(10 * time.Second)
	r.want("")
	r.topic(1, func(p *timer.Policy) { p.Pull, p.Window = true, &timer.Window{Zone: "Asia/Tokyo"} })
	for range 100 {
		r.pass(time.Millisecond)
		if got := r.pull(1, 1); got != nil {
			t.Fatalf("pulled %v", got)
		}
	}
	if n := r.Scheduler.windows.shut.len(); n > 2 {
		t.Errorf("the topic waits %d times for its window", n)
	}
}

// TestWindowAcrossAClockSetBack: a topic whose window was shut by a clock that was ahead has its turn
// when the window opens by the right one.
func TestWindowAcrossAClockSetBack(t *testing.T) {
	for _, logged := range []bool{false, true} { // the table has the wrong time
		r := newReplica(t)
		r.topic(1, func(p *timer.Policy) { p.Window = &timer.Window{From: "22:14", To: "22:15"} })
		r.add("a", 0)
		r.now.WallMs += 24 * 3_600_000
		r.turn()
		if logged {
			r.apply(func(b *table.Batch) { b.Tick() })
		}
		r.turn()
		r.want("")
		r.now.WallMs -= 24 * 3_600_000
		if logged {
			r.apply(func(b *table.Batch) { b.SetClock() })
			r.Rebase()
		}
		r.pass(39 * time.Second)
		r.want("")
		r.pass(2 * time.Second)
		r.want("a")
	}
}
