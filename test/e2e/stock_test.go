package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	stockTopic   = "stock"
	stockBytes   = 200 << 20 // of all payloads together, at least: each shard then has snapshots
	stockLeast   = 150       // bytes of a payload
	stockBatch   = 1 << 20   // bytes of a batch, at most; and a thousand timers
	stockWriters = 8
	soonEvery    = 50 // one of so many timers is due soon, the others in a thousand hours
	soonMs       = 20_000

	// stockLimit is how long a cluster with a million timers may take to be whole, or to take adds,
	// on a busy machine.
	stockLimit = 15 * time.Minute
)

// stock is many timers that a cluster has acknowledged: too many for a ledger. A timer's content
// follows from its number, so that a bit for each number is enough.
type stock struct {
	cluster  *cluster
	receiver *receiver
	through  *roundRobin
	payload  int   // bytes
	dueMs    int64 // of number 0; of the timers that are not due soon
	stop     func()

	next, acked atomic.Int64 // numbers given out; timers acknowledged

	mu      sync.Mutex
	known   []bool        // acknowledged, by number
	soon    map[int]int64 // due times of those that are due soon
	refused []string      // answers that no fault explains
}

// newStock has a cluster acknowledge n timers.
func newStock(t testing.TB, c *cluster, n int) *stock {
	t.Helper()
	s := &stock{cluster: c, receiver: newReceiver(t, nil), through: c.anyone(), payload: max(stockLeast, stockBytes/n),
		dueMs: time.Now().Add(1000 * time.Hour).UnixMilli(), soon: map[int]int64{}, stop: func() {}}
	c.eventually(t, "PUT", "/v1/topics/"+stockTopic, fmt.Sprintf(`{"callback":{"url":%q}}`, s.receiver.url()))
	begin := time.Now()
	s.write(t, min(1000, stockBatch/s.payload), 0)
	s.await(t, n)
	s.stop()
	t.Logf("%d timers of %d bytes acknowledged in %v", s.acked.Load(), s.payload, time.Since(begin).Round(time.Second/10))
	return s
}

// write begins to add timers, in batches, until stop is called. Each writer pauses between two.
func (s *stock) write(t testing.TB, batch int, pause time.Duration) {
	over := make(chan struct{})
	var writers sync.WaitGroup
	for range stockWriters {
		writers.Go(func() {
			node := s.through.next() // until it does not answer
			for !isClosed(over) {
				node = s.addBatch(node, batch, over)
				if pause > 0 {
					wait(pause)
				}
			}
		})
	}
	s.stop = sync.OnceFunc(func() { close(over); writers.Wait() })
	t.Cleanup(func() { s.stop() })
}

