//go:build !race

package shard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/test/memfs"
	"carillon/test/testkit/growth"
	"carillon/timer"
)

// herd is a shard with many timers that are due at one instant.
type herd struct {
	*hostHarness
	due   int64
	calls int // that were made
}

const (
	herdDelay = time.Minute
	herdChunk = 2_000 // commands that are submitted at once
)

func emptyHerd(t testing.TB, change func(*hostHarness)) *herd {
	h := &herd{hostHarness: makeHarness(t, memfs.New(), nil)}
	if change != nil {
		change(h.hostHarness)
	}
	h.mustOpen()
	h.hostHarness.calls.auto = 200
	h.due = h.clock.wallMs + herdDelay.Milliseconds()
	return h
}

// newHerd adds n timers as spec has them, all due herdDelay from now.
func newHerd(t testing.TB, n int, topic func(*timer.Topic), command func(i int, c *timer.Command)) *herd {
	t.Helper()
	h := emptyHerd(t, nil)
	if topic != nil {
		h.topic(1, topic)
		h.topicsChanged()
	}
	return h.add(n, command)
}

func (h *herd) add(n int, command func(i int, c *timer.Command)) *herd {
	h.t.Helper()
	h.many(n, func(i int) timer.Command {
		c := timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Content: uint64(i), Spec: &timer.Spec{DueMs: h.due}}
		if command != nil {
			command(i, &c)
		}
		return c
	})
	return h
}

// many submits n commands, of which none may fail.
func (h *herd) many(n int, command func(i int) timer.Command) {
	h.t.Helper()
	for from := 0; from < n; from += herdChunk {
		var asked []*pending
		for i := from; i < min(from+herdChunk, n); i++ {
			asked = append(asked, h.mustSubmit(command(i)))
		}
		h.runIdle()
		for _, p := range asked {
			if !p.answered() || p.op.err != nil {
				h.t.Fatalf("%v %s: %v", p.cmd.Kind, p.cmd.ID, p.op.err)
			}
		}
	}
}

// longest runs the shard until it is idle and returns its longest turn.
func (h *herd) longest() time.Duration {
	h.t.Helper()
	turns := 0
	return growth.LongestStep(h.t, func() bool {
		if !h.busy() {
			return false
		}
		if turns++; turns > 1_000_000 {
			h.t.Fatal("the host does not come to rest")
		}
		h.host.workers[0].turn()
		return true
	}, func() {
		if _, err := h.host.stream.Step(); err != nil {
			h.t.Fatal(err)
		}
		// What the harness remembers would be part of the next turn.
		h.calls += len(h.hostHarness.calls.take())
		h.hostHarness.calls.held()
		clear(h.hostHarness.calls.seen)
	})
}

// comesDue lets the instant come and pass, and returns the longest turn meanwhile.
func (h *herd) comesDue() (longest time.Duration) {
	h.t.Helper()
	h.step(herdDelay - time.Second)
	longest = h.longest()
	for range 20 {
		h.step(100 * time.Millisecond)
		longest = max(longest, h.longest())
	}
	return longest
}

// called is comesDue, after which n calls must have been made.
func (h *herd) called(n int) time.Duration {
	h.t.Helper()
	longest := h.comesDue()
	if h.calls != n {
		h.t.Fatalf("%d calls were made, want %d", h.calls, n)
	}
	return longest
}

// asked returns the longest turn of one command.
func (h *herd) asked(c timer.Command) time.Duration {
	h.t.Helper()
	p := h.mustSubmit(c)
	longest := h.longest()
	if !p.answered() || p.op.err != nil {
		h.t.Fatalf("%v %s: %v", c.Kind, c.ID, p.op.err)
	}
	return longest
}

// leadsAgain is the longest turn while the shard loses its leader, which leads again then.
func (h *herd) leadsAgain() time.Duration {
	h.t.Helper()
	h.stepDown()
	return h.untilItLeads(h.longest())
}

// untilItLeads is the longest turn until the shard leads again.
func (h *herd) untilItLeads(longest time.Duration) time.Duration {
	h.t.Helper()
	for n := 0; !h.host.group(1).serving; n++ {
		if n == 100 {
			h.t.Fatal("it does not lead again")
		}
		h.step(100 * time.Millisecond)
		longest = max(longest, h.longest())
	}
	return longest
}

