package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// collector receives arrays of numbers. The calls of one webhook-id have the same content.
type collector struct {
	t      *testing.T
	server *httptest.Server

	mu     sync.Mutex
	seen   map[string]string
	arrays [][]int
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t, seen: map[string]string{}}
	c.server = httptest.NewServer(c)
	t.Cleanup(c.server.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	id := r.Header.Get("webhook-id")
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, again := c.seen[id]; again {
		if before != string(body) {
			c.t.Errorf("%s has other content the second time", id)
		}
		return
	}
	var array []int
	if err := json.Unmarshal(body, &array); err != nil || r.Header.Get("Content-Type") != "application/json" {
		c.t.Errorf("%v, of %d bytes of %s", err, len(body), r.Header.Get("Content-Type"))
	}
	c.seen[id] = string(body)
	c.arrays = append(c.arrays, array)
}

func (c *collector) all() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.arrays...)
}

// TestCollect: 10,000 adds of one key come in a second, and all payloads are delivered once, in
// order. It is so too if the node is killed meanwhile and the adds without an answer are repeated.
func TestCollect(t *testing.T) {
	t.Parallel()
	const adds, batch = 10_000, 200
	for name, kill := range map[string]bool{"alone": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			rcv, dir := newCollector(t), t.TempDir()
			node := serve(t, dir)
			c := newClient(node)
			c.topic(t, "digests", rcv.server.URL, `,"merge":"collect"`)
			if kill {
				// No array ends meanwhile, so no part is forgotten.
				c.must(t, 200, "POST", "/v1/topics/digests/pause", "")
			}
			begin := time.Now()
			for from := 0; from < adds; from += batch {
				ops := make([]string, batch)
				for i := range ops {
					ops[i] = fmt.Sprintf(`{"op":"add","id":"{member-9}mail","delay":"500ms","payload":%d,"part":"p%d"}`, from+i, from+i)
				}
				if kill && from == adds/2 {
					killed := make(chan bool)
					go func() {
						defer close(killed)
						wait(2 * time.Millisecond)
						node.kill()
					}()
					_, answered := c.tryBatch("digests", ops)
					<-killed
					t.Logf("killed; the batch under way was answered: %t", answered)
					node = serve(t, dir)
					c.use(node)
				}
				for i, status := range c.batch(t, "digests", ops) {
					if status != 200 && (status != 201 || kill && from+i > 0) {
						t.Fatalf("add %d: status %d", from+i, status)
					}
				}
			}
			took := time.Since(begin)
			if kill {
				node.kill()
				node = serve(t, dir)
				c.use(node)
				c.must(t, 200, "POST", "/v1/topics/digests/resume", "")
			}
			poll(t, patience, "all have come", func() bool { return len(rcv.all()) >= adds })
			got := rcv.all()
			for i, n := range got {
				if n != i {
					t.Fatalf("number %d comes as number %d of %d", n, i, len(got))
				}
			}
			t.Logf("%d adds of one key in %v, %.0f a second; %d calls", adds, took, adds/took.Seconds(), len(rcv.arrays))
			if len(got) != adds || len(rcv.arrays) < adds/1000 {
				t.Errorf("%d payloads in %d calls", len(got), len(rcv.arrays))
			}
		})
	}
}
