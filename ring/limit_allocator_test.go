package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"carillon/timer"
)

// TestShareSums: the nodes' parts of a limit are never more than the whole, and everybody gets
// something, in time.
func TestShareSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		shards, n := 1+random.IntN(64), 1+random.IntN(5)
		counts := map[uint64]int64{}
		for id := 1; id <= shards; id++ {
			if node := uint64(random.IntN(n + 1)); node > 0 { // 0: nobody leads it
				counts[node]++
			}
		}
		topic := &timer.Topic{ID: timer.TopicID(random.IntN(100)), Name: "t"}
		limit, turn := 1+random.IntN(40), random.Int64N(1000)
		got := map[uint64]int{}
		for k := range 2 * int64(len(counts)) {
			sum, share := 0, 0.0
			for node := range counts {
				v := newShareView(shards, counts, node)
				part := v.units(topic, limit, turn+k)
				got[node] += part
				sum += part
				share += v.share()
			}
			if sum > limit || share > 1+1e-9 {
				t.Fatalf("%d of %d, %f of the rate: %d shards, %v", sum, limit, share, shards, counts)
			}
			if led := sum64(counts); led == int64(shards) && sum != limit {
				t.Fatalf("%d of %d are used though all is led: %v", sum, limit, counts)
			}
		}
		for node := range counts {
			if got[node] == 0 {
				t.Fatalf("node %d gets nothing of %d: %v", node, limit, counts)
			}
		}
		if v := newShareView(shards, counts, 99); v.units(topic, limit, turn) != 0 {
			t.Fatal("who leads nothing has a part")
		}
	}
	if v := (*shareView)(nil); v.units(&timer.Topic{}, 5, 0) != 0 {
		t.Error("a node has a part before it knows anything")
	}
}

// TestRateByTurns: nodes that have fewer at once than there are nodes bring the whole rate all the
// same, slow or fast, and no more than it.
func TestRateByTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	random := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		nodes, shards := 2+random.IntN(4), 16
		counts := map[uint64]int64{}
		for id := range shards {
			counts[uint64(1+id%nodes)]++
		}
		topic := &timer.Topic{ID: timer.TopicID(random.IntN(100)), Name: "t"}
		topic.Policy.Rate = timer.Rate{PerSecond: math.Exp(random.Float64()*6 - 2), Burst: 1 + random.IntN(nodes-1)}
		const step, seconds = time.Millisecond, 120
		got, buckets := 0, map[uint64]*struct{ tokens, before float64 }{}
		views := map[uint64]*shareView{}
		for node := range counts {
			views[node], buckets[node] = newShareView(shards, counts, node), &struct{ tokens, before float64 }{}
		}
		for n := range int64(seconds * time.Second / step) {
			for node, v := range views { // as a limit's bucket does it
				b := buckets[node]
				perSecond, burst := v.rate(topic, n*step.Milliseconds()/turnMs)
				b.tokens = min(float64(max(burst, 1)), b.tokens+b.before*step.Seconds())
				b.before = perSecond
				if burst > 0 && b.tokens >= 1 {
					b.tokens--
					got++
				}
			}
		}
		r := topic.Policy.Rate
		if whole := r.PerSecond * seconds; float64(got) > whole+float64(nodes) || float64(got) < 0.95*whole-float64(nodes) {
			t.Errorf("%d nodes, %+v: %d in %d s, want %.0f", nodes, r, got, seconds, whole)
		}
	}
}

