package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	wideNodes = 15

	limitedConcurrency = 30
	limitedCall        = 100 * time.Millisecond
	limitedRate        = 60 // a second
	limitedBurst       = 30
	limitedWindow      = 10 * time.Second
)

// TestClusterDoublesOnFifteenNodes: fifteen nodes whose 4 shards double to 64, under adds and fires.
// On the way two nodes die for good, each while a shard that it leads is being divided, and are
// removed. No timer is lost, early, or called twice but for what was in flight at the kills. A
// topic's concurrency and another's rate hold over the whole cluster meanwhile.
func TestClusterDoublesOnFifteenNodes(t *testing.T) {
	needTime(t)
	many, to := setting(t, "CARILLON_E2E_GROWTH_TIMERS", 200_000), setting(t, "CARILLON_E2E_GROWTH_SHARDS", 64)
	limit := settleLimit + time.Duration(many)*time.Millisecond/2
	members := loopbackMembers(t, wideNodes)
	c := foundOf(t, reshardFrom, 3, slices.Clone(members))
	c.addMany(t, "many", many)
	kept := c.keepTimers(t, "kept", 0, reshardKept)
	c.rate = setting(t, "CARILLON_E2E_CLUSTER_RATE", 300)
	rcv := newReceiver(t, slowNowAndThen())
	load := loadOn(t, c, rcv, seeded(t))
	held := c.beginLimited(t)
	started := time.Now()
	wait(time.Second)

	v := &verdict{}
	var open int64
	ended := 0.0 // bytes that dead nodes had received
	copied := func() float64 { return c.copied(t) + ended }
	t.Log("| step | done | settled | longest wait for an add, by shard | copied |")
	for n := 2 * reshardFrom; n <= to; n *= 2 {
		what, begin, before := fmt.Sprint(n, " shards"), time.Now(), copied()
		c.eventually(t, "POST", "/v1/cluster/shards", fmt.Sprintf(`{"shards":%d}`, n))
		c.shards = n
		var dead *member
		poll(t, limit, "the shards are divided", func() bool {
			g, ok := c.grows()
			if ok && g.Resharding != nil && g.Resharding.Done >= n/8 && 2*n >= to && dead == nil {
				if dead = c.leads(&g, g.Resharding.Shard); dead != nil {
					ended += dead.process().number(t, copiedBytes)
					killed := crashNow(dead.process(), rcv)
					v.crashes, open = append(v.crashes, killed), open+killed.open
					what += ", " + dead.name + " dies"
				}
			}
			return ok && g.Resharding == nil && g.Total == n
		})
		end := time.Now()
		if dead != nil {
			c.eventually(t, "DELETE", "/v1/cluster/nodes/"+dead.name+"?force=true", "")
			members = slices.DeleteFunc(members, func(m *member) bool { return m == dead })
		}
		c.awaitSettledWithin(t, members, 3, limit)
		settled := time.Since(begin) - stillFor
		waits := spreadOf(load.probes.pauses(begin))
		t.Logf("| %s | %.1f s | %.1f s | %v | %.0f MB |", what, end.Sub(begin).Seconds(), settled.Seconds(), waits, (copied()-before)/1e6)
		if limit := growthPause(wideNodes); waits.max > limit {
			t.Errorf("%s: an add waited %v, at most %v is promised", what, waits.max, limit)
		}
	}
	if len(v.crashes) != 2 {
		t.Errorf("%d nodes have died, two should have", len(v.crashes))
	}
	over := time.Now()
	held.finish(t, v.crashes)
	load.rounds = len(v.crashes)
	load.finish(t, v)
	load.checkDuplicates(t, v, open)
	c.checkKept(t, "kept", kept)
	c.checkCount(t, "many", many)
	c.checkAgreed(t, members)
	t.Logf("%d timers in the load, %d arrivals, %d duplicates (%d calls open at the kills); lateness over the whole run: %v",
		load.ledger.size(), len(v.log), v.duplicates, open, load.latenessBetween(started, over, load.arrivals()))
}

