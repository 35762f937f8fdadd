package scheduler

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// rateModel is a node with some shards of one topic with a rate, and the starts of its calls.
type rateModel struct {
	t      *testing.T
	random *rand.Rand
	now    *clocks.Moment
	shards []*shardModel
	policy timer.Policy
	// commits is how long an entry takes.
	commits func() time.Duration
	starts  []time.Duration // since the limits changed, or a leader
	added   int
	ends    []rateEnd
}

type rateEnd struct {
	at   time.Duration
	r    *replica
	call *call
}

type shardModel struct {
	*replica
	entries []rateEntry // that are not applied yet
}

// entriesOnTheWay of a shard are not applied yet, at most: a worker stops proposing then.
const entriesOnTheWay = 2

type rateEntry struct {
	at    time.Duration
	bytes []byte
	items []func(*timer.Result, bool)
}

func newRateModel(t *testing.T, seed uint64, shards int) *rateModel {
	m := &rateModel{
		t: t, random: rand.New(rand.NewPCG(seed, 91)), commits: func() time.Duration { return 0 },
		now: &clocks.Moment{WallMs: startMs, Mono: time.Hour, Lease: time.Hour, Trust: clocks.Sure},
	}
	limits := NewLimits(nil)
	for range shards {
		r := newReplica(t)
		r.End()
		r.now = m.now
		owner := table.NewIncarnation(ownNode, 1)
		r.Scheduler = New(Config{
			Shard: 1, Owner: owner, Seed: 1, Dispatcher: r, Topics: r, Observer: r, Zones: recurrence.Release,
			Ready: func(timer.TopicID, int) {}, Limiters: limits,
		}, r, r.now)
		r.SetTable(r.table)
		r.takeover(owner)
		r.Begin()
		m.shards = append(m.shards, &shardModel{replica: r})
	}
	return m
}

// limit changes the topic's limits.
func (m *rateModel) limit() {
	rates := []float64{1, 5, 20, 50}
	r := timer.Rate{PerSecond: rates[m.random.IntN(len(rates))], Burst: 1 + m.random.IntN(20)}
	fair, concurrency := m.random.IntN(2) == 0, m.random.IntN(3)*40
	for _, s := range m.shards {
		s.topic(1, func(p *timer.Policy) {
			p.Rate, p.Concurrency, p.MaxAttempts, p.MinBackoffMs, p.MaxBackoffMs = r, concurrency, 1000, 100, 300
			if fair {
				p.PerKey = &timer.PerKey{Fair: true}
			}
		})
	}
	m.policy = m.shards[0].topics[1].Policy
	m.starts = nil
}

func (m *rateModel) add(inMs int64) {
	s := m.shards[m.random.IntN(len(m.shards))]
	m.added++
	s.add(fmt.Sprintf("{k%d}%d", m.random.IntN(5), m.added), inMs)
}

// takeover has another leader of a shard come and go.
func (m *rateModel) takeover() {
	s := m.shards[m.random.IntN(len(m.shards))]
	s.End()
	s.entries = nil
	s.takeover(table.NewIncarnation(ownNode, 1))
	s.Begin()
	m.starts = nil
}

const rateStep = 5 * time.Millisecond

// pass lets a step of time go by.
func (m *rateModel) pass() {
	m.now.WallMs += rateStep.Milliseconds()
	m.now.Mono += rateStep
	m.now.Lease += rateStep
	keep := m.ends[:0]
	for _, e := range m.ends {
		if e.at > m.now.Mono {
			keep = append(keep, e)
			continue
		}
		o := delivery.Outcome{Status: 200, StartedMs: m.now.WallMs, EndedMs: m.now.WallMs}
		if m.random.IntN(10) == 0 {
			o.Status = 503
		}
		e.r.permits--
		e.call.done(o)
	}
	m.ends = keep
	for _, s := range m.shards {
		m.turn(s)
	}
}