// keepWriting adds timers, a megabyte a second or two, while faults happen.
func (s *stock) keepWriting(t testing.TB) { s.write(t, max(1, 4000/s.payload), 30*time.Millisecond) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// addBatch adds the next timers. What is not acknowledged is sent again, which is idempotent, until
// it is, or the writers stop. It returns the node that answered last.
func (s *stock) addBatch(node *member, batch int, over chan struct{}) *member {
	first := int(s.next.Add(int64(batch))) - batch
	var left []int
	for i := range batch {
		left = append(left, first+i)
	}
	for len(left) > 0 && !isClosed(over) {
		ops := make([]string, len(left))
		for j, i := range left {
			ops[j] = fmt.Sprintf(`{"op":"add","id":%q,"at_ms":%d,"payload":%s}`, stockID(i), s.due(i), s.content(i))
		}
		if statuses, ok := node.client.tryBatch(stockTopic, ops); ok {
			left = s.count(left, statuses)
		} else {
			node = s.through.next()
		}
		if len(left) > 0 {
			wait(retryPause)
		}
	}
	return node
}

// count counts what was acknowledged, and returns the rest.
func (s *stock) count(sent, statuses []int) (left []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, status := range statuses {
		switch i := sent[j]; {
		case status == 200 || status == 201:
			if i >= len(s.known) {
				s.known = append(s.known, make([]bool, i+1-len(s.known))...)
			}
			s.known[i] = true
			s.acked.Add(1)
		case status == 429 || status == 503:
			left = append(left, i)
		default:
			s.refused = append(s.refused, fmt.Sprintf("%s: add answered %d", stockID(i), status))
		}
	}
	return left
}

// await waits until n timers are acknowledged.
func (s *stock) await(t testing.TB, n int) {
	t.Helper()
	poll(t, stockLimit, fmt.Sprintf("%d timers are acknowledged", n), func() bool { return s.acked.Load() >= int64(n) })
}

// advance waits until n more timers are acknowledged.
func (s *stock) advance(t testing.TB, n int) { t.Helper(); s.await(t, int(s.acked.Load())+n) }

func stockID(i int) string { return "s" + strconv.Itoa(i) }

// content is a timer's payload, as JSON. No two are equal.
func (s *stock) content(i int) string {
	head := fmt.Sprintf("%d of the stock ", i)
	return `"` + head + strings.Repeat(string(rune('a'+i%26)), s.payload-2-len(head)) + `"`
}

// due is when a timer is due. That of a timer that is due soon is drawn when it is first sent.
func (s *stock) due(i int) int64 {
	if i%soonEvery != 0 {
		return s.dueMs + int64(i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.soon[i] == 0 {
		s.soon[i] = time.Now().UnixMilli() + int64(i/soonEvery*7919%soonMs)
	}
	return s.soon[i]
}

// numberOf is the number of a timer that may be there; false: nobody added a timer of this name.
func (s *stock) numberOf(id string) (int, bool) {
	i, err := strconv.Atoi(strings.TrimPrefix(id, "s"))
	return i, err == nil && stockID(i) == id && i >= 0 && i < int(s.next.Load())
}

// faults ends the writers and lists what is not right: each acknowledged timer must be there with
// its content, or was called with it and not early, and nothing else may be there.
func (s *stock) faults(t testing.TB) (list []string) {
	t.Helper()
	s.stop()
	list = slices.Clone(s.refused)
	there := make([]bool, s.next.Load())
	c := clientAt("http://"+s.cluster.running()[0].http, 30*time.Second)
	c.each(t, stockTopic, func(tm timer) {
		i, ok := s.numberOf(tm.ID)
		switch {
		case !ok:
			list = append(list, tm.ID+" is there, and nobody added it")
			return
		case there[i]:
			list = append(list, tm.ID+" is listed twice")
		case string(tm.Payload) != s.content(i) || tm.DueMs != s.due(i):
			list = append(list, fmt.Sprintf("%s is altered: due %d, payload %.60s", tm.ID, tm.DueMs, tm.Payload))
		case i%soonEvery != 0 && tm.State != "scheduled":
			list = append(list, tm.ID+" is "+tm.State)
		}
		there[i] = true
	})
	for i, known := range s.known {
		if known && !there[i] && i%soonEvery != 0 {
			list = append(list, stockID(i)+" is lost")
		}
	}
	if len(list) > 0 {
		return list
	}
	// Those that were due soon may be listed no more, but were called.
	holdsWithinBy(lookEvery, stockLimit, func() bool { return s.uncalled() == 0 })
	for _, a := range s.receiver.arrivals() {
		switch i, ok := s.numberOf(a.timer); {
		case !ok || i%soonEvery != 0:
			list = append(list, a.timer+" was called, and should not be")
		case a.early():
			list = append(list, fmt.Sprintf("%s was called early by %v", a.timer, -a.lateness()))
		case a.sum != sumOf(s.content(i)) || a.dueMs != s.due(i):
			list = append(list, a.timer+" was called with other content")
		}
	}
	if n := s.uncalled(); n > 0 {
		list = append(list, fmt.Sprintf("%d timers that are due were not called", n))
	}
	return list
}

// uncalled counts the acknowledged timers that were due soon and were not called yet.
func (s *stock) uncalled() (n int) {
	for i := 0; i < len(s.known); i += soonEvery {
		if s.known[i] && s.receiver.called(stockTopic, stockID(i)) == 0 {
			n++
		}
	}
	return n
}

// check fails the test for what is not right.
func (s *stock) check(t testing.TB) {
	t.Helper()
	list := s.faults(t)
	t.Logf("%d timers acknowledged, %d calls; %d faults", s.acked.Load(), s.receiver.count(), len(list))
	for i, f := range list {
		if i == 20 {
			t.Errorf("… and %d more", len(list)-i)
			return
		}
		t.Error(f)
	}
}
