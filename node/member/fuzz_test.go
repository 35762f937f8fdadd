package member

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"carillon/ring"
	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/timer"
)

// FuzzHeartbeat: no status frame of another node makes its reader panic, and a frame that is read
// is encoded as it came.
func FuzzHeartbeat(f *testing.F) {
	f.Add((&heartbeat{WallMs: 1_800_000_000_000, Starts: 3, Leads: []timer.ShardID{1, 2, 9},
		Limits: ring.AllocationReport{Seq: 3<<32 + 5, Received: []ring.ReportRef{{Node: 7, Seq: 9}}, Parts: []ring.Part{{Topic: 4, Leases: 2}, {Topic: 70, Leases: 1, Keys: 300}}}}).encode())
	f.Add((&heartbeat{WallMs: -1, Cordoned: true, Unhealthy: "its clock is off", Limits: ring.AllocationReport{Unsure: true, Unlisted: true, Unheard: []uint64{7}}}).encode())
	f.Add((&heartbeat{Limits: ring.AllocationReport{Seq: 1}, LowDisk: timer.LowDiskError{Node: 7, Name: "n2", Path: "/data", Free: 1, Limit: 2}}).encode())
	f.Add([]byte{heartbeatFrame})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != heartbeatFrame {
			return // the caller has looked
		}
		got, err := decodeHeartbeat(b)
		if err != nil || len(got.Unhealthy) > maxUnhealthyText {
			return
		}
		again, err := decodeHeartbeat(got.encode())
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v\nagain %+v: %v", got, again, err)
		}
	})
}

// FuzzIdentity: a file is an identity only as it was written.
func FuzzIdentity(f *testing.F) {
	whole, err := fullIdentity().encode()
	testkit.Must(f, err)
	f.Add(whole)
	f.Add([]byte(`{"version":1,"node_id":7,"starts":1,"founded":true}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := decodeIdentity(b)
		if err != nil {
			return
		}
		if again, err := id.encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q was read, %q would be written: %v", b, again, err)
		}
	})
}

// FuzzFoundingPlan: the answer of a node that this one joins has a plan that can be founded, or
// this node stores nothing of it.
func FuzzFoundingPlan(f *testing.F) {
	good, err := json.Marshal(joinAnswer{ClusterID: "c", Plan: &ring.FoundingPlan{ClusterID: "c", Shards: 4, Replicas: 2, Nodes: []ring.Node{{ID: 1, Name: "n1"}, {ID: 2, Name: "n2"}}}})
	testkit.Must(f, err)
	f.Add(good)
	for _, b := range []string{`{"plan":{}}`, `{"plan":{"cluster_id":"c","shards":1,"replicas":1,"nodes":[{"id":2,"name":"n2"}]}}`, `{"plan":{"cluster_id":"c","shards":4,"replicas":1,"nodes":[{"id":1,"name":"n1"},{"id":1,"name":"n2"}]}}`, "null"} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var a joinAnswer
		if json.Unmarshal(b, &a) != nil || a.Plan == nil || a.Plan.Shards > 1000 {
			return
		}
		fsys := memfs.New()
		s := &Self{id: 1, cfg: Config{FS: fsys, Dir: "data"}}
		s.identity.Store(&Identity{NodeID: 1})
		testkit.Must(t, fsys.MkdirAll("data"))
		if err := s.Found(a.Plan); err != nil {
			if s.Identity().ClusterID != "" {
				t.Fatalf("%v, and it is stored: %+v", err, s.Identity())
			}
			return
		}
		id, err := ReadIdentity(fsys, "data")
		if err != nil || id.ClusterID != a.Plan.ClusterID || !id.AcceptedPlan.Has(1) || memberOf(id.Meta, 1) == 0 {
			t.Fatalf("%+v, %v", id, err)
		}
	})
}
