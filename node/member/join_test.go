package member

import (
	"log/slog"
	"testing"

	"carillon/ring"
	"carillon/transport/peer"
)

// TestRemovalMustBeProven: the word that the cluster has removed this node ends it only when the
// member that was asked says it, and has proven that it is a node.
func TestRemovalMustBeProven(t *testing.T) {
	asked := ring.Node{ID: 2, Name: "n2"}
	word := peer.Hello{Node: 2, Cluster: "c"}
	for name, tt := range map[string]struct {
		proven bool
		from   peer.Hello
		want   bool
	}{
		"with a key":         {true, word, true},
		"without":            {false, word, false},
		"another node":       {true, peer.Hello{Node: 3, Cluster: "c"}, false},
		"of another cluster": {true, peer.Hello{Node: 2, Cluster: "d"}, false},
		"of no cluster yet":  {true, peer.Hello{Node: 2}, false},
	} {
		s := certified(t)
		s.cfg.PeersProven, s.log = tt.proven, slog.New(slog.DiscardHandler)
		if got := s.member.Load().ending.believed(asked, tt.from, "was removed"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
