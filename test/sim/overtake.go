package sim

import (
	"fmt"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

// overtaking makes snapshots overtake entries on their way to a disk. Of five replicas a leader and
// a follower are cut off; the leader goes on to append entries that never commit. The log keeps
// little, so a node that comes back needs a snapshot.
func (s *swarm) overtaking(c chance) {
	s.nodes, s.replicas, s.shards = 5, 5, 1+c.IntN(2)
	s.replicaFaults.overtake = 0.1 + 0.1*c.Float64()
	s.retainBytes = 1
	s.clients, s.think = 2, c.between(500*time.Millisecond, 1500*time.Millisecond)
	s.ordered, s.limits, s.sickThink, s.apart = true, false, 0, false
	s.delay, s.slow = c.between(100*time.Microsecond, 2*time.Millisecond), 0
	s.safety = c.between(40*time.Second, 70*time.Second)
	s.loss, s.duplicate = 0, 0
	s.partitions, s.crashes, s.pauses, s.steps, s.diskErrors, s.powerCuts, s.handOvers, s.moves = 0, 0, 0, 0, 0, 0, 0, 0
	s.wipes, s.rots, s.full, s.early = 0, 0, 0, false
	s.ordeals, s.ailments = ordeals{}, ailments{}
}

// overtake cuts off a leader and a follower. The follower's disk writes nothing until some time
// after the cut is healed.
func (w *World) overtake() {
	id := timer.ShardID(w.odds.IntN(w.swarm.shards + 1))
	leader := w.leader(id)
	if leader == nil || len(w.net.cut) > 0 {
		return
	}
	_, s := leader.host.Inspect(id)
	var others []*node
	for _, n := range w.nodes {
		if n != leader && n.host != nil && n.host.Progress(id).Replica != 0 {
			others = append(others, n)
		}
	}
	if len(s.Voters) < 5 || len(others) < 4 {
		return
	}
	follower := others[w.odds.IntN(len(others))]
	var links [][2]uint64
	for _, a := range []*node{leader, follower} {
		for _, b := range w.nodes {
			if b != leader && b != follower {
				links = append(links, [2]uint64{a.id, b.id}, [2]uint64{b.id, a.id})
			}
		}
	}
	for _, l := range links {
		w.net.cut[l] = true
	}
	cut := w.odds.between(1500*time.Millisecond, 3*time.Second)
	follower.hungUntil = w.now + cut + w.odds.between(time.Second, 4*time.Second)
	life := leader.life
	for i := range 10 + w.odds.IntN(20) { // more than the others will have at their next snapshot
		w.after(w.odds.between(0, time.Second), func() {
			if leader.life == life && leader.host != nil {
				w.askInVain(leader, id, i)
			}
		})
	}
	w.counts.Overtaken++
	w.note(follower, "overtaken", uint64(id), uint64(cut), "")
	w.after(cut, func() {
		for _, l := range links {
			delete(w.net.cut, l)
		}
	})
}

// askInVain makes a leader append another entry although it reaches no majority. Nobody waits for
// it.
func (w *World) askInVain(n *node, id timer.ShardID, i int) {
	if id == shard.Meta {
		// there is no such topic
		c := ring.Command{Verb: ring.Pause, Name: fmt.Sprint("in vain ", i)}
		n.host.SubmitMeta(c.Encode(), func(any, error) {})
	} else {
		cmd := &timer.Command{Kind: timer.Put, Topic: ballastTopic, ID: fmt.Sprint("in vain ", i),
			Spec: &timer.Spec{DueMs: ballastDueMs, Payload: []byte("x"), PayloadKind: timer.BinaryPayload}}
		n.host.Submit(id, cmd, true, func(timer.Result, error) {})
	}
	n.wake(0)
}
