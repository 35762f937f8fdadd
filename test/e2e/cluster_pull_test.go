package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pullLog records the leases of a topic's consumers, and faults.
type pullLog struct {
	mu      sync.Mutex
	leases  map[string][]*handedOut // by timer, in the order of the answers
	faults  []string
	refused int // receipts answered 410
}

// handedOut is a lease from its consumer's point of view.
type handedOut struct {
	pulledTimer
	asked time.Time // when the pull was sent: the lease began later
	got   time.Time
	acked time.Time // when the ack was answered 200; zero if it was not
	left  bool      // its consumer sends neither ack nor nack
	maybe bool      // an ack or nack had no definite answer
}

const pullLease = 2 * time.Second

// consumers pull through all members in turn until stop is closed. They ack, nack or abandon each
// lease, and send its receipt to any member.
func (c *cluster) consumers(t testing.TB, topic string, n int, stop chan struct{}) (*pullLog, *sync.WaitGroup) {
	t.Helper()
	log := &pullLog{leases: map[string][]*handedOut{}}
	done := &sync.WaitGroup{}
	for worker := range n {
		done.Go(func() {
			anyone := c.anyone()
			anyone.turn.Store(uint32(worker))
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				asked := time.Now()
				a := anyone.do("POST", "/v1/topics/"+topic+"/pull", fmt.Sprintf(`{"max":4,"wait":"500ms","lease":%q}`, pullLease))
				if a.status != 200 {
					wait(retryPause)
					continue
				}
				for i, p := range pulled(t, a) {
					log.settle(c, log.take(p, asked), (worker+round+i)%10)
				}
			}
		})
	}
	return log, done
}

// take records a lease. It is a fault if the fence was given before, if the timer was acked before,
// or if an abandoned lease has not ended yet.
func (l *pullLog) take(p pulledTimer, asked time.Time) *handedOut {
	h := &handedOut{pulledTimer: p, asked: asked, got: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.leases[p.ID] {
		switch {
		case b.Fence == p.Fence:
			l.faults = append(l.faults, fmt.Sprintf("%s: fence %d was given twice", p.ID, p.Fence))
		case !b.acked.IsZero() && h.Fence > b.Fence:
			l.faults = append(l.faults, fmt.Sprintf("%s: handed out (fence %d, attempt %d) after its ack of fence %d was answered", p.ID, p.Fence, p.Attempt, b.Fence))
		case b.left && h.Fence > b.Fence && h.got.Before(b.asked.Add(pullLease)):
			l.faults = append(l.faults, fmt.Sprintf("%s: handed out again %v after a lease of %v was asked for", p.ID, h.got.Sub(b.asked), pullLease))
		}
	}
	l.leases[p.ID] = append(l.leases[p.ID], h)
	return h
}

// settle acks seven leases of ten, nacks two and abandons one.
func (l *pullLog) settle(c *cluster, h *handedOut, draw int) {
	verb := "ack"
	switch {
	case draw >= 9:
		l.mu.Lock()
		h.left = true
		l.mu.Unlock()
		return
	case draw >= 7:
		verb = "nack"
	}
	body := fmt.Sprintf(`{"receipts":[%q]}`, h.Receipt)
	if verb == "nack" {
		body = fmt.Sprintf(`{"receipts":[%q],"delay":"10ms"}`, h.Receipt)
	}
	anyone := c.anyone()
	anyone.turn.Store(uint32(draw) + uint32(h.Fence))
	a := anyone.do("POST", "/v1/"+verb, body)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case a.status == 200 && strings.Contains(string(a.body), `"status":200`):
		if verb == "ack" {
			h.acked = time.Now()
		}
	case a.status == 200 && strings.Contains(string(a.body), `"status":410`):
		l.refused++
	case a.status == 200:
		// No node could decide about the receipt, whose status is 503.
		h.maybe = true
	case a.status >= 400 && a.status < 500:
		l.faults = append(l.faults, fmt.Sprintf("%s: %s is answered %d %s", h.ID, verb, a.status, a.body))
	default:
		h.maybe = true
	}
}

// TestClusterPullUnderKill: consumers pull through all nodes, with acks, nacks and abandoned
// leases, while the node that leads most shards is killed again and again. No timer is lost, an
// acked timer is not handed out again, and an abandoned one is, but not before its lease ends.
func TestClusterPullUnderKill(t *testing.T) {
	t.Parallel()
	rounds := setting(t, "CARILLON_E2E_CLUSTER_PULL_KILLS", 2)
	c := newCluster(t, 3)
	c.eventually(t, "PUT", "/v1/topics/work", `{"delivery":"pull","retry":{"max_attempts":1000,"min_backoff":"10ms","max_backoff":"10ms","jitter":0}}`)
	stop := make(chan struct{})
	halt := sync.OnceFunc(func() { close(stop) })
	log, done := c.consumers(t, "work", 6, stop)
	t.Cleanup(func() { halt(); done.Wait() })

	var added atomic.Int64
	anyone := c.anyone()
	adding := func(n int) {
		for range n {
			id := added.Add(1)
			at := time.Now().Add(time.Duration(id%50) * 10 * time.Millisecond).UnixMilli()
			for effectOf(anyone.do("POST", "/v1/topics/work/timers", fmt.Sprintf(`{"id":"w%d","at_ms":%d}`, id, at))) != acked {
				wait(retryPause)
			}
		}
	}
	adding(100)
	held := 0
	for range rounds {
		victim := c.busiest(t)
		before := c.holdSome(t)
		adding(50)
		victim.process().kill()
		held += c.ackAll(t, before)
		adding(100)
		c.start(t, victim)
		c.awaitHealthy(t)
	}
	poll(t, 60*time.Second, "all is done", func() bool {
		a := c.running()[0].client.do("GET", "/v1/topics/work/timers?limit=1", "")
		return a.status == 200 && strings.Contains(string(a.body), `"timers":[]`)
	})
	halt()
	done.Wait()
	log.check(t, c, int(added.Load()), held)
}