func sum64(m map[uint64]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// limitModel is some nodes that share a limit: each has its own belief about the leaders, takes
// leases as it may, and hears of the others late or never.
type limitModel struct {
	t      *testing.T
	random *rand.Rand
	now    time.Duration
	nodes  []*limitNode
	topic  *timer.Topic
	wires  []wire
	lossy  bool
	late   time.Duration // reports between the first two nodes, at least
}

type limitNode struct {
	id     uint64
	starts uint32
	shares *LimitAllocator
	open   []time.Duration // when each of its leases ends
	off    time.Duration   // of its wall clock
	asleep time.Duration   // until then
	behind uint64          // this node is no member yet for all it knows
	leads  map[uint64]int64
	keys   int  // with something due
	lacks  bool // the topic: for all that it knows, there is none
}

type wire struct {
	at       time.Duration
	from, to uint64
	report   AllocationReport
}

const parishShards = 7

func newParish(t *testing.T, seed uint64, nodes, limit int) *limitModel {
	v := &limitModel{t: t, random: rand.New(rand.NewPCG(seed, 5)), now: time.Hour, topic: &timer.Topic{ID: 3, Name: "t"}}
	v.topic.Policy.Concurrency = limit
	for i := range nodes {
		n := &limitNode{id: uint64(i + 1), starts: 1}
		n.shares = NewLimitAllocator(n.id, n.starts)
		v.nodes = append(v.nodes, n)
	}
	v.agree(true)
	return v
}

// agree gives all nodes the same view of the leaders, or each another one.
func (m *limitModel) agree(same bool) {
	leads := map[uint64]int64{}
	for i, n := range m.nodes {
		if i == 0 || !same {
			leads = map[uint64]int64{}
			for range parishShards {
				leads[1+m.random.Uint64N(uint64(len(m.nodes)))]++
			}
		}
		n.leads = leads
	}
}

func (l *limitNode) held(now time.Duration) (held int) {
	for _, end := range l.open {
		if end > now {
			held++
		}
	}
	return held
}

// beat is one look of a node, and its word on the way to the others.
func (m *limitModel) beat(n *limitNode) {
	st := Observation{
		Now: m.now, WallMs: (m.now + n.off).Milliseconds(), Shards: parishShards, Leads: n.leads, Topics: []*timer.Topic{m.topic},
		Held: func(timer.TopicID) int { return n.held(m.now) }, Keys: func(timer.TopicID) int { return n.keys },
	}
	if n.lacks {
		st.Topics = nil
	}
	for _, o := range m.nodes {
		if o != n && o.id != n.behind {
			st.Others = append(st.Others, o.id)
		}
	}
	report := n.shares.Tick(&st)
	for _, o := range m.nodes {
		late := time.Duration(m.random.Int64N(int64(5 * time.Millisecond)))
		if m.lossy {
			if m.random.IntN(4) == 0 {
				continue
			}
			late = time.Duration(m.random.Int64N(int64(2 * time.Second)))
		}
		if n.id+o.id == 1+2 {
			late += m.late
		}
		if o != n {
			m.wires = append(m.wires, wire{m.now + late, n.id, o.id, report})
		}
	}
}

// pass lets so much time go by; nodes take the leases that they may.
func (m *limitModel) pass(d time.Duration) (taken map[uint64]int) {
	m.t.Helper()
	taken = map[uint64]int{}
	const step = 25 * time.Millisecond
	for end := m.now + d; m.now < end; m.now += step {
		keep := m.wires[:0]
		for _, w := range m.wires {
			to := m.nodes[w.to-1]
			if w.at > m.now || to.asleep > m.now {
				keep = append(keep, w)
				continue
			}
			to.shares.Receive(m.now, w.from, &w.report)
		}
		m.wires = keep
		open := 0
		for _, n := range m.nodes {
			if n.asleep <= m.now {
				if (m.now/step+time.Duration(n.id)*7)%10 == 0 {
					m.beat(n)
				}
				for !n.lacks && n.held(m.now) < m.may(n) {
					n.open = append(n.open, m.now+time.Duration(m.random.Int64N(int64(2*time.Second))))
					taken[n.id]++
				}
			}
			open += n.held(m.now)
		}
		if open > m.topic.Policy.Concurrency {
			m.t.Fatalf("%d leases of %d at %s: %s", open, m.topic.Policy.Concurrency, m.now, m.describe())
		}
	}
	return taken
}

func (m *limitModel) describe() (text string) {
	for _, n := range m.nodes {
		p := n.shares.limits.byID[m.topic.ID]
		if p == nil {
			p = &part{}
		}
		text += fmt.Sprintf("\nnode %d holds %d, knows %v: %+v", n.id, n.held(m.now), n.leads, *p)
	}
	return text
}

// TestTheFirstLookEndsNoSilence: how long the others have been silent is counted from a process's
// first look on. The time that its clock showed then report nothing of them.
func TestTheFirstLookEndsNoSilence(t *testing.T) {
	for _, starts := range []uint32{1, 2} {
		v := newParish(t, 1, 2, 4)
		n := v.nodes[0]
		n.shares = NewLimitAllocator(n.id, starts)
		for begun := v.now; v.now < begun+silenceTimeout; v.now += liveWithin / 10 {
			v.beat(n)
			report := v.wires[len(v.wires)-1].report
			if got := v.may(n); got != 0 || report.Unsure != (starts > 1) {
				t.Fatalf("process %d: after %s it may have %d, unsure %v", starts, v.now-begun, got, report.Unsure)
			}
		}
		v.beat(n)
		if got := v.may(n); got == 0 {
			t.Errorf("process %d: the other never was, and this one may have nothing", starts)
		}
	}
}

// TestPassedLeasesAreTheOthers: when a lease went with a leadership, the part of the node that took
// it goes down, and comes up again only by the rest that the others leave, said after they have
// heard of that.
func TestPassedLeasesAreTheOthers(t *testing.T) {
	v := newParish(t, 1, 2, 1)
	a, b := v.nodes[0], v.nodes[1]
	v.lead(a)
	v.beats(30)
	if got := v.may(a); got != 1 {
		t.Fatalf("who leads all may have %d", got)
	}
	// A lease that it has found in a shard that it leads now.
	b.open = []time.Duration{v.now + 3*time.Second}
	a.shares.Abandoned(v.topic.ID)
	for end := b.open[0]; v.now < end; {
		if got := v.may(a); got != 0 {
			t.Fatalf("%s before the lease's end another may have %d", end-v.now, got)
		}
		v.quiet(250 * time.Millisecond)
	}
	v.quiet(time.Second)
	v.quiet(time.Second)
	if got := v.may(a); got != 1 {
		t.Errorf("after the lease's end another may have %d", got)
	}
}

// TestThePartOfAProcessThatHasJustBegun: consumers may have leases of the process before, which
// nobody counts until its shards have a leader: while it report so, no node takes the rest that it
// leaves. Found by the simulator.
func TestThePartOfAProcessThatHasJustBegun(t *testing.T) {
	v := newParish(t, 1, 2, 1)
	a, b := v.nodes[0], v.nodes[1]
	v.lead(b)
	v.beats(30)
	if x, y := v.may(a), v.may(b); x != 0 || y != 1 {
		t.Fatalf("who leads all may have %d, the other %d", y, x)
	}
	b.starts++
	b.shares = NewLimitAllocator(b.id, b.starts)
	v.lead(a)
	begun := v.now
	for v.now < begun+silenceTimeout {
		v.quiet(250 * time.Millisecond)
		if got := v.may(a); got != 0 && v.now < begun+silenceTimeout {
			t.Fatalf("%s after the start another may have %d", v.now-begun, got)
		}
	}
	v.beats(4)
	if got := v.may(a); got != 1 {
		t.Errorf("%s after the start another may have %d", v.now-begun, got)
	}
}

// TestThePartOfTheProcessBefore: a consumer has a lease of a node's process before, in a shard that
// nobody leads yet. The next process does not take the same part once more for another shard. Found
// by the simulator.
func TestThePartOfTheProcessBefore(t *testing.T) {
	v := newParish(t, 1, 2, 1)
	a, b := v.nodes[0], v.nodes[1]
	v.lead(b)
	v.beats(30)
	b.starts++
	b.shares = NewLimitAllocator(b.id, b.starts)
	a.leads, b.leads = map[uint64]int64{b.id: parishShards - 1}, map[uint64]int64{b.id: parishShards - 1}
	begun := v.now
	for v.now < begun+silenceTimeout-250*time.Millisecond {
		v.quiet(250 * time.Millisecond)
		if got := v.may(b); got != 0 {
			t.Fatalf("%s after its start it may have %d", v.now-begun, got)
		}
	}
	v.lead(b)
	v.beats(6)
	if got := v.may(b); got != 1 {
		t.Errorf("%s after its start it may have %d", v.now-begun, got)
	}
}

// TestThePartOfLeasesThatLast: a node whose part goes down report so only when it has no more
// leases than that, and no other takes those that it still has. Found by the simulator.
func TestThePartOfLeasesThatLast(t *testing.T) {
	v := newParish(t, 1, 2, 1)
	a, b := v.nodes[0], v.nodes[1]
	v.lead(b)
	v.beats(30)
	// A consumer's, which it counts on when it leads no more.
	b.open = []time.Duration{v.now + 7*time.Second}
	v.lead(a)
	for end := b.open[0]; v.now < end; v.quiet(250 * time.Millisecond) {
		if x, y := v.may(a), v.may(b); x != 0 || y != 0 && v.now > end-6*time.Second {
			t.Fatalf("%s before the lease's end another may have %d, who has it %d", end-v.now, x, y)
		}
	}
	v.beats(4)
	if got := v.may(a); got != 1 {
		t.Errorf("after the lease's end another may have %d", got)
	}
}

// TestThePartOfWhoIsHeardByAnother: a node's part is nobody's only when for silenceTimeout it has
// said nothing that was heard by this node, or by one that this one hears. Found by the simulator.
func TestThePartOfWhoIsHeardByAnother(t *testing.T) {
	for _, tc := range []struct {
		name string
		// A falls silent for b at once, for c after a while; from when on b may have its part.
		muteAt, free time.Duration
	}{
		{"one that another heard until now", 8 * time.Second, 8*time.Second + silenceTimeout},
		{"one that nobody heard", 0, silenceTimeout},
	} {
		v := newParish(t, 1, 3, 1)
		a, b := v.nodes[0], v.nodes[1]
		v.lead(a)
		v.beats(30)
		if got := v.may(a); got != 1 {
			t.Fatalf("who leads all may have %d", got)
		}
		a.open = []time.Duration{v.now + time.Hour}
		begun, got := v.now, time.Duration(0)
		for v.lead(b); got == 0 && v.now < begun+30*time.Second; v.now += 250 * time.Millisecond {
			for _, n := range v.nodes {
				v.beat(n)
			}
			v.deliver(func(w wire) bool { return w.from == a.id && (w.to == b.id || v.now-begun >= tc.muteAt) })
			if v.may(b) > 0 {
				got = v.now - begun
			}
		}
		if got < tc.free-time.Second/2 || got > tc.free+2*time.Second {
			t.Errorf("%s: its part is another's after %s, want %s", tc.name, got, tc.free)
		}
	}
}

// TestThePartOfAProcessThatStoodStill: a process that stood still for long has lost its part, and
// takes none by the reports that were made meanwhile, before another took it. Found by the
// simulator.
func TestThePartOfAProcessThatStoodStill(t *testing.T) {
	v := newParish(t, 1, 2, 1)
	a, b := v.nodes[0], v.nodes[1]
	v.lead(a)
	v.beats(30)
	var missed []wire // by a
	for i := range 60 {
		if i == 30 {
			b.leads = map[uint64]int64{b.id: parishShards}
		}
		v.beat(b)
		missed, v.wires = append(missed, v.wires...), nil
		v.now += 250 * time.Millisecond
	}
	if x := v.may(b); x != 1 {
		t.Fatalf("who leads all may have %d", x)
	}
	b.open = []time.Duration{v.now + time.Hour}
	for _, w := range missed {
		a.shares.Receive(v.now, w.from, &w.report)
	}
	for range 30 {
		v.quiet(250 * time.Millisecond)
		if x := v.may(a); x != 0 {
			t.Fatalf("another has a lease, and it may have %d: %s", x, v.describe())
		}
	}
}

// lead has one node lead all, as all know.
func (m *limitModel) lead(one *limitNode) {
	for _, n := range m.nodes {
		n.leads = map[uint64]int64{one.id: parishShards}
	}
}

// may is how many leases a node may have.
func (m *limitModel) may(n *limitNode) int {
	return n.shares.Concurrency(m.topic, m.topic.Policy.Concurrency, m.now)
}

// deliver has what is under way arrive at once, but for what is lost.
func (m *limitModel) deliver(lost func(wire) bool) {
	for _, w := range m.wires {
		if lost == nil || !lost(w) {
			m.nodes[w.to-1].shares.Receive(m.now, w.from, &w.report)
		}
	}
	m.wires = nil
}

// beats is so many beats of all, at their distance.
func (m *limitModel) beats(n int) {
	for range n {
		m.quiet(250 * time.Millisecond)
	}
}

// quiet is beats of all, which come at once, and so much time in which nobody takes anything.
func (m *limitModel) quiet(d time.Duration) {
	for _, n := range m.nodes {
		m.beat(n)
	}
	m.deliver(nil)
	m.now += d
}

// TestSharesThroughTrouble: with any beliefs of each other, nodes together keep to the limit; and
// once they agree, each that leads something comes to its part.
func TestSharesThroughTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	for seed := range uint64(60) {
		v := newParish(t, seed, 2+int(seed%4), 1+int(seed/4%7))
		v.lossy = seed%2 == 0
		if seed%3 == 0 {
			v.topic.Policy.PerKey = &timer.PerKey{Fair: true}
		}
		for range 12 {
			for _, n := range v.nodes {
				n.keys = v.random.IntN(100)
			}
			v.agree(v.random.IntN(3) == 0)
			n := v.nodes[v.random.IntN(len(v.nodes))]
			switch v.random.IntN(6) {
			case 0: // a process ends, and with it its calls; the next one knows nothing
				n.starts++
				n.shares, n.open = NewLimitAllocator(n.id, n.starts), nil
			case 1:
				n.asleep = v.now + time.Duration(v.random.Int64N(int64(4*time.Second)))
			case 2:
				n.behind = v.random.Uint64N(uint64(len(v.nodes) + 1))
			case 3:
				n.off = time.Duration(v.random.Int64N(int64(10*time.Minute))) - 5*time.Minute
			case 4: // it learns that there is such a topic, or that there is none any more
				if n.lacks = !n.lacks; n.lacks {
					n.open = nil
				}
			}
			v.pass(time.Duration(v.random.Int64N(int64(2 * time.Second))))
		}
		v.lossy = false
		for _, n := range v.nodes {
			n.behind, n.lacks = 0, false
		}
		v.agree(true)
		v.pass(6 * time.Second)
		taken := v.pass(time.Minute)
		for id := range v.nodes[0].leads {
			if taken[id] == 0 {
				t.Errorf("seed %d: node %d takes nothing: %s", seed, id, v.describe())
			}
		}
	}
}