// answered is the longest turn after all calls that run have ended at one instant.
func (h *herd) answered(a delivery.Outcome) time.Duration {
	h.t.Helper()
	d := h.hostHarness.calls
	running := d.running
	d.running = nil
	for _, c := range running {
		c.ended = true
		d.free(c.permit.dest, c.url)
		a.StartedMs, a.EndedMs = c.wallMs, h.clock.wallMs
		c.done(a)
	}
	return h.longest()
}

func receiverOf(i int) string { return fmt.Sprintf("http://receiver-%d/", i) }

func ownReceiver(i int, c *timer.Command) { c.Spec.Callback.URL = receiverOf(i) }

// touches is the longest turn of an add, a change of the due time, a cancel and a change of the
// topic, in a shard that is full of something.
func (h *herd) touches() time.Duration {
	h.t.Helper()
	longest := h.asked(timer.Command{Kind: timer.Add, Topic: 1, ID: "one more", Spec: &timer.Spec{DueMs: h.due}})
	longest = max(longest, h.asked(timer.Command{Kind: timer.Put, Topic: 1, ID: "one more", Spec: &timer.Spec{DueMs: h.due + 1}}))
	longest = max(longest, h.asked(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "one more"}))
	h.host.TopicsChanged()
	return max(longest, h.longest())
}

// someZones are 64 zones of different rules.
var someZones = strings.Fields(`
	Africa/Cairo Africa/Casablanca Africa/Lagos Africa/Nairobi Africa/Johannesburg Africa/Tunis Africa/Algiers Africa/Monrovia
	America/New_York America/Chicago America/Denver America/Los_Angeles America/Anchorage America/Halifax America/St_Johns America/Sao_Paulo
	America/Bogota America/Lima America/Caracas America/Santiago America/Mexico_City America/Havana America/Panama America/Toronto
	America/Vancouver America/Montevideo America/Asuncion America/La_Paz America/Guatemala America/Nuuk America/Regina America/Phoenix
	Asia/Tokyo Asia/Shanghai Asia/Kolkata Asia/Dubai Asia/Tehran Asia/Karachi Asia/Dhaka Asia/Bangkok
	Asia/Singapore Asia/Manila Asia/Seoul Asia/Kathmandu Asia/Jerusalem Asia/Baghdad Asia/Yekaterinburg Asia/Vladivostok
	Europe/London Europe/Berlin Europe/Paris Europe/Madrid Europe/Rome Europe/Athens Europe/Moscow Europe/Istanbul
	Australia/Sydney Australia/Perth Australia/Adelaide Australia/Lord_Howe Pacific/Auckland Pacific/Honolulu Pacific/Chatham Pacific/Apia`)

