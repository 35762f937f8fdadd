package node

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLimitsAcrossNodes: three nodes keep to a limit that is smaller than they are many, and get
// everything done. A rate adds at most one burst for each leadership that moves.
func TestLimitsAcrossNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	nodes := trio(t)
	for last, since, begun := 0, time.Now(), time.Now(); time.Since(since) < 3*time.Second; <-time.After(100 * time.Millisecond) {
		if n := elections(nodes); n != last { // leaderships spread over the nodes at first
			last, since = n, time.Now()
		}
		if time.Since(begun) > time.Minute {
			break // they move on: that is counted below
		}
	}
	var mu sync.Mutex
	running, most := map[string]int{}, map[string]int{}
	var rated []time.Time
	jitter := 100 * time.Millisecond // between the lease and the call, and what the machine adds to it
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		mu.Lock()
		running[a.topic]++
		most[a.topic] = max(most[a.topic], running[a.topic])
		switch a.topic {
		case "rated":
			rated = append(rated, a.at)
		case "free":
			jitter = max(jitter, 100*time.Millisecond+a.at.Sub(time.UnixMilli(a.dueMs)))
		}
		mu.Unlock()
		if a.topic != "rated" {
			<-time.After(20 * time.Millisecond) // a call takes its time
		}
		mu.Lock()
		running[a.topic]--
		mu.Unlock()
		w.WriteHeader(200)
	})
	const timers, perSecond, burst = 24, 5, 3
	add := func(topic, limit string, n int, due func(i int) time.Time) {
		nodes[0].must(201, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q}%s}`, rec.URL, limit))
		var ops []string
		for i := range n {
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%d","at_ms":%d}`, i, due(i).UnixMilli()))
		}
		nodes[1].must(200, "POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	before := elections(nodes)
	// The calls of a topic without limits come while the others do, and are as late as those.
	begin := time.Now().Add(time.Second)
	const free = 100
	add("free", "", free, func(i int) time.Time { return begin.Add(time.Duration(i) * 50 * time.Millisecond) })
	limits := map[string]string{"one": `"concurrency":1`, "two": `"concurrency":2`, "five": `"concurrency":5`, "rated": fmt.Sprintf(`"rate":{"per_second":%d,"burst":%d}`, perSecond, burst)}
	for topic, limit := range limits {
		add(topic, ","+limit, timers, func(int) time.Time { return begin })
	}
	rec.await(t, free+timers*len(limits))
	moved := elections(nodes) - before
	mu.Lock()
	defer mu.Unlock()
	for topic, limit := range map[string]int{"one": 1, "two": 2, "five": 5} {
		if most[topic] > limit {
			t.Errorf("%d calls of topic %s at once", most[topic], topic)
		}
	}
	bursts := float64(burst * (1 + moved))
	for i := range rated {
		for j := i; j < len(rated); j++ {
			between := rated[j].Sub(rated[i])
			if n := j - i + 1; float64(n) > bursts+perSecond*(between+jitter).Seconds() {
				t.Fatalf("%d deliveries within %v; calls come up to %v late; %d leaderships moved", n, between, jitter, moved)
			}
		}
		// A call never comes before its lease, however busy the machine is.
		if since := rated[i].Sub(begin); float64(i+1) > bursts+perSecond*since.Seconds()+0.1 {
			t.Fatalf("%d deliveries in the first %v; %d leaderships moved", i+1, since, moved)
		}
	}
	t.Logf("at once: %v; %d rated within %v; calls come up to %v late; %d leaderships moved", most, len(rated), rated[len(rated)-1].Sub(rated[0]), jitter, moved)
}

var electionsLine = regexp.MustCompile(`(?m)^carillon_raft_elections_total (\d+)`)

// elections is how many leaderships the nodes have won.
func elections(nodes []*running) (n int) {
	for _, r := range nodes {
		won, err := strconv.Atoi(electionsLine.FindStringSubmatch(r.must(200, "GET", "/metrics", ""))[1])
		if err != nil {
			r.t.Fatal(err)
		}
		n += won
	}
	return n
}
