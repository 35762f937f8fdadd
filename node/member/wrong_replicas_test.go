package member

import (
	"reflect"
	"testing"
	"time"

	"carillon/internal/placement"
	"carillon/ring"
)

// TestWrongReplicasAreToldAndForgotten: a node tells of its own replicas alone, and is believed until
// it has been silent about them for a while, or is removed.
func TestWrongReplicasAreToldAndForgotten(t *testing.T) {
	if encodeWrong(nil) != nil {
		t.Error("a node that is well tells something")
	}
	own, others := placement.WrongReplica{Group: 3, Replica: placement.ReplicaID(7, 2)}, placement.WrongReplica{Group: 4, Replica: placement.ReplicaID(8, 1)}
	frame := encodeWrong([]placement.WrongReplica{own, others})
	list, ok := decodeWrong(frame[1:])
	if frame[0] != wrongFrame || !ok || !reflect.DeepEqual(list, []placement.WrongReplica{own, others}) {
		t.Fatalf("%x: %v, %v", frame, list, ok)
	}
	for cut := 1; cut < len(frame); cut++ {
		if list, ok := decodeWrong(frame[1:cut]); ok {
			t.Errorf("cut at %d: %v", cut, list)
		}
	}
	l := newLiveness(0)
	want := func(now time.Duration, want ...placement.WrongReplica) {
		t.Helper()
		if got := l.facts(now, 1, 1, ring.NodeFacts{}, nil).Wrong; !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	l.recordWrong(0, 7, []placement.WrongReplica{own})
	want(0) // it is no node that is heard
	l.receive(0, 7, &heartbeat{Starts: 1})
	l.recordWrong(time.Second, 7, list)
	want(2*time.Second, own)
	want(time.Second + suspectAfter)
	l.recordWrong(5*time.Second, 7, []placement.WrongReplica{own})
	want(5*time.Second, own)
	l.forget(7)
	want(5 * time.Second)
}
