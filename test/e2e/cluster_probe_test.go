package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	probeInterval = 100 * time.Millisecond
	probeTimeout  = 700 * time.Millisecond // then the probe tries another member
	probePause    = 10 * time.Millisecond  // between tries
)

// prober adds a timer to each shard every 100 ms, and repeats each add until it is acknowledged.
// The time that an add takes is how long the shard was unavailable.
type prober struct {
	cluster *cluster
	topic   string
	keys    map[int]string // a key of each shard
	avoid   sync.Map       // of *member: cut off, so clients would not use it
	clients map[*member]*client
	stop    chan struct{}
	done    sync.WaitGroup
	over    atomic.Bool // the test has failed: maybe no node is left to ask

	mu     sync.Mutex
	acks   map[int][]ack // by shard, in order
	failed []string      // probes that were never acknowledged
}

// ack is one acknowledged probe.
type ack struct {
	id       string
	began    time.Time // its first try
	tried    time.Time // the try that was acknowledged
	answered time.Time
	tries    []try // tries before that
}

// try is a request that was not acknowledged.
type try struct {
	member         string
	sent, answered time.Time
	status         int
}

func (a *ack) took() time.Duration { return a.answered.Sub(a.began) }

// String lists the tries and how long each took.
func (a *ack) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s took %v:", a.id, a.began.Format(clockFormat), a.took().Round(time.Millisecond))
	for _, t := range a.tries {
		fmt.Fprintf(&b, " %s %d after %v,", t.member, t.status, t.answered.Sub(t.sent).Round(time.Millisecond))
	}
	fmt.Fprintf(&b, " acknowledged after %v", a.answered.Sub(a.tried).Round(time.Millisecond))
	return b.String()
}

// newProber finds a key for each shard. A timer's uid begins with its shard.
func newProber(t testing.TB, c *cluster, topic string) *prober {
	t.Helper()
	p := &prober{cluster: c, topic: topic, keys: map[int]string{}, clients: map[*member]*client{}, acks: map[int][]ack{}}
	all := cmp.Or(c.probed, c.shardCount())
	for i := 0; len(p.keys) < all; i++ {
		if i == 100*c.shardCount() {
			t.Fatalf("%d keys live in %d of %d shards", i, len(p.keys), c.shardCount())
		}
		key := fmt.Sprintf("k%d", i)
		a := c.eventually(t, "POST", "/v1/topics/"+topic+"/timers", farTimer("{"+key+"}first", time.Now()))
		shard, err := strconv.ParseInt(strings.SplitN(a.timer(t).UID, "-", 2)[0], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		if _, known := p.keys[int(shard)]; !known {
			p.keys[int(shard)] = key
		}
	}
	return p
}

// farTimer is the body of an add that is idempotent and due in ten hours, so that it does not fire
// during a test.
func farTimer(id string, now time.Time) string {
	return fmt.Sprintf(`{"id":%q,"at_ms":%d,"callback":{"url":"http://127.0.0.1:9/"}}`, id, now.Add(10*time.Hour).UnixMilli())
}

func (p *prober) begin() {
	p.stop = make(chan struct{})
	for shard, key := range p.keys {
		p.done.Go(func() {
			tick := time.NewTicker(probeInterval)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-tick.C:
					p.probe(shard, fmt.Sprintf("{%s}p%d", key, n))
				case <-p.stop:
					return
				}
			}
		})
	}
}

func (p *prober) end() {
	close(p.stop)
	p.done.Wait()
}

// probe tries one member after another until one acknowledges the add.
func (p *prober) probe(shard int, id string) {
	at := ack{id: id, began: time.Now()}
	body := farTimer(id, at.began)
	for turn := shard; time.Since(at.began) < formLimit && !p.over.Load(); turn++ {
		members := slices.DeleteFunc(p.cluster.running(), p.avoids)
		if len(members) > 0 {
			m := members[turn%len(members)]
			a := p.client(m).do("POST", "/v1/topics/"+p.topic+"/timers", body)
			if effectOf(a) == acked {
				at.tried, at.answered = a.sent, a.answered
				p.mu.Lock()
				p.acks[shard] = append(p.acks[shard], at)
				p.mu.Unlock()
				return
			}
			at.tries = append(at.tries, try{m.name, a.sent, a.answered, a.status})
		}
		wait(probePause)
	}
	p.mu.Lock()
	p.failed = append(p.failed, fmt.Sprintf("shard %d took no add for %v from %s on", shard, formLimit, at.began.Format(clockFormat)))
	p.mu.Unlock()
}

func (p *prober) avoids(m *member) bool {
	_, is := p.avoid.Load(m)
	return is
}

// client returns the client of a member for probes, with a short timeout.
func (p *prober) client(m *member) *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients[m] == nil {
		p.clients[m] = clientAt("http://"+m.http, probeTimeout)
	}
	return p.clients[m]
}

// takeover waits until each of the shards has acknowledged an add sent after the fault; one is sent
// to each at once. It returns the times from the fault to those acknowledgements.
func (p *prober) takeover(t testing.TB, shards []int, fault time.Time, limit time.Duration) (took []time.Duration) {
	t.Helper()
	for _, shard := range shards {
		p.done.Go(func() { p.probe(shard, fmt.Sprintf("{%s}after%d", p.keys[shard], fault.UnixMicro())) })
	}
	for _, shard := range shards {
		poll(t, limit, fmt.Sprintf("shard %d takes adds again", shard), func() bool {
			for _, a := range p.since(shard, fault) {
				if a.tried.After(fault) {
					took = append(took, a.answered.Sub(fault))
					return true
				}
			}
			return false
		})
	}
	return took
}

// since returns the acknowledgements of a shard after a time.
func (p *prober) since(shard int, after time.Time) []ack {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.acks[shard]
	for i := len(list) - 1; ; i-- {
		if i < 0 || list[i].answered.Before(after) {
			return slices.Clone(list[i+1:])
		}
	}
}

// pauses returns, for each shard, the longest wait of an add that was answered after a time.
func (p *prober) pauses(after time.Time) (list []time.Duration) {
	for shard := range p.keys {
		longest := time.Duration(0)
		for _, a := range p.since(shard, after) {
			longest = max(longest, a.took())
		}
		list = append(list, longest)
	}
	return list
}

// check reads every acknowledged probe back: none may be lost.
func (p *prober) check(t testing.TB) (lost int) {
	t.Helper()
	for _, line := range p.failed {
		t.Error(line)
	}
	there := map[string]bool{}
	for _, tm := range p.cluster.running()[0].client.all(t, p.topic) {
		there[tm.ID] = true
	}
	for _, shard := range slices.Sorted(maps.Keys(p.acks)) {
		for _, a := range p.acks[shard] {
			if there[a.id] {
				continue
			}
			if lost++; lost <= 10 {
				t.Errorf("%s of shard %d: lost: acknowledged %s, not there", a.id, shard, a.answered.Format(clockFormat))
			}
		}
	}
	if lost > 10 {
		t.Errorf("%d acknowledged probes are lost", lost)
	}
	return lost
}