// leads is the running member that leads a shard, nil if that is not known.
func (c *cluster) leads(g *growing, shard int) *member {
	for _, s := range g.Shards {
		for _, m := range c.running() {
			if s.Shard == shard && s.Leader == m.name {
				return m
			}
		}
	}
	return nil
}

// limitedLoad is a load on two topics with limits, each with more than its limit lets through.
type limitedLoad struct {
	slots, rate *receiver
	began       time.Time
	stop        func()
}

func (c *cluster) beginLimited(t testing.TB) *limitedLoad {
	t.Helper()
	slow := func(_ http.ResponseWriter, r *http.Request, _ int) {
		select {
		case <-time.After(limitedCall):
		case <-r.Context().Done(): // its caller died
		}
	}
	l := &limitedLoad{slots: newReceiver(t, slow), rate: newReceiver(t, nil), began: time.Now()}
	anyone := c.anyone()
	c.eventually(t, "PUT", "/v1/topics/slots", fmt.Sprintf(`{"callback":{"url":%q},"concurrency":%d}`, l.slots.url(), limitedConcurrency))
	c.eventually(t, "PUT", "/v1/topics/rate", fmt.Sprintf(`{"callback":{"url":%q},"rate":{"per_second":%d,"burst":%d}}`, l.rate.url(), limitedRate, limitedBurst))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		each := map[string]int{"slots": limitedConcurrency * int(time.Second/limitedCall) / 3, "rate": limitedRate / 3}
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for topic, adds := range each { // two thirds of it in half a second
				ops := make([]string, 2*adds)
				for i := range ops {
					ops[i] = fmt.Sprintf(`{"op":"add","id":"t%d-%d","delay":"0s"}`, n, i)
				}
				anyone.do("POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
			}
		}
	}()
	l.stop = sync.OnceFunc(func() { close(stop); <-stopped })
	t.Cleanup(l.stop)
	return l
}

// finish checks that no more calls ran at once than the concurrency, and that no more came in any
// stretch than the rate and its burst, with another burst where a node had died.
func (l *limitedLoad) finish(t testing.TB, crashes []crash) {
	t.Helper()
	l.stop()
	over := time.Now()
	most, used := mostAtOnce(l.slots.arrivals())
	calls := l.rate.arrivals()
	inWindow := 0
	for from, to := 0, 0; from < len(calls); from++ {
		for to < len(calls) && calls[to].at.Sub(calls[from].at) < limitedWindow {
			to++
		}
		inWindow = max(inWindow, to-from)
	}
	ran := over.Sub(l.began)
	t.Logf("concurrency %d: at most %d at once, %.1f on average; rate %d a second: %.1f on average, at most %d within %v", limitedConcurrency, most, used.Seconds()/ran.Seconds(),
		limitedRate, float64(len(calls))/ran.Seconds(), inWindow, limitedWindow)
	if most > limitedConcurrency {
		t.Errorf("%d calls ran at once, %d may", most, limitedConcurrency)
	}
	if bound := limitedRate*int(limitedWindow/time.Second) + 2*limitedBurst; inWindow > bound {
		t.Errorf("%d calls within %v, %d may be", inWindow, limitedWindow, bound)
	}
	if bound := limitedRate*ran.Seconds() + limitedBurst*float64(1+len(crashes)); float64(len(calls)) > bound {
		t.Errorf("%d calls in all, %.0f may be", len(calls), bound)
	}
}

// mostAtOnce is how many calls were open at once at most, and the sum of their times.
func mostAtOnce(calls []arrival) (most int, sum time.Duration) {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for i := range calls {
		changes = append(changes, change{calls[i].at, 1})
		if done := calls[i].done; !done.IsZero() {
			changes = append(changes, change{done, -1})
			sum += done.Sub(calls[i].at)
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	open := 0
	for _, ch := range changes {
		open += ch.by
		most = max(most, open)
	}
	return most, sum
}
