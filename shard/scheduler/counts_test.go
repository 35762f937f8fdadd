package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
)

// counts checks the counts of topic 1 against a walk over its timers: how many are due and wait,
// since when the oldest of them does, and for what each of them waits. With roughly, the reasons
// that depend on the receiver count as one.
func (r *replica) counts(doing string, roughly bool) {
	r.t.Helper()
	r.leasesOfTopics(doing)
	var want, got timer.Waiting
	var ready, oldest int64
	for h := timer.Handle(1); h <= r.table.LastHandle(); h++ {
		d := r.table.Due(h)
		f := r.Leases.byTimer[h]
		if d.Topic != 1 || d.State != timer.Scheduled || f != nil && f.seq == d.Seq && f.phase == proposed || r.Pulls.reserved[h].seq == d.Seq {
			continue
		}
		w := r.View.Standing(h)
		if !d.Paused || d.NextMs <= r.now.WallMs { // what a client holds counts once it is due
			want[w.For]++
		}
		in := d.NextMs + r.due.spread(r.View.queueOf(1), &d, h) - r.now.WallMs
		if ahead := r.due.lookAhead.Milliseconds(); in > 0 && in <= ahead || d.ExpiresMs != 0 && d.ExpiresMs-r.now.WallMs <= ahead+1 {
			return // it may have left the wheel, and counts as due then
		}
		if in <= 0 && !d.Paused && !d.Behind {
			ready++
			oldest = max(oldest, -in)
		}
	}
	var sums [1]timer.Counts
	r.View.Count([]timer.TopicID{1}, sums[:])
	got = sums[0].Waiting
	want[timer.NoWait], got[timer.NoWait] = 0, 0
	if roughly {
		for _, w := range []*timer.Waiting{&want, &got} {
			for _, cause := range []timer.WaitCause{timer.WaitBreaker, timer.WaitSlots, timer.WaitTurn, timer.WaitConcurrency} {
				w[timer.WaitLeader] += w[cause]
				w[cause] = 0
			}
		}
	}
	if sums[0].OldestOverdueMs != oldest {
		r.t.Fatalf("%s: the oldest has waited for %d ms, want %d", doing, sums[0].OldestOverdueMs, oldest)
	}
	if sums[0].Ready != ready || got != want {
		text := ""
		for _, cause := range timer.WaitCauses() {
			if got[cause] != want[cause] {
				text += fmt.Sprintf(" %s %d, want %d;", cause, got[cause], want[cause])
			}
		}
		r.t.Fatalf("%s: %d ready, want %d;%s", doing, sums[0].Ready, ready, text)
	}
}

// leasesOfTopics checks that each topic has its leases, and how many of them clients do not see.
func (r *replica) leasesOfTopics(doing string) {
	r.t.Helper()
	all, unseen := map[*topicQueue]int{}, map[*topicQueue]int{}
	for _, f := range r.Leases.byTimer {
		all[f.queue.queue]++
		if f.hidden() {
			unseen[f.queue.queue]++
		}
	}
	sum := 0
	for q, n := range all {
		if sum += unseen[q]; q.leases.Len() != n || q.unseen != unseen[q] {
			r.t.Fatalf("%s: topic %d has %d leases, want %d; %d are not seen, want %d", doing, q.id, q.leases.Len(), n, q.unseen, unseen[q])
		}
	}
	for _, q := range r.Scheduler.topics.list {
		if all[q] == 0 && q.leases.Len()+q.unseen != 0 {
			r.t.Fatalf("%s: topic %d has %d leases, %d not seen, want none", doing, q.id, q.leases.Len(), q.unseen)
		}
	}
	if r.Leases.unseen.all != sum {
		r.t.Fatalf("%s: %d leases are not seen, want %d", doing, r.Leases.unseen.all, sum)
	}
}

