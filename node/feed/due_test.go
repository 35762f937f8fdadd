package feed

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// leads is a host that leads some shards, each with timers as many as its number, due at once.
type leads struct {
	shards []timer.ShardID
	fails  timer.ShardID // this one cannot be counted
	takes  time.Duration // to count a shard
	mu     sync.Mutex
	asked  map[timer.TopicID]bool
}

func (l *leads) Leads(id timer.ShardID) bool { return slices.Contains(l.shards, id) }

func (l *leads) Forecast(id timer.ShardID, topics map[timer.TopicID]bool, f *table.Forecast) error {
	if l.takes > 0 {
		<-time.After(l.takes)
	}
	l.mu.Lock()
	l.asked = topics
	l.mu.Unlock()
	if id == l.fails {
		return timer.ErrNoLeader
	}
	f.Buckets[0] += int64(id)
	f.Buckets[1] += f.FromMs + f.BucketMs
	f.Overdue++
	f.Later += 2
	return nil
}

func (l *leads) Stats() shard.Stats {
	return shard.Stats{Counts: timer.Counts{Scheduled: 7}, Overdue: 3, Leads: len(l.shards)}
}

func TestDueOfAllShards(t *testing.T) {
	p := newPair(t)
	here, there := &leads{shards: []timer.ShardID{1, 3}}, &leads{shards: []timer.ShardID{2, 4}}
	p.here.Attach(here)
	p.here.pause = time.Millisecond
	p.there.Attach(there)
	q := &backend.DueQuery{All: true, FromMs: 10, BucketMs: 5, Buckets: 2}
	d, err := p.here.Due(t.Context(), q)
	if err != nil || !slices.Equal(d.Buckets, []int64{10, 60}) || d.Overdue != 4 || d.Later != 8 || d.Counted != 4 || d.Shards != 4 || there.asked != nil {
		t.Errorf("%+v %v, topics %v", d, err, there.asked)
	}
	there.fails = 4
	q.All, q.Topics = false, []timer.TopicID{2}
	d, err = p.here.Due(t.Context(), q)
	if err != nil || d.Buckets[0] != 6 || d.Counted != 3 || !there.asked[2] || len(there.asked) != 1 {
		t.Errorf("a shard without a leader: %+v %v, topics %v", d, err, there.asked)
	}
	there.fails, there.shards = 0, []timer.ShardID{3, 4}
	if d, err = p.here.Due(t.Context(), q); !errors.Is(err, timer.ErrNoLeader) {
		t.Errorf("a shard that two nodes lead all the time: %+v %v", d, err)
	}
	if _, err := p.there.Serve(t.Context(), 1, methodDue, []byte(`{"buckets":1000000000,"bucket_ms":1}`)); err == nil {
		t.Error("any number of buckets is taken")
	}
}

func TestStatsOfAllNodes(t *testing.T) {
	p := newPair(t)
	p.here.Attach(&leads{shards: []timer.ShardID{1}})
	p.there.Attach(&leads{shards: []timer.ShardID{2, 3}})
	for i, f := range []*Feed{p.here, p.there} {
		r := f.cfg.Rates
		r.Sample(0)
		for range 10 {
			r.Late(int64(100 * i))
		}
		r.Count(Added)
		r.Sample(time.Second)
	}
	s := p.here.Stats(t.Context())
	if len(s.Nodes) != 3 {
		t.Fatalf("%+v", s)
	}
	a, b, c := &s.Nodes[0], &s.Nodes[1], &s.Nodes[2]
	if a.Name != "n1" || a.Scheduled != 7 || a.Leads != 1 || a.Added != 1 || a.WindowMs != 1000 || a.Lateness != (backend.Lateness{Count: 10}) {
		t.Errorf("%+v", a)
	}
	if a.Backup != nil || b.Backup == nil || *b.Backup != (backend.BackupStats{Every: "0 * * * *", MadeMs: 7, Error: "no"}) {
		t.Errorf("backups: %+v, %+v", a.Backup, b.Backup)
	}
	if b.Name != "n2" || b.Leads != 2 || b.Lateness.P50 < 100 || b.Lateness.P50 > 120 {
		t.Errorf("%+v", b)
	}
	if c.Name != "n3" || c.Error == "" {
		t.Errorf("a node that is not heard: %+v", c)
	}
	if l := s.Lateness; l.Count != 20 || l.P50 != 0 || l.P90 != b.Lateness.P50 || l.Max != l.P90 {
		t.Errorf("all together: %+v", l)
	}
	p.cut.Store(true)
	if s := p.here.Stats(t.Context()); s.Nodes[1].Name != "n2" || s.Nodes[1].Error == "" {
		t.Errorf("a node that does not answer: %+v", s.Nodes[1])
	}
}

func TestRatesOfTheLastMinute(t *testing.T) {
	var r Rates
	if m := r.Minute(); m.WindowMs != 0 || m.Added != 0 {
		t.Errorf("before the first sample: %+v", m)
	}
	for second := range 100 {
		r.Sample(time.Duration(second) * time.Second)
		r.Count(Added)
		r.Count(Succeeded)
		r.Count(Retried)
	}
	r.Sample(100 * time.Second)
	m := r.Minute()
	if m.WindowMs != 60_000 || m.Added != 60 || m.Succeeded != 60 || m.Died != 0 || len(m.AddedEach) != 60 || m.AddedEach[59] != 1 || m.FiredEach[0] != 2 {
		t.Errorf("%+v", m)
	}
}

// TestLatenessSteps: the reported latency is no less than the true one, and more by a fifth at
// most.
func TestLatenessSteps(t *testing.T) {
	for _, ms := range []int64{0, 1, 2, 9, 10, 57, 1000, 59_999, 3_600_000} {
		var r Rates
		r.Sample(0)
		r.Late(ms)
		r.Sample(time.Second)
		if got := percentiles(r.Minute().Late).Max; got < ms || float64(got) > 1.2*float64(ms)+1 {
			t.Errorf("%d ms is reported as %d", ms, got)
		}
	}
	var r Rates
	r.Sample(0)
	r.Late(1 << 50)
	r.Sample(time.Second)
	if got := percentiles(r.Minute().Late).Max; got != latenessStep[latenessSteps-1] {
		t.Errorf("years are reported as %d", got)
	}
}

// TestDueCountsShardsAtOnce: a node with many shards does not count them one after the other: each
// count waits until the shard's leader is confirmed.
func TestDueCountsShardsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shards = 64
		p := newPair(t)
		p.here.cfg.Shards = func() (int, int) { return shards, shards }
		host := &leads{takes: time.Millisecond}
		for id := range timer.ShardID(shards) {
			host.shards = append(host.shards, 1+id)
		}
		p.here.Attach(host)
		begin := time.Now()
		answer, err := p.here.serveDue([]byte(`{"all":true,"bucket_ms":60000,"buckets":2,"of":0}`))
		var h dueHere
		if err != nil || json.Unmarshal(answer, &h) != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h.Shards, host.shards) || h.Overdue != shards || h.Later != 2*shards || h.Buckets[0] != shards*(shards+1)/2 {
			t.Errorf("%+v", h)
		}
		if took := time.Since(begin); took != shards/dueAtOnce*host.takes {
			t.Errorf("it took %v", took)
		}
	})
}
