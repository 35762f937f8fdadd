package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// traffic is a steady load of adds, and of patches and cancels of the added timers.
type traffic struct {
	client     doer
	ledger     *ledger
	topic      string
	prefix     string
	perSecond  int          // adds; 0: addsPerSecond
	workers    int          // concurrent requests; 0: trafficWorkers
	maxDelayMs int64        // from add to due; 0: maxDelayMs
	reads      bool         // timers are also read, and answers recorded
	run        atomic.Int64 // number of the node's start, for the entries
	random     *rand.Rand   // used by the scheduling goroutine only
	stop       chan struct{}
	done       sync.WaitGroup
}

const (
	addsPerSecond  = 1000
	trafficWorkers = 16
	maxDelayMs     = 5000
)

// doer sends a request and returns its answer: a client of one node or of several.
type doer interface {
	do(method, path, body string, header ...string) answer
}

type job struct {
	id             string
	delayMs        int64
	patch, cancel  bool
	reads          int // by another goroutine, at the same time
	patchedDelayMs int64
}

// begin starts the load. It continues until end, even while the node is down.
func (l *traffic) begin() {
	l.stop = make(chan struct{})
	l.perSecond, l.workers = cmp.Or(l.perSecond, addsPerSecond), cmp.Or(l.workers, trafficWorkers)
	l.maxDelayMs = cmp.Or(l.maxDelayMs, maxDelayMs)
	jobs := make(chan job, 256)
	for range l.workers {
		l.done.Go(func() {
			for j := range jobs {
				l.do(j)
			}
		})
	}
	l.done.Go(func() {
		defer close(jobs)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		start := time.Now()
		for n := 0; ; {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			for wanted := int(time.Since(start).Seconds() * float64(l.perSecond)); n < wanted; n++ {
				select {
				case jobs <- l.draw(n):
				default: // the workers lag: drop the job
				}
			}
		}
	})
}

func (l *traffic) end() {
	close(l.stop)
	l.done.Wait()
}

func (l *traffic) draw(n int) job {
	r := l.random
	j := job{id: fmt.Sprintf("%s%d", l.prefix, n), delayMs: r.Int64N(l.maxDelayMs + 1), patchedDelayMs: r.Int64N(l.maxDelayMs + 1)}
	if r.IntN(20) == 0 {
		j.delayMs = 0
	}
	j.patch, j.cancel = r.IntN(10) == 0, r.IntN(10) == 0
	if l.reads && r.IntN(16) == 0 {
		j.reads = 1 + r.IntN(2)
	}
	return j
}

func (l *traffic) do(j job) {
	e := l.ledger.add(j.id, int(l.run.Load()))
	dueMs := time.Now().UnixMilli() + j.delayMs
	payload := fmt.Sprintf(`{"id":%q,"v":1}`, j.id)
	body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, j.id, dueMs, payload)
	a := l.client.do("POST", "/v1/topics/"+l.topic+"/timers", body)
	l.ledger.heard(e, toAdd, payload, a)
	if a.repeated {
		unanswered := a
		unanswered.status = 0
		l.ledger.heard(e, toAdd, payload, unanswered)
	}
	if l.ledger.wrote(e, payload, dueMs, a) == refused {
		return
	}
	if j.reads > 0 {
		l.done.Go(func() {
			for range j.reads {
				l.ledger.heard(e, toRead, "", l.client.do("GET", timerPath(l.topic, j.id), ""))
			}
		})
	}
	if j.patch {
		dueMs = time.Now().UnixMilli() + j.patchedDelayMs
		payload = fmt.Sprintf(`{"id":%q,"v":2}`, j.id)
		body = fmt.Sprintf(`{"at_ms":%d,"payload":%s}`, dueMs, payload)
		a := l.client.do("PATCH", timerPath(l.topic, j.id), body)
		l.ledger.heard(e, toPatch, payload, a)
		l.ledger.wrote(e, payload, dueMs, a)
	}
	if j.cancel {
		a := l.client.do("DELETE", timerPath(l.topic, j.id), "")
		l.ledger.heard(e, toCancel, "", a)
		l.ledger.cancelled(e, a)
	}
}

// TestKillUnderLoad kills the node during adds, changes and calls, again and again on one
// directory.
func TestKillUnderLoad(t *testing.T) {
	rounds := setting(t, "CARILLON_E2E_KILLS", 10)
	if testing.Short() {
		rounds = min(rounds, 2)
	}
	random := seeded(t)
	rcv := newReceiver(t, slowNowAndThen())
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "kills", rcv.url(), "")
	load := &traffic{client: c, ledger: newLedger(), topic: "kills", prefix: "k", random: rand.New(rand.NewPCG(random.Uint64(), 2))}
	load.begin()

	var crashes []crash
	var readies []time.Duration
	for range rounds {
		wait(time.Duration(300+random.IntN(700)) * time.Millisecond) // under load
		crashes = append(crashes, crashNow(node, rcv))
		wait(time.Duration(random.IntN(700)) * time.Millisecond) // down, while timers come due
		node = serve(t, dir)
		c.use(node)
		load.run.Add(1)
		readies = append(readies, node.readyAfter)
	}
	wait(time.Second)
	load.end()

	v := &verdict{ledger: load.ledger, crashes: crashes}
	poll(t, patience, "all is delivered and nothing is scheduled or leased", func() bool {
		var page struct{ Timers []timer }
		c.must(t, 200, "GET", "/v1/topics/kills/timers?limit=1", "").decode(t, &page)
		return len(page.Timers) == 0 && rcv.open.Load() == 0
	})
	v.log = rcv.arrivals()
	v.final = map[string]timer{}
	for _, tm := range c.all(t, "kills") {
		v.final[tm.ID] = tm
	}
	v.check(t)
	var open int64
	for _, cr := range crashes {
		open += cr.open
	}
	if int64(v.duplicates) > open+v.uncommitted(maxUncommitted) {
		t.Errorf("%d duplicates; %d calls were open at the %d kills", v.duplicates, open, rounds)
	}
	t.Logf("%d kills, %d timers, %d arrivals, %d duplicates (%d calls open at the kills; of those that were answered, none longer than %v before; the latest arrived %v after its sender's death)",
		rounds, load.ledger.size(), len(v.log), v.duplicates, open, v.oldest, v.latest)
	for _, line := range v.late {
		t.Log(line)
	}
	t.Logf("start to ready after kill: %v", spreadOf(readies))
	node.stop(t)
}

// maxUncommitted is how many calls may have been answered so shortly before a kill that their
// outcomes were not in the log: those of 50 ms at 1,000 calls a second.
const maxUncommitted = 50

// uncommitted is how many calls may have been answered so shortly before the crashes that their
// outcomes were not in the log: so many each, and on a busy machine those of two commits.
func (v *verdict) uncommitted(each int64) (n int64) {
	for _, c := range v.crashes {
		lately := int64(0)
		for _, a := range v.log {
			if a.done.Before(c.gone) && a.done.After(c.at.Add(-2*c.commit)) {
				lately++
			}
		}
		n += max(each, lately)
	}
	return n
}

// slowNowAndThen delays every eighth answer by 30 ms, so that a kill finds calls in flight.
func slowNowAndThen() func(http.ResponseWriter, *http.Request, int) {
	var n atomic.Int64
	return func(_ http.ResponseWriter, r *http.Request, _ int) {
		if n.Add(1)%8 == 0 {
			select {
			case <-time.After(30 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}
}

// wait lets the load run. It synchronizes nothing: no check depends on its length.
func wait(d time.Duration) { <-time.After(d) }
