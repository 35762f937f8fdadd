package node

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/node/metrics"
	"carillon/test/testkit"
	"carillon/timer"
)

func heapNow() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves the objects of pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func diskUsed(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return nil
	})
	testkit.Must(t, err)
	return n
}

// eachOf calls a function for many, some side by side: writes that wait for the disk go into one
// frame.
func eachOf(n int, do func(i int)) {
	var work sync.WaitGroup
	next := make(chan int)
	for range 64 {
		work.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	work.Wait()
}

// TestThousandTopics: a thousand topics, made by their first timers, all with traffic. Each timer
// comes once; the memory is that of topics and timers; metrics have no series for each.
func TestThousandTopics(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const topics, each = 1000, 3
	n := start(t, t.TempDir())
	var mu sync.Mutex
	calls := map[string]int{}
	rec := newReceiver(t, func(a *receivedFile, _ http.ResponseWriter) {
		mu.Lock()
		defer mu.Unlock()
		calls[a.topic+"/"+a.timer]++
	})
	seriesOf := func() int { return strings.Count(n.must(200, "GET", "/metrics", ""), "\n") }
	before, series := heapNow(), seriesOf()
	begin := time.Now()
	eachOf(topics, func(i int) {
		for k := range each {
			body := fmt.Sprintf(`{"id":"t%d","delay":"%dms","payload":%d,"callback":{"url":%q}}`, k, 100+i%50, i, rec.URL)
			n.insist("POST", fmt.Sprintf("/v1/topics/topic-%d/timers", i), body) // a busy machine may refuse some by 503 first
		}
	})
	rec.await(t, topics*each)
	took := time.Since(begin)
	mu.Lock()
	for id, n := range calls {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	if len(calls) != topics*each {
		t.Errorf("%d timers came, want %d", len(calls), topics*each)
	}
	mu.Unlock()
	listed, pages := 0, 0
	for cursor := ""; ; pages++ {
		var page struct {
			Topics []struct{ Topic string }
			Next   string `json:"next_cursor"`
		}
		testkit.Must(t, json.Unmarshal([]byte(n.must(200, "GET", "/v1/topics?limit=300"+cursor, "")), &page))
		if listed += len(page.Topics); page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	if listed != topics {
		t.Errorf("%d topics are listed on %d pages", listed, pages+1)
	}
	rec.mu.Lock()
	rec.all = nil // the test's own objects are not the node's
	rec.mu.Unlock()
	perTopic := (heapNow() - before) / topics
	t.Logf("%d topics with %d timers each in %v; %d B of memory a topic, its finished timers included", topics, each, took, perTopic)
	if perTopic > 30<<10 {
		t.Errorf("a topic takes %d B", perTopic)
	}
	// Lines of the topics that are shown, and of calls that were not made before.
	const ofTopics, ofCalls = metrics.ShownTopics * 8, 80
	if more := seriesOf() - series; more > ofTopics+ofCalls {
		t.Errorf("/metrics has %d lines more than before", more)
	}
}

// TestTenThousandIdleTopicsVanish: topics that were made by the way and are left alone go, all of
// them, and leave nothing in memory; the log of their coming and going is bounded by snapshots. One
// that has a policy of its own, and one with a timer, stay.
func TestTenThousandIdleTopicsVanish(t *testing.T) {
	topics := 10_000
	if testing.Short() || os.Getenv("CARILLON_SOAK") == "" {
		topics = 4000
	}
	k := newKeeper(t)
	policy := timer.DefaultPolicy()
	if _, _, err := k.node.topics.Put(k.ctx, "made", &policy, timer.TopicChange{}); err != nil {
		t.Fatal(err)
	}
	if code := k.add(k.ensure("used")); code != timer.Created {
		t.Fatalf("add: %d", code)
	}
	waves := func() (took time.Duration) {
		eachOf(topics, func(i int) {
			if _, err := k.node.topics.Ensure(k.ctx, fmt.Sprintf("idle-%05d", i)); err != nil {
				t.Error(err)
			}
		})
		if got := len(k.node.topics.List("", 20_000)); got != topics+2 {
			t.Fatalf("%d topics were made, want %d", got, topics+2)
		}
		k.after(0)
		if got := len(k.node.topics.List("", 20_000)); got != topics+2 {
			t.Fatalf("%d topics are left before their hour is over", got)
		}
		begin := time.Now()
		k.after(topicIdle + time.Minute)
		took = time.Since(begin)
		if left := k.node.topics.List("", 20_000); len(left) != 2 {
			t.Errorf("%d topics are left", len(left))
		}
		return took
	}
	waves() // buffers that are grown once, and kept
	data := k.dir
	heap, disk := heapNow(), diskUsed(t, data)
	took := waves()
	moreHeap, moreDisk := heapNow()-heap, diskUsed(t, data)-disk
	t.Logf("%d idle topics went in %v; %d B of memory more than after the first time, %d B of log and snapshots", topics, took, moreHeap, moreDisk)
	// Other work of the node takes or frees about a megabyte.
	if moreHeap > 2<<20+100*int64(topics) {
		t.Errorf("%d topics that came and went left %d B in memory", topics, moreHeap)
	}
	if moreDisk/int64(topics) > 8<<10 {
		t.Errorf("a topic's coming and going takes %d B of log", moreDisk/int64(topics))
	}
	if !k.has("made") || !k.has("used") {
		t.Errorf("gone: used %v, made by hand %v", !k.has("used"), !k.has("made"))
	}
}
