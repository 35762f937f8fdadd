package node

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLimitsAcrossNodes: three nodes keep to a limit that is smaller than they are many, and get
// everything done.
func TestLimitsAcrossNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	nodes := trio(t)
	var mu sync.Mutex
	running, most := map[string]int{}, map[string]int{}
	var rated []time.Time
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		mu.Lock()
		running[a.topic]++
		most[a.topic] = max(most[a.topic], running[a.topic])
		if a.topic == "rated" {
			rated = append(rated, a.at)
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
	const timers = 24
	limits := map[string]string{"one": `"concurrency":1`, "two": `"concurrency":2`, "five": `"concurrency":5`, "rated": `"rate":{"per_second":20,"burst":3}`}
	for topic, limit := range limits {
		nodes[0].must(201, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q},%s}`, rec.URL, limit))
		var ops []string
		for i := range timers {
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%d","delay":"0s"}`, i))
		}
		nodes[1].must(200, "POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	}
	rec.await(t, timers*len(limits))
	mu.Lock()
	defer mu.Unlock()
	for topic, limit := range map[string]int{"one": 1, "two": 2, "five": 5} {
		if most[topic] > limit {
			t.Errorf("%d calls of topic %s at once", most[topic], topic)
		}
	}
	for i := range rated {
		for j := i; j < len(rated); j++ {
			const jitter = 0.1 // s between the lease and the call, on a busy machine
			if n, limit := j-i+1, 3+20*(rated[j].Sub(rated[i]).Seconds()+jitter); float64(n) > limit {
				t.Fatalf("%d deliveries within %v", n, rated[j].Sub(rated[i]))
			}
		}
	}
	t.Logf("at once: %v; %d rated within %v", most, len(rated), rated[len(rated)-1].Sub(rated[0]))
}
