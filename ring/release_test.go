package ring

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"carillon/internal/feature"
	"carillon/test/testkit"
	"carillon/timer"
)

// TestWireOfReleases: this build reads what nodes gossip about themselves, and commands of the meta
// group, as each release so far wrote them, and writes them as the last release did.
func TestWireOfReleases(t *testing.T) {
	messages := map[string]testkit.Message{}
	for name, v := range map[string]Member{
		"member": {
			ID: 1<<39 + 5, Starts: 300, Name: "n1", HTTP: "10.0.0.1:7700", Peer: "10.0.0.1:7701", Zone: "a", Version: "v1.0.0",
			Cluster: strings.Repeat("0f", 16), Level: 1, Expect: 3, Shards: 64, Replicas: 3,
		},
		"leaving member": {ID: 7, Name: "n2", HTTP: "h:1", Peer: "x:2", Cluster: "a-name"},
	} {
		leaves := strings.HasPrefix(name, "leaving")
		b, err := encodeMember(v, leaves)
		testkit.Must(t, err)
		messages[name] = testkit.Message{Bytes: b, Read: func(b []byte) error {
			got, leaving, err := decodeMember(gossipNode{meta: b})
			if err == nil && (got != v || leaving != leaves) {
				err = fmt.Errorf("it is read as %+v, leaving %t", got, leaving)
			}
			return err
		}}
	}

	n := Node{
		ID: 1<<39 + 5, Name: "n1", HTTP: "10.0.0.1:7700", Peer: "10.0.0.1:7701", Gossip: "10.0.0.1:7702", Zone: "a", Version: "v1.0.0", Level: 1,
		Starts: 300, Fenced: 299, State: NodeDraining, JoinedMs: 5, SinceMs: 6,
	}
	policy := timer.DefaultPolicy()
	for _, c := range []Command{
		{Verb: Ensure, Name: "t", Policy: &policy},
		{Verb: Put, Name: "t", ID: 7, IfVersion: 3, IfNew: true, Policy: &policy, Turn: 2},
		{Verb: Pause, Name: "t"},
		{Verb: Resume, Name: "t"},
		{Verb: Close, Name: "t", ID: 7, IfVersion: 3, Force: true},
		{Verb: Reopen, Name: "t", ID: 7},
		{Verb: Delete, Name: "t", ID: 7},
		{Verb: Turn, Name: "t", ID: 7},
		{Verb: Turned, Name: "t", ID: 7, Turn: 2},
		{Verb: Found, ClusterID: "c", Shards: 2, Replicas: 3, Nodes: []Node{n}, Layout: [][]int{{0}, {0}}},
		{Verb: Register, Node: &n, Replace: true, ClusterID: "c", Heard: []uint64{1, 2}},
		{Verb: SetState, NodeID: 5, State: NodeDrained},
		{Verb: Remove, NodeID: 5, Force: true, Heard: []uint64{1, 2}, Down: true, AcceptLoss: true},
		{Verb: Fence, NodeID: 5, Starts: 300, Refused: []uint64{1, 2}},
		{Verb: Place, Group: 3, Epoch: 4, To: []Replica{{Node: 1, ID: 1<<24 | 5, Learner: true}}, Force: true},
		{Verb: Reconciled, Group: 3, Epoch: 4},
		{Verb: SetSecret, Secret: []byte("a secret")},
		{Verb: Reseal, Name: "t", ID: 7, Swaps: []Swap{{Sum: []byte("sum"), New: "new"}}},
		{Verb: SetReplicas, Replicas: 5},
		{Verb: SetShards, Shards: 64},
		{Verb: Divide, Group: 3, Epoch: 4},
		{Verb: Finalize, Level: 2},
	} {
		messages["command "+string(c.Verb)] = testkit.Message{Bytes: c.Encode(), Read: func(b []byte) error {
			var got Command
			err := json.Unmarshal(b, &got)
			if err == nil && !reflect.DeepEqual(got, c) {
				err = fmt.Errorf("it is read as %+v", got)
			}
			return err
		}}
	}
	testkit.WireOfReleases(t, int(feature.LevelOfBuild), messages)
}