// holdSome pulls timers with long leases from a topic that has no other consumer.
func (c *cluster) holdSome(t *testing.T) (held []pulledTimer) {
	t.Helper()
	const n = 20
	c.eventually(t, "PUT", "/v1/topics/held", `{"delivery":"pull"}`)
	now := time.Now().UnixNano()
	for i := range n {
		c.eventually(t, "POST", "/v1/topics/held/timers", fmt.Sprintf(`{"id":"h%d-%d","at_ms":1000000000000}`, now, i))
	}
	poll(t, patience, "the timers are pulled", func() bool {
		if a := c.anyone().do("POST", "/v1/topics/held/pull", `{"max":20,"wait":"1s","lease":"5m"}`); a.status == 200 {
			held = append(held, pulled(t, a)...)
		}
		return len(held) >= n
	})
	return held
}

// ackAll acks leases that were granted before a kill. They are still valid at any node, whichever
// node granted them.
func (c *cluster) ackAll(t *testing.T, held []pulledTimer) int {
	t.Helper()
	anyone := c.anyone()
	for _, h := range held {
		var a answer
		// Another leader may need a moment to take over, on a busy machine a long one.
		if !holdsWithinBy(lookEvery, formLimit, func() bool {
			a = anyone.do("POST", "/v1/ack", fmt.Sprintf(`{"receipts":[%q]}`, h.Receipt))
			return a.status == 200
		}) {
			t.Fatalf("%s: an ack after the kill: %d %s %v", h.ID, a.status, a.body, a.err)
		}
		if got := claimed(t, a); got[0] != 200 {
			t.Errorf("%s: a receipt of before the kill is answered %d", h.ID, got[0])
		}
	}
	return len(held)
}

func (l *pullLog) check(t *testing.T, c *cluster, added, held int) {
	t.Helper()
	for i, fault := range l.faults {
		if i < 10 {
			t.Error(fault)
		}
	}
	final := map[string]timer{}
	for _, tm := range c.running()[0].client.all(t, "work") {
		final[tm.ID] = tm
	}
	leases, again, twice := 0, 0, 0
	for i := 1; i <= added; i++ {
		id := fmt.Sprint("w", i)
		list := l.leases[id]
		leases += len(list)
		acks, maybe := 0, false
		for _, h := range list {
			if !h.acked.IsZero() {
				acks++
			}
			maybe = maybe || h.maybe
			if h.left && list[len(list)-1].Fence > h.Fence {
				again++
			}
		}
		if acks > 1 {
			twice++
		}
		if final[id].State != "done" || acks == 0 && !maybe {
			t.Errorf("%s: %q after %d leases, %d of them acked", id, final[id].State, len(list), acks)
		}
	}
	if twice > 0 {
		t.Errorf("%d timers were acked under two leases", twice)
	}
	t.Logf("%d timers, %d leases, %d forgotten and handed out again, %d receipts refused, %d acked by receipts of before a kill", added, leases, again, l.refused, held)
}

// TestWaitingPullersCostNothing: a hundred long polls cost an idle node at most 2 % of a core.
func TestWaitingPullersCostNothing(t *testing.T) {
	needTime(t)
	node := serve(t, t.TempDir())
	c := newClient(node)
	c.must(t, 201, "PUT", "/v1/topics/quiet", `{"delivery":"pull"}`)
	cpu := func() float64 {
		var v float64
		if _, err := fmt.Sscan(node.gauge(t, "process_cpu_seconds_total"), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	const window = 5 * time.Second
	idle := cpu()
	wait(window)
	idle = cpu() - idle
	var polls sync.WaitGroup
	var answered atomic.Int64
	for range 100 {
		polls.Go(func() {
			own := clientAt(node.url, 70*time.Second)
			defer own.http.CloseIdleConnections()
			if a := own.do("POST", "/v1/topics/quiet/pull", `{"wait":"60s"}`); a.status == 200 && strings.Contains(string(a.body), `"receipt"`) {
				answered.Add(1)
			}
		})
	}
	poll(t, patience, "a hundred connections are open", func() bool {
		var fds float64
		_, err := fmt.Sscan(node.gauge(t, "process_open_fds"), &fds)
		return err == nil && fds > 100
	})
	waiting := cpu()
	wait(window)
	waiting = cpu() - waiting
	t.Logf("a core is busy for %.2f %% when idle, %.2f %% with a hundred waiting pullers", 100*idle/window.Seconds(), 100*waiting/window.Seconds())
	if more := (waiting - idle) / window.Seconds(); more > 0.02 {
		t.Errorf("a hundred waiting pullers take %.1f %% of a core", 100*more)
	}
	ops := make([]string, 100)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"add","id":"t%d","delay_ms":0}`, i)
	}
	c.batch(t, "quiet", ops)
	polls.Wait()
	if answered.Load() != 100 {
		t.Errorf("%d of a hundred pullers got a timer each", answered.Load())
	}
}