func (m *rateModel) turn(s *shardModel) {
	if m.now.Mono%(100*time.Millisecond) == 0 {
		s.Tick()
	}
	if m.now.Mono%time.Second == 0 {
		s.Sweep()
	}
	for n := 0; n < 20; n++ {
		for len(s.posted) > 0 {
			event := s.posted[0]
			s.posted = s.posted[1:]
			event(false)
		}
		s.wakes = false
		for len(s.entries) > 0 && s.entries[0].at <= m.now.Mono {
			e := s.entries[0]
			s.entries = s.entries[1:]
			results, err := s.table.Apply(e.bytes, nil, nil)
			if err != nil {
				m.t.Fatal(err)
			}
			for i, item := range e.items {
				item(&results[i], true)
				s.Keys.Review(results[i].Handle)
			}
		}
		s.Run()
		m.started(s)
		if len(s.entries) == entriesOnTheWay {
			return
		}
		var b table.Batch
		b.Reset(m.now.WallMs, 1, 1)
		s.items = nil
		s.FollowClock(&b)
		s.Scheduler.Outcomes.Propose(&b)
		s.Lease(&b)
		if len(s.items) > 0 {
			at := m.now.Mono + m.commits()
			if n := len(s.entries); n > 0 {
				at = max(at, s.entries[n-1].at)
			}
			s.entries = append(s.entries, rateEntry{at, bytes.Clone(b.Bytes()), s.items})
		}
		if !s.wakes && len(s.posted) == 0 && (len(s.entries) == 0 || s.entries[0].at > m.now.Mono) {
			return
		}
	}
}

// started takes over the calls that have begun.
func (m *rateModel) started(s *shardModel) {
	for _, c := range s.calls {
		m.starts = append(m.starts, m.now.Mono)
		m.ends = append(m.ends, rateEnd{m.now.Mono + time.Duration(m.random.Int64N(int64(200*time.Millisecond))), s.replica, c})
	}
	s.calls = nil
}

// over is by how much the starts of any stretch of time exceed the rate.
func (m *rateModel) over() (over float64) {
	r := m.policy.Rate
	for j := range m.starts {
		for i := j; i >= 0 && j-i < 300; i-- {
			over = max(over, float64(j-i+1)-float64(r.Burst)-r.PerSecond*(m.starts[j]-m.starts[i]).Seconds())
		}
	}
	return over
}

// run draws so many steps, and verifies before the limits, or a leader, change.
func (m *rateModel) run(steps int, verify func()) {
	for range steps {
		switch n := m.random.IntN(1000); {
		case n < 60:
			m.add(m.random.Int64N(300) - 50)
		case n < 62:
			for range 60 {
				m.add(0)
			}
		case n == 62:
			verify()
			m.limit()
		case n == 63:
			verify()
			m.takeover()
		}
		m.pass()
	}
	verify()
}

// TestRateInAnyStretch: with random adds, changed limits and new leaders, in no stretch of time are
// there more deliveries than burst + per_second × T; and with enough that is due the whole rate is
// used.
func TestRateInAnyStretch(t *testing.T) {
	for seed := range uint64(15) {
		m := newRateModel(t, seed, 1+int(seed%3))
		m.limit()
		m.run(4000, func() {
			if over := m.over(); over > 0.01 {
				t.Errorf("seed %d: %.2f starts too many, %+v, keys %+v", seed, over, m.policy.Rate, m.policy.PerKey)
			}
		})
		m.limit()
		for range 1500 {
			m.add(0)
		}
		m.pass()
		m.starts = nil
		for range 2000 {
			m.pass()
		}
		r := m.policy.Rate
		each := 1 / r.PerSecond
		if r.Burst == 1 {
			each += rateStep.Seconds() // a call waits for the next turn
		}
		if want := 0.97*10/each - 2; float64(len(m.starts)) < want {
			t.Errorf("seed %d: %d starts in 10 s, want %.0f, %+v", seed, len(m.starts), want, r)
		}
	}
}

// TestRateWhereCommitsTakeLong: a token is taken as a lease is proposed. Where the log stands still
// for a while, the calls of before it begin together with those of a bucket that is full again: one
// burst more, at most.
func TestRateWhereCommitsTakeLong(t *testing.T) {
	for seed := range uint64(15) {
		m := newRateModel(t, seed, 1+int(seed%3))
		stall := time.Duration(0)
		m.commits = func() time.Duration {
			if m.random.IntN(500) == 0 {
				stall = m.now.Mono + time.Second
			}
			return max(stall-m.now.Mono, time.Duration(m.random.Int64N(int64(10*time.Millisecond))))
		}
		m.limit()
		m.run(4000, func() {
			if over := m.over() - float64(m.policy.Rate.Burst); over > 0.01 {
				t.Errorf("seed %d: %.2f starts too many, %+v, keys %+v", seed, over, m.policy.Rate, m.policy.PerKey)
			}
		})
	}
}
