package member

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"carillon/internal/feature"
	"carillon/internal/placement"
	"carillon/ring"
	"carillon/shard"
	"carillon/test/testkit"
	"carillon/timer"
)

// inJSON is a message in JSON.
func inJSON[T any](t *testing.T, v T) testkit.Message {
	t.Helper()
	b, err := json.Marshal(v)
	testkit.Must(t, err)
	return testkit.Message{Bytes: b, Read: func(b []byte) error {
		var got T
		err := json.Unmarshal(b, &got)
		if err == nil && !reflect.DeepEqual(got, v) {
			err = fmt.Errorf("it is read as %+v", got)
		}
		return err
	}}
}

// TestWireOfReleases: this build reads what nodes say to each other about members as each release
// so far wrote it, and writes it as the last release did. TestHeartbeatOfReleases has heartbeats.
func TestWireOfReleases(t *testing.T) {
	expect := func(ok bool, got any) error {
		if !ok {
			return fmt.Errorf("it is read as %+v", got)
		}
		return nil
	}
	wrong, sizes := []placement.WrongReplica{{Group: 300, Replica: 8<<24 | 1}, {Group: 1, Replica: 8<<24 | 2}}, map[timer.ShardID]int64{300: 1 << 40}
	n := ring.Node{ID: 1<<39 + 5, Name: "n1", HTTP: "10.0.0.1:7700", Peer: "10.0.0.1:7701", Gossip: "10.0.0.1:7702", Zone: "a", Version: "v1.0.0", Level: 1, Starts: 300}
	meta := &shard.Assignment{Epoch: 3, Settled: true, Members: []shard.Member{{Node: 8, Replica: 8<<24 | 1}, {Node: 9, Replica: 9<<24 | 3, Learner: true}}}
	messages := map[string]testkit.Message{
		"log end": {Bytes: encodeLogEnd(300, 1<<40), Read: func(b []byte) error {
			starts, synced, ok := decodeLogEnd(b[1:])
			return expect(ok && starts == 300 && synced == 1<<40, synced)
		}},
		"wrong replicas": {Bytes: encodeWrong(wrong), Read: func(b []byte) error {
			got, ok := decodeWrong(b[1:])
			return expect(ok && slices.Equal(got, wrong), got)
		}},
		"sizes of shards": {Bytes: encodeSizes(sizes), Read: func(b []byte) error {
			got, ok := decodeSizes(b[1:])
			return expect(ok && maps.Equal(got, sizes), got)
		}},
		"to join":             inJSON(t, n),
		"joined":              inJSON(t, joinAnswer{ClusterID: "c", Shards: 64, First: 4, Replicas: 3, Meta: meta}),
		"a founder":           inJSON(t, joinAnswer{ClusterID: "c", Plan: &ring.FoundingPlan{ClusterID: "c", Shards: 4, Replicas: 3, Nodes: []ring.Node{n}}}),
		"known?":              inJSON(t, knownQuestion{Confirm: true}),
		"known":               inJSON(t, knownFacts{Member: true, Confirmed: true, Starts: 300, Removed: true, Met: 299, Other: true, LogEnd: 1 << 40}),
		"may it be replaced?": inJSON(t, replaceQuestion{Node: 5}),
		"it may not":          inJSON(t, replaceAnswer{Why: "shard 3 has no majority"}),
		"not the leader":      inJSON(t, proposalAnswer{Moved: true, Leader: 8}),
		"decided":             inJSON(t, proposalAnswer{Reply: ring.Reply{Node: &n, Created: true}}),
		"index": {Bytes: []byte{indexKnown, 0xac, 0x02}, Read: func(b []byte) error {
			index, err := decodeIndex(b)
			return expect(err == nil && index == 300, index)
		}},
		"index elsewhere": {Bytes: []byte{indexElsewhere, 8}, Read: func(b []byte) error {
			_, err := decodeIndex(b)
			return expect(err == error(timer.NotLeaderError{Leader: 8}), err)
		}},
	}
	testkit.WireOfReleases(t, int(feature.LevelOfBuild), messages)
}

// TestNumbersOfMetaFaults: an error of the meta group keeps its number. A later one gets a number
// behind these.
func TestNumbersOfMetaFaults(t *testing.T) {
	first := []error{
		timer.ErrUnknown, timer.ErrNoLeader, timer.ErrOverloaded, timer.ErrStopped, timer.ErrRecovering, timer.ErrNoTopic, timer.ErrNotEmpty,
		timer.ErrTooManyTopics, ring.ErrNotFounded, ring.ErrFounded, ring.ErrOtherCluster, ring.ErrBadCluster, ring.ErrTooManyNodes, ring.ErrUnknownNode,
		ring.ErrStale, ring.ErrRemoved, ring.ErrNameTaken, ring.ErrLastNode, ring.ErrInUse, ring.ErrBadState, ring.ErrUnknownGroup, ring.ErrEpoch,
		ring.ErrMoving, ring.ErrBadPlacement, ring.ErrBadNode, ring.ErrTooOld, timer.ErrFeatureLevel, ring.ErrMalformed, ring.ErrMajority, ErrNotDrained,
		ring.ErrTurn, ring.ErrNotGone, timer.ErrTopicVersion, timer.ErrOutcomeTopic, timer.ErrNamed, ring.ErrBadShards, ring.ErrResharding, timer.ErrNamedSerial,
	}
	for i, want := range first {
		var a proposalAnswer
		if a.fail(want); a.Fault != 1+i {
			t.Errorf("%v is sent as %d, it was %d", want, a.Fault, 1+i)
		}
	}
}
