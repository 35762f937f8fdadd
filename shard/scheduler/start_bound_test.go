package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// onTheWay is an entry of a leader, or its question whether it leads, until a majority has answered.
type onTheWay struct {
	at     time.Duration
	data   []byte
	items  []func(*timer.Result, bool)
	answer func(error)
}

// former is a leader whose entries and questions take their time, until it is deposed. It does not
// hear of that.
type former struct {
	*replica
	random      *rand.Rand
	way         []onTheWay
	usual, long int // ms that an answer takes
	starved     bool
	called      int
	latest      map[string]time.Duration // by id: until when it may start the call, on its clock
	again       map[string]bool          // its successor has called for the id
}

// run does a turn at now, by the successor's clock.
func (f *former) run(now time.Duration) {
	f.t.Helper()
	if f.random.IntN(1500) == 0 {
		f.starved = !f.starved
	}
	takes := 1 + f.random.IntN(f.usual)
	if f.starved {
		takes = f.long/2 + f.random.IntN(f.long)
	}
	at := now + time.Duration(takes)*time.Millisecond
	f.Run()
	for _, c := range f.confirms {
		f.way = append(f.way, onTheWay{at: at, answer: c})
	}
	f.confirms = nil
	if f.HasProposals() {
		var b table.Batch
		b.Reset(f.now.WallMs, 1, 1)
		f.items = nil
		f.Scheduler.Outcomes.Propose(&b)
		if f.Lease(&b); len(f.items) > 0 {
			f.way = append(f.way, onTheWay{at: at, data: slices.Clone(b.Bytes()), items: f.items})
		}
	}
	for _, c := range f.calls[f.called:] {
		if id := c.Job.ID; f.again[id] {
			f.t.Fatalf("%s is called, though the successor has called for it", id)
		}
		f.latest[c.Job.ID] = c.Deadline - 10*time.Second
	}
	f.called = len(f.calls)
}

// answered gives it the answers that have arrived. Its successor follows it.
func (f *former) answered(now time.Duration, q *replica) {
	for len(f.way) > 0 && f.way[0].at <= now {
		e := f.way[0]
		if f.way = f.way[1:]; e.answer != nil {
			e.answer(nil)
			continue
		}
		q.follow(e.data)
		for i, result := range f.follow(e.data) {
			e.items[i](&result, true)
			f.Keys.Review(result.Handle)
		}
	}
}

// follow applies an entry of the leader.
func (r *replica) follow(data []byte) []timer.Result {
	r.t.Helper()
	got, err := r.table.Apply(data, nil, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// TestFencedLeaderStartsNoCallOfItsSuccessor: a leader that lives, and that the cluster wrongly
// takes for gone, starts no call that its successor has made meanwhile, and has none on its way to
// its begin. It is fast and slow in turn, and its clock is up to a tenth slow.
func TestFencedLeaderStartsNoCallOfItsSuccessor(t *testing.T) {
	slow, repeated, unstarted := 0, 0, 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 48))
		p := &former{replica: newReplica(t), random: random, latest: map[string]time.Duration{}, again: map[string]bool{}}
		p.usual, p.long = 1+random.IntN(20), 80+random.IntN(400)
		q := newReplica(t)
		for _, r := range []*replica{p.replica, q} {
			r.End()
			r.table = table.New(1, startMs)
			r.SetTable(r.table)
			r.topic(1, func(p *timer.Policy) { p.MaxAttempts = 1000 })
			r.takeover(other)
		}
		p.cfg.Owner = other
		p.Begin()
		began, rate := q.now.Mono, 1-random.Float64()*0.09
		tick := func(now time.Duration) {
			step := time.Duration(rate * float64(time.Millisecond))
			p.now.Mono, p.now.Lease = p.now.Mono+step, p.now.Lease+step
			p.now.WallMs = startMs + (p.now.Mono - began).Milliseconds()
			q.now.Mono, q.now.Lease, q.now.WallMs = now, now, startMs+(now-began).Milliseconds()
		}
		now, elected := began, began+time.Duration(500+random.IntN(4000))*time.Millisecond
		for ; now < elected; now += time.Millisecond {
			tick(now)
			if random.IntN(20) == 0 {
				c := timer.Command{Kind: timer.Add, ID: fmt.Sprint(now), Spec: &timer.Spec{DueMs: p.now.WallMs + int64(random.IntN(400))}}
				p.command(c)
				q.command(c)
			}
			p.answered(now, q)
			p.run(now)
		}
		for _, e := range p.way[:random.IntN(len(p.way)+1)] { // some of it is in the successor's log
			if e.data != nil {
				q.follow(e.data)
			}
		}
		if q.table.StartsSlowly() {
			slow++
		}
		q.takeover(q.cfg.Owner)
		q.Begin()
		fenced := elected + time.Duration(random.IntN(500))*time.Millisecond
		for end := now + 3*time.Second; now < end; now += time.Millisecond {
			tick(now)
			before := len(q.calls)
			if q.turn(); now >= fenced && len(q.fences) > 0 {
				q.fences[0](nil)
				q.fences = nil
				q.turn()
			}
			for _, c := range q.calls[before:] {
				id := c.Job.ID
				latest, started := p.latest[id]
				if latest > p.now.Lease {
					t.Fatalf("seed %d: %s is called %v after the election, and may begin at the former leader for %v", seed, id, now-elected, latest-p.now.Lease)
				}
				p.again[id] = true
				if started {
					repeated++
				} else if c.Job.Attempts > 1 {
					unstarted++
				}
			}
			p.run(now)
		}
	}
	if slow == 0 || repeated == 0 || unstarted == 0 {
		t.Errorf("%d slow leaders, %d calls made again, %d that the former leader had not started", slow, repeated, unstarted)
	}
	t.Logf("%d slow leaders, %d calls made again, %d that the former leader had not started", slow, repeated, unstarted)
}
