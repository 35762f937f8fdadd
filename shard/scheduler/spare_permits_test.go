package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/timer"
)

// TestLimitIsUsedUpMeanwhile: two shards of a topic wait at a full receiver, and its limit allows
// one call. The permit that the other shard cannot use is given to others: they might wait for it
// for as long as the limit is shut.
func TestLimitIsUsedUpMeanwhile(t *testing.T) {
	for name, set := range map[string]func(*timer.Policy){
		"rate":        func(p *timer.Policy) { p.Rate = rate(0.1, 1) },
		"concurrency": limited(1),
		"calls of many": func(p *timer.Policy) {
			p.Rate, p.Batch = rate(0.1, 1), &timer.Batch{Max: 2}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShards(t, 2, set)
			for _, r := range s {
				r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull}
				r.add("a", 0)
			}
			s.turn()
			for _, r := range s {
				r.permits++
				r.waiters[0].Receiver.Granted(permit{r, "http://a"})
				delete(r.verdicts, "http://a")
			}
			s.turn()
			if n := s.called(); n != 1 {
				t.Fatalf("%d run", n)
			}
			if n := s[0].permits + s[1].permits; n != 1 {
				t.Errorf("%d permits are out, and one call runs", n)
			}
			for _, r := range s {
				for len(r.calls) > 0 {
					r.end(delivery.Outcome{Status: 200})
				}
				for len(r.batches) > 0 {
					r.endBatch(delivery.Outcome{Status: 200})
				}
			}
			if s.pass(11 * time.Second); s.called() != 1 {
				t.Errorf("%d run once the limit allows it", s.called())
			}
		})
	}
}

// TestWindowShutsMeanwhile: a permit that comes once the topic's window is shut is given to others.
func TestWindowShutsMeanwhile(t *testing.T) {
	r := newReplica(t)
	r.topic(1, func(p *timer.Policy) { p.Window = &timer.Window{To: "22:14"} })
	r.verdicts["http://a"] = delivery.Verdict{Kind: delivery.ReceiverFull}
	r.add("a", 0)
	r.turn()
	r.pass(time.Minute)
	r.permits++
	r.waiters[0].Receiver.Granted(permit{r, "http://a"})
	if r.turn(); r.permits != 0 {
		t.Error("the permit is kept until the window opens")
	}
	r.want("")
}

// oneAtATime is a receiver that shards and another topic share: one call at once, and a line.
type oneAtATime struct {
	busy bool
	line []delivery.Waiter
}

func (o *oneAtATime) acquire(w delivery.Waiter) (delivery.Permit, delivery.Verdict) {
	if o.busy {
		o.line = append(o.line, w)
		return nil, delivery.Verdict{Kind: delivery.ReceiverFull}
	}
	o.busy = true
	return o, delivery.Verdict{}
}

// Cancel implements delivery.Permit. It ends a call, too.
func (o *oneAtATime) Cancel() {
	if o.busy = len(o.line) > 0; o.busy {
		first := o.line[0]
		o.line = o.line[1:]
		first.Granted(o)
	}
}

// otherTopic has a call now and then.
type otherTopic struct{ permit delivery.Permit }

func (o *otherTopic) Granted(p delivery.Permit) { o.permit = p }
func (o *otherTopic) Refused(time.Duration)     {}

// TestPermitAndLeaseMeet: shards need a permit and a lease of their topic's limit, and there is one
// of each, or hardly more. It never happens that all give up the one while others give up the
// other.
func TestPermitAndLeaseMeet(t *testing.T) {
	const each, idleSteps = 4, 200
	for seed := range uint64(500) {
		draw := rand.New(rand.NewPCG(seed, 1))
		most, longest := 1+draw.IntN(2), 1+draw.IntN(4)
		limit, perSecond := limited(most), float64(50+draw.IntN(900))
		if draw.IntN(2) == 0 {
			limit = func(p *timer.Policy) { p.Rate = rate(perSecond, most) }
		}
		set := perKey(timer.PerKey{Fair: true}, limit) // so that a shard waits for several permits
		s := newShards(t, 2+draw.IntN(5), set)
		receiver, other := &oneAtATime{}, &otherTopic{}
		other.permit, _ = receiver.acquire(other)
		for _, r := range s {
			r.receiver = receiver
			for i := range each {
				r.add(fmt.Sprintf("{%d}%d", i%2, i), int64(i)-20)
			}
		}
		for left, idle := each*len(s), 0; left > 0; idle++ {
			if idle == idleSteps {
				t.Fatalf("seed %d: %d timers of %d shards are never called", seed, left, len(s))
			}
			if other.permit != nil && draw.IntN(longest) == 0 {
				other.permit.Cancel()
				if other.permit = nil; draw.IntN(2) == 0 && idle < 10 {
					other.permit, _ = receiver.acquire(other)
				}
			}
			for _, r := range s {
				r.now.Mono += time.Millisecond
				r.now.WallMs++
				r.step()
			}
			for _, r := range s {
				for len(r.calls) > 0 && draw.IntN(longest) == 0 {
					receiver.Cancel()
					c := r.calls[0]
					r.calls = r.calls[1:]
					c.done(delivery.Outcome{Status: 200, StartedMs: r.now.WallMs, EndedMs: r.now.WallMs})
					left, idle = left-1, 0
				}
			}
		}
	}
}
