package node

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/shard"
)

// TestShareSums: the nodes' parts of a limit are never more than the whole, and everybody gets something, in time.
func TestShareSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		shards, n := 1+random.IntN(64), 1+random.IntN(5)
		counts, mine := map[uint64]int64{}, map[uint64][]shard.ID{}
		for id := 1; id <= shards; id++ {
			if node := uint64(random.IntN(n + 1)); node > 0 { // 0: nobody leads it
				counts[node]++
				mine[node] = append(mine[node], shard.ID(id))
			}
		}
		topic := &shard.Topic{ID: shard.TopicID(random.IntN(100)), Name: "t"}
		topic.Policy.Ordered = random.IntN(4) == 0
		limit, turn := 1+random.IntN(40), random.Int64N(1000)
		got := map[uint64]int{}
		for k := range int64(len(counts)) {
			sum, share := 0, 0.0
			for node := range counts {
				var s shares
				s.view.Store(newShareView(shards, counts, node, mine[node]))
				v := s.view.Load()
				part := v.units(topic, limit, turn+k)
				got[node] += part
				sum += part
				share += s.Share(topic)
			}
			if sum > limit || share > 1+1e-9 {
				t.Fatalf("%d of %d, %f of the rate: %d shards, %v", sum, limit, share, shards, counts)
			}
			if led := sum64(counts); led == int64(shards) && sum != limit {
				t.Fatalf("%d of %d are used though all is led: %v", sum, limit, counts)
			}
		}
		for node := range counts {
			if got[node] == 0 && !topic.Policy.Ordered {
				t.Fatalf("node %d gets nothing of %d: %v", node, limit, counts)
			}
		}
		if v := newShareView(shards, counts, 99, nil); v.units(topic, limit, turn) != 0 {
			t.Fatal("who leads nothing has a part")
		}
	}
	if v := (*shareView)(nil); v.units(&shard.Topic{}, 5, 0) != 0 {
		t.Error("a node has a part before it knows anything")
	}
}

func sum64(m map[uint64]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

func TestBeatHeld(t *testing.T) {
	for _, b := range []beat{
		{WallMs: 5000, Starts: 2, Unfit: "x", Leads: []shard.ID{1, 5}, Held: []shard.TopicID{3, 4, 1 << 31}},
		{WallMs: 5999, Aside: true},
		{WallMs: 5000, HeldMany: true},
	} {
		frame := b.encode()
		got, err := decodeBeat(frame)
		if err != nil || !reflect.DeepEqual(*got, b) {
			t.Fatalf("%+v, %v, want %+v", got, err, b)
		}
		want := !b.HeldMany && b.Held == nil
		if got.freeOf(4, 5) != want || got.freeOf(4, 6) {
			t.Errorf("%+v: free in its turn %v, in the next %v", b, got.freeOf(4, 5), got.freeOf(4, 6))
		}
		for cut := 1; cut < len(frame); cut++ {
			if short, err := decodeBeat(frame[:cut]); err == nil && short.freeOf(77, 5) {
				t.Errorf("a beat cut at %d of %d says that nothing is held", cut, len(frame))
			}
		}
	}
}

// TestLimitsAcrossNodes: three nodes keep to a limit that is smaller than they are many, and get everything done.
func TestLimitsAcrossNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	nodes := trio(t)
	awaitPreferred(t, nodes) // while leaderships move, a limit may be passed by what runs
	var mu sync.Mutex
	running, most := map[string]int{}, map[string]int{}
	var rated []time.Time
	rec := newReceiver(t, func(a *arrival, w http.ResponseWriter) {
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
