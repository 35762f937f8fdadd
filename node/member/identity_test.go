package member

import (
	"strings"
	"testing"

	"carillon/internal/placement"
	"carillon/ring"
	"carillon/shard"
	"carillon/test/memfs"
	"carillon/test/testkit"
)

// fullIdentity has everything that an identity can have.
func fullIdentity() Identity {
	nodes := []ring.Node{{ID: 11, Name: "a", Peer: "10.0.0.1:7701", Starts: 1}, {ID: 12, Name: "b", Peer: "10.0.0.2:7701", Starts: 1}}
	return Identity{
		Version: identityVersion, NodeID: 11, Starts: 3, Asked: 2, Founded: true, Shards: 64, FirstShards: 16, Replicas: 2, ClusterID: "0123456789abcdef0123456789abcdef",
		AcceptedPlan: &ring.FoundingPlan{ClusterID: "0123456789abcdef0123456789abcdef", Shards: 64, Replicas: 2, Nodes: nodes},
		Meta: &shard.Assignment{Group: 0, Epoch: 1, Settled: true, Members: []shard.Member{
			{Node: 11, Replica: placement.ReplicaID(11, 1)}, {Node: 12, Replica: placement.ReplicaID(12, 1)}}},
		Rejoin: &Rejoin{ClusterID: "0123456789abcdef0123456789abcdef", Seeds: []string{"10.0.0.2:7702"}},
	}
}

// TestIdentityDamage flips every bit of an identity and cuts it everywhere: none passes for another
// identity.
func TestIdentityDamage(t *testing.T) {
	fsys := memfs.New()
	testkit.Must(t, fsys.MkdirAll("data"))
	testkit.Must(t, fullIdentity().Write(fsys, "data"))
	id, err := ReadIdentity(fsys, "data")
	if err != nil || id.NodeID != 11 || len(id.AcceptedPlan.Nodes) != 2 || id.Meta.Members[1].Replica != placement.ReplicaID(12, 1) {
		t.Fatalf("%+v, %v", id, err)
	}
	const path = "data/" + identityFile
	info, err := fsys.Stat(path)
	testkit.Must(t, err)
	var whole []byte
	keep := func(b []byte) []byte { whole = append([]byte(nil), b...); return b }
	refuses := func(what string, at int, change func(b []byte) []byte) {
		t.Helper()
		testkit.Must(t, fsys.Damage(path, func([]byte) []byte { return change(append([]byte(nil), whole...)) }))
		if id, err := ReadIdentity(fsys, "data"); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), identityAdvice) {
			t.Fatalf("%s at %d of %d: %+v, %v", what, at, len(whole), id, err)
		}
	}
	testkit.Must(t, fsys.Damage(path, keep))
	for bit := range int(info.Bytes) * 8 {
		refuses("flip", bit/8, func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b })
	}
	for size := range int(info.Bytes) {
		refuses("cut", size, func(b []byte) []byte { return b[:size] })
		refuses("zeros", size, func(b []byte) []byte { clear(b[size:min(len(b), size+40)]); return b })
	}
	refuses("more", len(whole), func(b []byte) []byte { return append(b, ' ') })
}

// TestIdentityOfAnEmptyDirectory: it is drawn, kept, and not drawn beside a log that lost its own.
func TestIdentityOfAnEmptyDirectory(t *testing.T) {
	fsys := memfs.New()
	testkit.Must(t, fsys.MkdirAll("data"))
	random := func(b []byte) { b[0] = 6 }
	for starts := range uint32(3) {
		id, err := lockIdentity(fsys, "data", random)
		if err != nil || id.NodeID != 7 || id.Starts != starts+1 {
			t.Fatalf("%+v, %v", id, err)
		}
		random = nil
	}
	for _, dir := range []string{"other/wal", "other/snapshots"} {
		testkit.Must(t, fsys.MkdirAll(dir))
	}
	if _, err := lockIdentity(fsys, "other", random); err == nil || !strings.Contains(err.Error(), "holds a log but no") || !strings.Contains(err.Error(), identityAdvice) {
		t.Error(err)
	}
	// A restore writes the identity last.
	testkit.Must(t, fsys.MkdirAll("restoring/snapshots"))
	if _, err := lockIdentity(fsys, "restoring", random); err == nil || !strings.Contains(err.Error(), "a restore into it was interrupted") {
		t.Error(err)
	}
}