// TestReceivedIsListedForLimitsOnly: what a node has received is listed while it knows a topic with
// a limit, or of a node with a part. So a node gets its part although others do not know of the
// topic yet.
func TestReceivedIsListedForLimitsOnly(t *testing.T) {
	v := newParish(t, 1, 3, 1)
	lists := func(when string, want ...bool) {
		t.Helper()
		v.quiet(250 * time.Millisecond) // each receives what the others know by now
		for i, n := range v.nodes {
			v.beat(n)
			report := v.wires[len(v.wires)-1].report
			if report.Unlisted == want[i] || report.Unlisted != (len(report.Received) == 0) || len(report.Unheard) > 0 {
				t.Errorf("%s: node %d lists %v, unlisted %v", when, n.id, report.Received, report.Unlisted)
			}
		}
		v.wires = nil
	}
	a := v.nodes[0]
	v.lead(a)
	for _, n := range v.nodes {
		n.lacks = true
	}
	v.beats(40)
	lists("there is no limit", false, false, false)
	v.nodes[1].lacks = false // it leads nothing, so it has no part
	lists("one knows the topic", false, true, false)
	a.lacks = false
	lists("the leader does", true, true, true)
	v.beats(2)
	if got := v.may(a); got != 1 {
		t.Errorf("the leader may have %d though the others report that they have its claim", got)
	}
	v.nodes[1].lacks = true
	lists("the leader knows it still", true, true, true)
	a.lacks = true
	v.quiet(250 * time.Millisecond)
	lists("nobody knows it", false, false, false)
	a.lacks = false
	lists("it is there again", true, true, true)
	for end := v.now + silenceTimeout + time.Second; v.now < end; v.now += 250 * time.Millisecond {
		for _, n := range v.nodes[1:] {
			v.beat(n)
			if got := v.wires[len(v.wires)-1].report; v.now > end-500*time.Millisecond && !got.Unlisted {
				t.Errorf("the one with a part is silent, and node %d lists", n.id)
			}
			v.deliver(nil)
		}
	}
}

