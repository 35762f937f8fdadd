package member

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carillon/ring"
	"carillon/timer"
)

// TestNewLeaderIsReportedOnce: the heartbeat with which a node begins to lead a shard is news, the
// ones after it are not. Of the nodes that report a shard a silent one is asked last.
func TestNewLeaderIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := certified(t)
		var news []string
		m := s.NewMember(nil, nil, func(id timer.ShardID, node uint64) { news = append(news, fmt.Sprint(node, " leads ", id)) })
		for i, cmd := range []ring.Command{
			ring.FoundCommand("c", 4, 1, []ring.Node{{ID: 1, Name: "n1"}}), {Verb: ring.Register, Node: &ring.Node{ID: 2, Name: "n2"}},
			{Verb: ring.Register, Node: &ring.Node{ID: 3, Name: "n3"}},
		} {
			if r, err := m.State.Apply(int64(i), cmd.Encode()); err != nil || r.(ring.Reply).Err != nil {
				t.Fatal(r, err)
			}
		}
		s.SetMember(m)
		beat := func(node uint64, leads ...timer.ShardID) {
			h := heartbeat{WallMs: 1, Starts: 1, Leads: leads, Clock: heartbeatClock{Known: true}}
			if !s.Frame(node, h.encode()) {
				t.Fatal("not taken")
			}
		}
		want := func(silent bool, leaders []uint64, list ...string) {
			t.Helper()
			if !slices.Equal(news, list) {
				t.Errorf("news %q, want %q", news, list)
			}
			if got := m.LikelyLeaders(2); m.Silent(2) != silent || !slices.Equal(got[:len(leaders)], leaders) {
				t.Errorf("silent %v, likely leaders %v; want %v, %v", m.Silent(2), got, silent, leaders)
			}
			news = nil
		}
		pass := func(d time.Duration) { <-time.After(d) }
		beat(2, 1, 2)
		want(false, []uint64{2}, "2 leads 1", "2 leads 2")
		pass(heartbeatInterval)
		beat(2, 1, 2)
		beat(3, 4)
		want(false, []uint64{2}, "3 leads 4")
		pass(2 * heartbeatInterval)
		beat(3, 2, 4)
		want(true, []uint64{3, 2}, "3 leads 2")
		beat(2, 1, 2)
		want(false, []uint64{2, 3})
	})
}
