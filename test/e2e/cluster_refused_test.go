package e2e

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestClusterRefusedPortOfALivingLeader: something in the network refuses connections to the peer
// port of a leader that lives, as a firewall does or a service without endpoints, and later no
// more. No call is made twice at a time or again: neither one that runs meanwhile, nor one that runs
// when the leadership moves later.
func TestClusterRefusedPortOfALivingLeader(t *testing.T) {
	t.Parallel()
	needCluster(t)
	members := loopbackMembers(t, 3)
	gossip, peers := &relay{}, map[string]*relay{}
	advertised := func(address string) string {
		_, port, _ := net.SplitHostPort(address)
		return "127.0.0.2:" + port
	}
	defer gossip.close()
	for _, m := range members {
		peers[m.name] = &relay{}
		defer peers[m.name].close()
		peers[m.name].at(t, advertised(m.peer), m.peer)
		gossip.at(t, advertised(m.gossip), m.gossip)
	}
	c := &cluster{keyless: true, flags: []string{"--advertise", "127.0.0.2"}, members: members}
	for _, m := range members {
		c.start(t, m, "--shards", fmt.Sprint(clusterShards), "--bootstrap-expect", "3")
	}
	c.awaitHealthy(t)

	release := make(chan struct{})
	rcv := newReceiver(t, func(w http.ResponseWriter, _ *http.Request, _ int) { <-release; w.WriteHeader(200) })
	for topic, policy := range map[string]string{"once": `"retry":{"max_attempts":1}`, "serial": `"serial":true`} { // calls outlast what is done meanwhile
		members[0].client.must(t, 201, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q,"timeout":"30s"},%s}`, rcv.url(), policy))
	}
	const timers = 24
	// runs has calls run while something is done to the node that leads most, and checks that each was
	// made once.
	runs := func(set string, done func(victim *member)) {
		for i := range timers {
			for _, topic := range []string{"once", "serial"} {
				c.eventually(t, "PUT", timerPath(topic, fmt.Sprint(set, i)), `{"delay_ms":0}`)
			}
		}
		if !holdsWithin(formLimit, func() bool { return rcv.open.Load() == 2*timers }) {
			t.Fatalf("%s: %d calls run, want %d", set, rcv.open.Load(), 2*timers)
		}
		done(c.busiest(t))
		close(release)
		if !holdsWithinBy(lookEvery, formLimit, func() bool { return rcv.open.Load() == 0 && c.allDone(t, "once") && c.allDone(t, "serial") }) {
			t.Errorf("%s: not all timers are done", set)
		}
		release = make(chan struct{})
	}
	runs("during", func(victim *member) {
		peers[victim.name].close()
		wait(2500 * time.Millisecond)
		peers[victim.name].at(t, advertised(victim.peer), victim.peer)
		wait(3 * time.Second)
		c.awaitHealthy(t)
	})
	wait(5 * time.Second) // leaderships are back where they are preferred
	runs("later", func(victim *member) {
		victim.client.must(t, 202, "POST", "/v1/cluster/nodes/"+victim.name+"/drain", "")
		c.awaitView(t, settleLimit, victim.name+" leads nothing", func(v view) bool { return len(v.ledBy(victim.name)) == 0 })
		wait(4 * time.Second)
	})
	rcv.mu.Lock()
	defer rcv.mu.Unlock()
	for key, n := range rcv.calls {
		if n != 1 {
			t.Errorf("%s was called %d times", key, n)
		}
	}
	if len(rcv.calls) != 4*timers {
		t.Errorf("%d timers were called, want %d", len(rcv.calls), 4*timers)
	}
}

func (c *cluster) allDone(t *testing.T, topic string) bool {
	for _, tm := range c.all()[0].client.all(t, topic) {
		if tm.State == "dead" {
			t.Fatalf("a dead letter: %+v", tm)
		}
		if tm.State != "done" {
			return false
		}
	}
	return true
}