// TestUnlistedIsNotUnheard: two nodes learn of a topic at once, and each takes itself for the one
// that leads all. Their reports to each other take longer than silenceTimeout. Those from before the
// topic was known list nothing, and prove nothing. A third node receives all at once.
func TestUnlistedIsNotUnheard(t *testing.T) {
	v := newParish(t, 1, 3, 4)
	for _, n := range v.nodes {
		n.lacks, n.leads = true, map[uint64]int64{n.id: parishShards}
	}
	v.nodes[2].leads = v.nodes[0].leads
	v.pass(3 * time.Second)
	for ; v.late < silenceTimeout+time.Second; v.late += 125 * time.Millisecond {
		v.pass(250 * time.Millisecond)
	}
	v.pass(10 * time.Second)
	for _, n := range v.nodes {
		n.lacks = false
	}
	v.pass(30 * time.Second)
}

// TestUnlistedNodeThatDoesNotReceive: a node sends heartbeats and receives none, of all others or of
// the leader, so that it never learns of the first topic with a limit. The others need not wait for
// its list.
func TestUnlistedNodeThatDoesNotReceive(t *testing.T) {
	for _, ofAll := range []bool{true, false} {
		v := newParish(t, 1, 3, 1)
		a, cut := v.nodes[0], false
		for _, n := range v.nodes {
			n.lacks, n.leads = true, map[uint64]int64{a.id: parishShards}
		}
		pass := func(d time.Duration) {
			for end := v.now + d; v.now < end; v.now += 250 * time.Millisecond {
				for _, n := range v.nodes {
					v.beat(n)
				}
				v.deliver(func(w wire) bool { return cut && w.to == 3 && (ofAll || w.from == a.id) })
			}
		}
		pass(10 * time.Second)
		cut = true
		pass(2 * silenceTimeout)
		v.nodes[0].lacks, v.nodes[1].lacks = false, false
		pass(3 * silenceTimeout)
		if got := v.may(a); got != 1 {
			t.Errorf("of all %v: the leader may have %d of 1", ofAll, got)
		}
	}
}

