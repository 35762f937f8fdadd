package shard

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/timer"
)

// TestNewLeaderIsNews: a replica reports the leader that it follows once, and the next one when the
// first has fallen silent.
func TestNewLeaderIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		news := make([][]string, 3)
		var c *hostCluster
		c = newHostClusterOf(t, 3, []int{0, 1, 2}, func(i int, cfg *Config) {
			cfg.NewLeader = func(id timer.ShardID, node uint64) {
				if id != 1 {
					return
				}
				news[i] = append(news[i], fmt.Sprint(node))
				if c == nil { // the cluster is being made
					return
				}
				if known, _ := c.hosts[i].host.Leader(id); known != node {
					t.Errorf("node %d: %d leads, but %d by Host.Leader", firstNode+i, node, known)
				}
			}
		})
		defer c.end()
		want := func(of int, list ...string) {
			t.Helper()
			c.until("the news are there", 5*time.Second, func() bool { return len(news[of]) >= len(list) })
			c.pass(time.Second)
			if !slices.Equal(news[of], list) {
				t.Errorf("node %d: the leaders were %v, want %v", firstNode+of, news[of], list)
			}
		}
		for of := range 3 {
			want(of, "7")
		}
		c.away[0] = true
		c.until("another leads", 10*time.Second, func() bool { return c.shard(1).serves() || c.shard(2).serves() })
		next := "8"
		if c.shard(2).serves() {
			next = "9"
		}
		want(1, "7", next)
		want(2, "7", next)
	})
}

// TestEmptyAnswerSaysNothing: a follower that was paused answers the old leader's messages without
// an index, which only says that the term is over. The new leader, which asks it where its log ends,
// goes on asking there: from the first entry on it would need a snapshot.
func TestEmptyAnswerSaysNothing(t *testing.T) {
	h, c := withFakePeers(t, true, nil)
	r := h.host.group(1)
	for n := 0; !r.leader; n++ {
		if n > 100 {
			t.Fatal("the shard has no leader")
		}
		h.pass(tickInterval)
		for _, m := range slices.Clone(c.sent) {
			if vote := m.GetType(); m.GetFrom() == r.id && (vote == pb.MsgPreVote || vote == pb.MsgVote) {
				c.send(1, agreement(m))
			}
		}
		c.sent = nil
		h.runIdle()
	}
	other := ReplicaID(8, 1)
	next := r.raft.Status().Progress[other].Next
	c.send(1, &pb.Message{Type: pb.MsgAppResp.Enum(), From: &other, To: &r.id, Term: &r.term})
	h.runIdle()
	if got := r.raft.Status().Progress[other].Next; got != next || next <= foundingIndex {
		t.Errorf("the next entry for the follower is %d, and was %d", got, next)
	}
}