// TestLongestTurnOfEachDimension: nothing of which a user may have many in a shard makes one of its
// turns long.
func TestLongestTurnOfEachDimension(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const n, receivers = 8_000, 4_000
	serial := func(t *timer.Topic) { t.Policy.Serial = true }
	perKey := func(k timer.PerKey) func(*timer.Topic) { return func(t *timer.Topic) { t.Policy.PerKey = &k } }
	growth.Check(t,
		growth.Dimension{Name: "receivers", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			return newHerd(t, n, nil, ownReceiver).called(n)
		}},
		growth.Dimension{Name: "receivers that are down", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, ownReceiver)
			for i := range n {
				h.hostHarness.calls.dest(receiverOf(i)).retryIn = time.Hour
			}
			return max(h.comesDue(), h.touches())
		}},
		growth.Dimension{Name: "receivers that are busy", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, ownReceiver)
			for i := range n {
				d := h.hostHarness.calls.dest(receiverOf(i))
				d.slots, d.used = 1, 1
			}
			return max(h.comesDue(), h.touches())
		}},
		growth.Dimension{Name: "keys", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			return newHerd(t, n, serial, func(i int, c *timer.Command) { c.ID = fmt.Sprintf("{k%d}", i) }).called(n)
		}},
		growth.Dimension{Name: "timers of a key", N: receivers, Longest: func(t testing.TB, n int) time.Duration {
			return newHerd(t, n, serial, func(i int, c *timer.Command) { c.ID = fmt.Sprintf("{k}%d", i) }).called(n)
		}},
		growth.Dimension{Name: "cancelled timers of a key", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, serial, func(i int, c *timer.Command) { c.ID = fmt.Sprintf("{k}%d", i) })
			h.hostHarness.calls.auto = 0 // the first one runs
			longest := h.comesDue()
			for from := 0; from < n; from += herdChunk / 4 { // as a bulk change does, the last first
				for i := from; i < min(from+herdChunk/4, n-1); i++ {
					h.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: fmt.Sprintf("{k}%d", n-1-i)})
				}
				longest = max(longest, h.longest())
			}
			if left := h.table().Totals(); left.Scheduled+left.Leased != 1 {
				t.Errorf("%+v are left", left)
			}
			return max(longest, h.touches())
		}},
		growth.Dimension{Name: "keys that take turns", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, perKey(timer.PerKey{Fair: true, Concurrency: 1}), func(i int, c *timer.Command) { c.ID = fmt.Sprintf("{k%d}%d", i/2, i) })
			return max(h.called(n), h.touches())
		}},
		growth.Dimension{Name: "timers of a key in turn", N: receivers, Longest: func(t testing.TB, n int) time.Duration {
			return newHerd(t, n, perKey(timer.PerKey{Fair: true}), func(i int, c *timer.Command) { c.ID = fmt.Sprintf("{k}%d", i) }).called(n)
		}},
		growth.Dimension{Name: "receivers of a key with a limit", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, perKey(timer.PerKey{Fair: true, Concurrency: 64}), func(i int, c *timer.Command) {
				c.ID = fmt.Sprintf("{k}%d", i)
				ownReceiver(i, c)
			})
			return h.called(n)
		}},
		growth.Dimension{Name: "keys at their rate", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, perKey(timer.PerKey{Rate: timer.Rate{PerSecond: 0.001, Burst: 1}}), func(i int, c *timer.Command) { c.ID = fmt.Sprintf("{k%d}%d", i/2, i) })
			return max(h.comesDue(), h.touches())
		}},
		growth.Dimension{Name: "ids", N: n, Longest: func(t testing.TB, n int) time.Duration {
			return newHerd(t, n, nil, nil).touches()
		}},
		growth.Dimension{Name: "dead letters of an id", N: 500, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, 0, func(t *timer.Topic) { t.Policy.MaxAttempts = 1 }, nil)
			h.hostHarness.calls.auto = 500
			for range n {
				h.do(timer.Command{Kind: timer.Add, ID: "x", Spec: &timer.Spec{DueMs: h.clock.wallMs}})
				h.runIdle()
			}
			h.do(timer.Command{Kind: timer.Add, ID: "x", Spec: &timer.Spec{DueMs: h.due}})
			for range 200 { // as one batch
				h.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "x"})
			}
			return h.longest()
		}},
		growth.Dimension{Name: "arrays of an id", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Paused = true }, func(_ int, c *timer.Command) {
				c.ID, c.Merge = "x", timer.MergeCollect
				c.Spec.PayloadKind, c.Spec.Payload, c.Spec.Collect = timer.JSONPayload, []byte("1"), &timer.Collect{Max: 1}
			})
			longest := max(h.comesDue(), h.touches())
			var seqs []uint64
			for a := h.table().Find(1, []byte("x")); a != 0; a = h.table().NextLive(a) {
				seqs = append(seqs, h.table().Due(a).Seq)
			}
			for i := range 1000 { // as one batch, the oldest
				h.mustSubmit(timer.Command{Kind: timer.Pause, Topic: 1, ID: "x", Seq: seqs[len(seqs)-1-i]})
			}
			longest = max(longest, h.longest())
			longest = max(longest, growth.LongestStep(t, func() bool { // a page
				for _, seq := range seqs[:1000] {
					h.table().Named(1, []byte("x"), seq)
				}
				for _, seq := range seqs[len(seqs)-1000:] {
					h.table().Named(1, []byte("x"), seq)
				}
				return false
			}, func() {}))
			longest = max(longest, h.asked(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "x"}))
			if left := h.table().Totals().Scheduled; left != 0 {
				t.Errorf("%d are left of what was cancelled", left)
			}
			return longest
		}},
		growth.Dimension{Name: "labels", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, func(i int, c *timer.Command) {
				for j := range 16 {
					c.Spec.Labels = append(c.Spec.Labels, fmt.Sprintf("label-%d-%d", i, j))
				}
			})
			return max(h.touches(), h.called(n))
		}},
		growth.Dimension{Name: "headers", N: 4, Linear: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, 500, nil, func(_ int, c *timer.Command) {
				c.Spec.Callback.HasHeaders = true
				for j := range n {
					c.Spec.Callback.Headers = append(c.Spec.Callback.Headers, timer.Header{Name: fmt.Sprintf("X-%d", j), Value: "value"})
				}
			})
			return h.called(500)
		}},
		growth.Dimension{Name: "topics", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, 0, nil, nil)
			for i := range n {
				h.topic(timer.TopicID(i+1), nil)
			}
			h.topicsChanged()
			h.many(n, func(i int) timer.Command {
				return timer.Command{Kind: timer.Add, Topic: timer.TopicID(i + 1), ID: "x", Spec: &timer.Spec{DueMs: h.due}}
			})
			return max(h.touches(), h.called(n))
		}},
		// Each has a limit, and keys with a rate.
		growth.Dimension{Name: "topics of a new leader", N: 8_000, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, 0, nil, nil)
			for i := range n {
				h.topic(timer.TopicID(i+1), func(t *timer.Topic) {
					t.Policy.Concurrency, t.Policy.PerKey = 1, &timer.PerKey{Rate: timer.Rate{PerSecond: 1, Burst: 1}}
				})
			}
			h.topicsChanged()
			h.many(n, func(i int) timer.Command {
				return timer.Command{Kind: timer.Add, Topic: timer.TopicID(i + 1), ID: "x", Spec: &timer.Spec{DueMs: h.due}}
			})
			longest := h.leadsAgain()
			h.called(n)
			return max(longest, h.leadsAgain()) // while each has a queue
		}},
		// A scrape counts what waits, a slice in each turn. Each topic has a receiver that is down.
		growth.Dimension{Name: "topics at a scrape", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, 0, nil, nil)
			for i := range n {
				h.topic(timer.TopicID(i+1), nil)
				h.hostHarness.calls.dest(receiverOf(i + 1)).retryIn = time.Hour
			}
			h.topicsChanged()
			h.many(n, func(i int) timer.Command {
				return timer.Command{Kind: timer.Add, Topic: timer.TopicID(i + 1), ID: "x", Spec: &timer.Spec{DueMs: h.due}}
			})
			longest := h.comesDue()
			var waiting timer.Waiting
			overdue, at := int64(0), 0
			longest = max(longest, growth.LongestStep(t, func() bool {
				same := at
				h.scheduler().View.Overdue(&same, func(_ timer.TopicID, timers, _ int64) { overdue += timers })
				return !h.scheduler().View.Waiting(&at, &waiting)
			}, func() {}))
			if sum := waiting[timer.WaitBreaker]; sum != int64(n) || overdue != sum {
				t.Errorf("%d wait for a breaker, %d are overdue, want %d", sum, overdue, n)
			}
			return longest
		}},
		growth.Dimension{Name: "series of one instant", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, func(_ int, c *timer.Command) { c.Spec.Repeat = &timer.Repeat{EveryMs: 60_000} })
			return h.called(n)
		}},
		growth.Dimension{Name: "zones", N: len(someZones) / 8, Longest: func(t testing.TB, n int) time.Duration {
			h := emptyHerd(t, nil)
			h.add(4_000, func(i int, c *timer.Command) { c.Spec.Repeat = &timer.Repeat{Cron: "* * * * *", Zone: someZones[i%n]} })
			return h.called(4_000)
		}},
		growth.Dimension{Name: "expiries of one instant", N: n, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Paused = true }, func(_ int, c *timer.Command) { c.Spec.ExpiresAfterMs, c.Spec.HasExpiry = 500, true })
			longest := h.comesDue()
			if counts := h.table().Counts(1); counts.Scheduled > 0 {
				t.Fatalf("not all have expired: %+v", counts)
			}
			return longest
		}},
		growth.Dimension{Name: "timers of a paused topic", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Paused = true }, nil)
			longest := max(h.comesDue(), h.touches())
			h.topic(1, nil)
			h.host.TopicsChanged()
			return max(longest, h.longest())
		}},
		growth.Dimension{Name: "timers that wait for their spread", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			spread := func(d time.Duration) func(*timer.Topic) {
				return func(t *timer.Topic) { t.Policy.SpreadMs = d.Milliseconds() }
			}
			h := newHerd(t, n, spread(10*time.Hour), nil)
			longest := h.comesDue()
			if waits, _ := h.table().WheelWaits(1); waits.Spread < int64(n)*9/10 {
				t.Fatalf("%d of %d wait", waits.Spread, n)
			}
			for _, d := range []time.Duration{20 * time.Hour, time.Hour} {
				h.topic(1, spread(d))
				h.host.TopicsChanged(1)
				longest = max(longest, h.longest())
			}
			return longest
		}},
		growth.Dimension{Name: "timers that ended at one instant", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, nil)
			longest := h.called(n)
			h.step((timer.KeptMs + 1000) * time.Millisecond)
			return max(longest, h.longest(), h.touches())
		}},
		growth.Dimension{Name: "timers that are paused", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, nil)
			h.many(n, func(i int) timer.Command { return timer.Command{Kind: timer.Pause, Topic: 1, ID: fmt.Sprint(i)} })
			longest := max(h.comesDue(), h.touches())
			h.calls = 0 // those of the timer that touches adds
			for i := range n {
				h.mustSubmit(timer.Command{Kind: timer.Resume, Topic: 1, ID: fmt.Sprint(i)})
				if i%herdChunk == 0 || i == n-1 {
					longest = max(longest, h.longest())
				}
			}
			if h.calls != n {
				t.Errorf("%d calls were made, want %d", h.calls, n)
			}
			return longest
		}},
		growth.Dimension{Name: "batches that gather", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Policy.Batch = &timer.Batch{Max: 100, WaitMs: 500, ByKey: true} }, func(i int, c *timer.Command) {
				c.ID = fmt.Sprintf("{k%d}", i)
				ownReceiver(i, c)
			})
			longest := max(h.touches(), h.comesDue())
			if h.hostHarness.calls.batched != n {
				t.Errorf("%d timers were in calls, want %d", h.hostHarness.calls.batched, n)
			}
			return longest
		}},
		growth.Dimension{Name: "windows that open at one instant", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, 0, nil, nil)
			opens := time.UnixMilli(h.due).UTC().Truncate(time.Minute).Add(2 * time.Minute)
			for i := range n {
				h.topic(timer.TopicID(i+1), func(t *timer.Topic) { t.Policy.Window = &timer.Window{From: opens.Format("15:04")} })
			}
			h.topicsChanged()
			h.many(n, func(i int) timer.Command {
				return timer.Command{Kind: timer.Add, Topic: timer.TopicID(i + 1), ID: "x", Spec: &timer.Spec{DueMs: h.due}}
			})
			longest := max(h.comesDue(), h.touches())
			if h.calls != 0 {
				t.Errorf("%d calls were made before the windows open", h.calls)
			}
			h.step(opens.Sub(time.UnixMilli(h.clock.wallMs)) - time.Second)
			for range 20 {
				h.step(100 * time.Millisecond)
				longest = max(longest, h.longest())
			}
			if h.calls != n {
				t.Errorf("%d calls were made, want %d", h.calls, n)
			}
			return longest
		}},
		growth.Dimension{Name: "timers to pull", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Policy.Pull = true }, nil)
			longest := h.comesDue()
			for range 3 {
				h.host.SubmitPull(1, 1, 100, 0, func(taken []timer.PulledTimer, err error) {
					if err != nil || len(taken) != 100 {
						t.Errorf("pulled %d, %v", len(taken), err)
					}
				})
				longest = max(longest, h.longest())
			}
			return longest
		}},
		// Beside them other topics become due, each with limits of its own.
		growth.Dimension{Name: "calls that run", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, nil)
			h.hostHarness.calls.auto = 0
			longest := h.called(n)
			for i := range 100 {
				h.topic(timer.TopicID(i+2), func(t *timer.Topic) { t.Policy.Serial, t.Policy.Concurrency = true, 1 })
			}
			h.topicsChanged()
			h.due = h.clock.wallMs + herdDelay.Milliseconds()
			h.many(100, func(i int) timer.Command {
				return timer.Command{Kind: timer.Add, Topic: timer.TopicID(i + 2), ID: "x", Spec: &timer.Spec{DueMs: h.due}}
			})
			return max(longest, h.touches(), h.called(n+100))
		}},
		growth.Dimension{Name: "calls that end at one instant", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, nil)
			h.hostHarness.calls.auto = 0
			h.called(n)
			longest := h.answered(delivery.Outcome{Err: "connection reset by peer"})
			if counts := h.table().Counts(1); counts.Leased > 0 {
				t.Errorf("%d have no outcome", counts.Leased)
			}
			return longest
		}},
		growth.Dimension{Name: "calls of a former leader", N: receivers, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, nil)
			h.hostHarness.calls.auto = 0
			h.called(n)
			h.stepDown()
			h.longest()
			longest := h.answered(delivery.Outcome{Status: 200})
			longest = h.untilItLeads(longest)
			if counts := h.table().Counts(1); counts.Done != int64(n) {
				t.Errorf("%+v: want all done", counts)
			}
			return longest
		}},
		growth.Dimension{Name: "leases of consumers", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Policy.Pull = true }, nil)
			h.comesDue()
			var leases []timer.PulledTimer
			for range n / 1000 {
				h.host.SubmitPull(1, 1, 1000, 0, func(taken []timer.PulledTimer, err error) { leases = append(leases, taken...) })
				h.runIdle()
			}
			if len(leases) != n {
				t.Fatalf("%d leases, want %d", len(leases), n)
			}
			var longest time.Duration
			for i, v := range append(leases, leases[:n/4]...) {
				h.mustSubmit(timer.Command{Kind: timer.ExtendLease, Topic: 1, Claim: &timer.LeaseUpdate{Handle: v.Handle, Seq: v.Timer.Seq, Fence: v.Timer.Fence, LeaseMs: int64(60_000 + i)}})
				if i%1000 == 999 {
					longest = max(longest, h.longest())
				}
			}
			return longest
		}},
		// Their leader steps down, and leads again.
		growth.Dimension{Name: "leases of consumers at a limit", N: n, Cold: true, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, func(t *timer.Topic) { t.Policy.Pull, t.Policy.Concurrency = true, 1<<20 }, nil)
			h.comesDue()
			leases := 0
			for range n / 1000 {
				h.host.SubmitPull(1, 1, 1000, time.Hour.Milliseconds(), func(taken []timer.PulledTimer, err error) { leases += len(taken) })
				h.runIdle()
			}
			longest := h.leadsAgain()
			for range 50 {
				h.step(100 * time.Millisecond)
				longest = max(longest, h.longest())
			}
			if counted := h.host.Held(1); leases != n || counted != n {
				t.Errorf("%d leases, %d are counted, want %d", leases, counted, n)
			}
			return longest
		}},
		growth.Dimension{Name: "operations at once", N: 2_400, Longest: func(t testing.TB, n int) time.Duration {
			h := newHerd(t, n, nil, ownReceiver)
			for i := range n {
				h.mustSubmit(timer.Command{Kind: timer.Cancel, Topic: 1, ID: fmt.Sprint(i)})
			}
			return h.longest()
		}},
		// 4,096 shards on two workers. Each has raft's ticks.
		growth.Dimension{Name: "shards", N: 256, Linear: true, Longest: func(t testing.TB, n int) time.Duration {
			h := emptyHerd(t, func(r *hostHarness) { r.change = func(c *Config) { c.Shards = n } })
			h.pass(20 * time.Second) // all began together
			longest := h.touches()
			for range 50 {
				h.step(100 * time.Millisecond)
				longest = max(longest, h.longest())
			}
			return longest
		}},
	)
}