// TestPartsByKeys: where keys take turns, the part of a node is by the keys that have something due
// there, and by its shards where there are none. It does not follow a count that jumps.
func TestPartsByKeys(t *testing.T) {
	v := newParish(t, 1, 2, 22)
	a, b := v.nodes[0], v.nodes[1]
	for _, n := range v.nodes {
		n.leads = map[uint64]int64{a.id: 4, b.id: 3}
	}
	parts := func() (x, y int) {
		v.beats(100)
		return v.may(a), v.may(b)
	}
	v.topic.Policy.PerKey = &timer.PerKey{Fair: true}
	for _, c := range []struct{ keysA, keysB, x, y int }{{0, 0, 13, 9}, {90, 10, 19, 3}, {10, 90, 3, 19}, {0, 5, 1, 21}, {1, 1, 11, 11}, {0, 0, 13, 9}} {
		a.keys, b.keys = c.keysA, c.keysB
		if x, y := parts(); x < c.x-1 || x > c.x+1 || x+y != 22 {
			t.Errorf("%d and %d keys: parts %d and %d, want %d and %d", c.keysA, c.keysB, x, y, c.x, c.y)
		}
	}
	a.keys, b.keys = 50, 50
	x, _ := parts()
	for i := range 20 {
		a.keys = 50 + i%2*20
		v.quiet(250 * time.Millisecond)
		if now := v.may(a); now < x-2 || now > x+2 {
			t.Errorf("with 50 and 70 keys in turn the part jumps from %d to %d", x, now)
		}
	}
}

// TestNodeIsAskedWithoutTheLock: what a node counts is guarded by locks that it holds while it asks
// for its part. Asking it with the allocator's lock held would stop both for ever.
func TestNodeIsAskedWithoutTheLock(t *testing.T) {
	l := NewLimitAllocator(1, 1)
	topic := &timer.Topic{ID: 1, Policy: timer.Policy{Concurrency: 8, PerKey: &timer.PerKey{Fair: true}}}
	asked := 0
	ask := func(timer.TopicID) int {
		if !l.mu.TryLock() {
			t.Fatal("the allocator's lock is held")
		}
		l.mu.Unlock()
		asked++
		return 1
	}
	l.Tick(&Observation{Shards: 1, Leads: map[uint64]int64{1: 1}, Topics: []*timer.Topic{topic}, Held: ask, Keys: ask})
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