// TestCountsAreExact: at each moment the counts of a topic are those of a walk over its timers, with
// adds, changes, cancels, pauses, breakers that open and close, receivers that are full, changes of
// the policy, lost entries and leaders, for topics of each kind.
func TestCountsAreExact(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 31))
		r := newReplica(t)
		urls := []string{"http://a", "http://b", "http://c"}[:1+2*random.IntN(2)]
		spread := int64(random.IntN(5) / 4 * 1000)
		draw := func() {
			var k *timer.PerKey
			if random.IntN(2) == 0 {
				k = &timer.PerKey{Concurrency: random.IntN(3), Fair: random.IntN(2) == 0}
				if random.IntN(3) == 0 || k.Concurrency == 0 {
					k.Rate = rate(float64(1+random.IntN(20)), 1+random.IntN(3))
				}
			}
			serial := random.IntN(4) == 0 && (k == nil || k.Concurrency < 2)
			kind, limit := random.IntN(8), random.IntN(3)
			r.topic(1, func(p *timer.Policy) {
				p.PerKey, p.Serial, p.Concurrency, p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = k, serial, limit*2, 1000, 200, 2000
				switch {
				case kind == 0:
					p.Pull = true
				case kind == 1 && !serial:
					p.Batch = &timer.Batch{Max: 2 + random.IntN(3), WaitMs: int64(random.IntN(2)) * 300, ByKey: random.IntN(2) == 0}
				}
				p.SpreadMs = spread
			})
		}
		draw()
		for step := range 150 {
			doing := ""
			id := fmt.Sprintf("{k%d}%d", random.IntN(3), random.IntN(8))
			if random.IntN(4) == 0 {
				id = fmt.Sprint(random.IntN(8))
			}
			switch n := random.IntN(20); {
			case n < 5:
				c := timer.Command{Kind: timer.Add, Topic: 1, ID: id, Merge: timer.MergeReplace, Spec: &timer.Spec{DueMs: r.now.WallMs + 100*random.Int64N(5) - 300}}
				c.Spec.Callback.URL = urls[random.IntN(len(urls))]
				if random.IntN(3) == 0 {
					c.Spec.HasExpiry, c.Spec.ExpiresAfterMs = true, random.Int64N(3000)
				}
				r.command(c)
				doing = "add"
			case n < 10:
				c := timer.Command{Kind: timer.Modify, ID: id, Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: r.now.WallMs + 100*random.Int64N(20) - 1500}}}
				if random.IntN(2) == 0 {
					c.Patch = &timer.Patch{Priority: true, Spec: timer.Spec{Priority: uint8(random.IntN(3))}}
				}
				r.command(c)
				doing = "change"
			case n == 10:
				r.command(timer.Command{Kind: timer.Cancel, ID: id})
				doing = "cancel"
			case n == 11:
				r.command(timer.Command{Kind: []timer.Kind{timer.Pause, timer.Resume, timer.Fire}[random.IntN(3)], ID: id})
				doing = "pause"
			case n < 14 && len(r.calls) > 0:
				r.end(delivery.Outcome{Status: []int{200, 500}[random.IntN(2)]})
				doing = "end"
			case n < 16:
				u := urls[random.IntN(len(urls))]
				if r.verdicts[u].Kind == delivery.Granted {
					r.verdicts[u] = delivery.Verdict{Kind: delivery.Shut, RetryIn: 100 * time.Millisecond}
				} else {
					delete(r.verdicts, u)
				}
				doing = "breaker"
			case n == 16 && random.IntN(3) == 0:
				draw()
				doing = "policy"
			case n == 17 && random.IntN(2) == 0:
				topic := *r.topics[1]
				topic.Paused = !topic.Paused
				r.topics[1] = &topic
				r.Refresh()
				doing = "pause of the topic"
			case n == 18 && random.IntN(3) == 0:
				r.dropping = true
				r.Run()
				r.entry()
				r.dropping = false
				doing = "lost entry"
			case n == 19 && random.IntN(3) == 0:
				r.End()
				r.takeover(table.NewIncarnation(ownNode, 1))
				r.Begin()
				doing = "leader"
			default:
				if n == 19 {
					r.Sweep()
				}
			}
			if r.turn(); random.IntN(2) == 0 {
				r.due.rearmAll()
			}
			r.now.Mono += 7 * time.Microsecond // no token comes within the nanosecond of a step
			r.pass(time.Duration(1+random.IntN(3)) * 100 * time.Millisecond)
			r.counts(fmt.Sprintf("seed %d, step %d, %s", seed, step, doing), len(urls) > 1 || r.topics[1].Policy.Batch != nil)
		}
	}
}

// TestChangedTimersCountOnce: timers that are due and were changed often while the breaker of their
// receiver is open count once each.
func TestChangedTimersCountOnce(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"plain": func(*timer.Policy) {}, "serial": serial, "per key": perKey(timer.PerKey{Concurrency: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, set)
			r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Hour}
			for i := range 10 {
				r.add(fmt.Sprintf("{k%d}%d", i%2, i), 0)
			}
			for i := range 100 {
				r.command(timer.Command{Kind: timer.Modify, ID: fmt.Sprintf("{k%d}%d", i%2, i%10), Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: r.now.WallMs - int64(i)}}})
				r.turn()
				r.counts(fmt.Sprint("change ", i), false)
			}
			var sums [1]timer.Counts
			if r.View.Count([]timer.TopicID{1}, sums[:]); sums[0].Ready != 10 {
				t.Errorf("%d ready", sums[0].Ready)
			}
		})
	}
}

// TestOldestWaitsForItsKey: the oldest timer that waits may be one that waits for the next attempt
// of another of its key.
func TestOldestWaitsForItsKey(t *testing.T) {
	for name, k := range map[string]*timer.PerKey{
		"serial": nil, "concurrency": {Concurrency: 1}, "rate": {Rate: rate(0.0001, 1)}, "fair": {Concurrency: 1, Fair: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			r.topic(1, func(p *timer.Policy) {
				p.PerKey, p.Serial, p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = k, k == nil, 10, 3_600_000, 3_600_000
			})
			for i := range 5 {
				r.add(fmt.Sprintf("{all}%d", i), int64(i))
			}
			r.pass(10 * time.Millisecond)
			for minutes := range 5 {
				var sums [1]timer.Counts
				r.View.Count([]timer.TopicID{1}, sums[:])
				if n := sums[0]; n.Ready == 0 || n.OldestOverdueMs < int64(minutes)*60_000 {
					t.Fatalf("after %d minutes: %d wait, the oldest for %d ms", minutes, n.Ready, n.OldestOverdueMs)
				}
				r.counts(name, false)
				if len(r.calls) > 0 && minutes == 0 {
					r.end(delivery.Outcome{Status: 500})
				}
				r.pass(time.Minute)
			}
		})
	}
}

// TestNextLeadershipCallsWhatExpires: a timer that expires, and whose gate is shut, waits for that
// gate in the next leadership of its node too.
func TestNextLeadershipCallsWhatExpires(t *testing.T) {
	r := newReplica(t)
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	r.add("a", 0, func(c *timer.Command) { c.Spec.HasExpiry, c.Spec.ExpiresAfterMs = true, 3_600_000 })
	r.turn()
	r.End()
	r.takeover(table.NewIncarnation(ownNode, 1))
	r.Begin()
	r.turn()
	delete(r.verdicts, "http://a")
	r.pass(2 * time.Second)
	r.want("a")
}
