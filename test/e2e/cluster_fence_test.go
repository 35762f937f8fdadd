package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// Limits of what a dead leader had in flight: how soon it is called again where that may be, once a
// majority finds the leader gone, and how soon all of it once the node is back.
const (
	fencedLimit    = latenessOnFault
	restartedLimit = latenessOnFault
)

// TestClusterCallsInFlightOfADeadLeader: a call that was in flight when its leader was killed is
// made again although the leader stays away. One of a serial key waits until its node is back:
// until then nobody can be sure that it does not run.
func TestClusterCallsInFlightOfADeadLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	rcv := newReceiver(t, func(w http.ResponseWriter, r *http.Request, n int) {
		if n == 1 { // the first call is in flight until its leader dies
			<-r.Context().Done()
			return
		}
		w.WriteHeader(200)
	})
	for topic, extra := range map[string]string{"plain": "", "serial": `"serial":true,`} { // calls outlast what is done meanwhile
		c.all()[0].client.must(t, 201, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q,"timeout":"5m"},%s"breaker":{"failures":1000}}`, rcv.url(), extra))
	}
	victim := c.busiest(t)
	const most = 40
	for i := range most {
		for _, topic := range []string{"plain", "serial"} {
			c.eventually(t, "PUT", timerPath(topic, fmt.Sprint("t", i)), `{"delay_ms":0}`)
		}
	}
	if !holdsWithin(formLimit, func() bool { return rcv.open.Load() == 2*most }) {
		t.Fatalf("%d calls run, want %d", rcv.open.Load(), 2*most)
	}
	before := rcv.open.Load()
	victim.process().kill()
	killed := time.Now()
	if !holdsWithin(formLimit, func() bool { return rcv.open.Load() < before }) {
		t.Fatal("no call broke off")
	}
	broken := before - rcv.open.Load() // of both topics, about half each
	again := func(topic string) (n int) {
		rcv.mu.Lock()
		defer rcv.mu.Unlock()
		for i := range most {
			n += rcv.calls[topic+"/t"+fmt.Sprint(i)] - 1
		}
		return n
	}
	if !holdsWithin(fencedLimit, func() bool { return again("plain") > 0 }) {
		t.Fatalf("%d calls broke off, and none of the plain ones was made again after %v", broken, time.Since(killed))
	}
	t.Logf("called again %v after the kill", time.Since(killed))
	wait(time.Second)
	if n := again("serial"); n > 0 {
		t.Errorf("%d calls of serial keys were made again before the node was back", n)
	}
	c.start(t, victim)
	back := time.Now()
	if !holdsWithin(restartedLimit, func() bool { return again("serial") > 0 }) {
		t.Errorf("no call of a serial key was made again %v after its node was back", time.Since(back))
	}
	t.Logf("serial keys: %v after the start", time.Since(back))
}
