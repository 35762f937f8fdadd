package node

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/testkit"
)

// halfSnapshot is an incoming whose disk fails when it says so.
type halfSnapshot struct {
	have    int64
	failing bool
	aborted atomic.Bool
}

func (h *halfSnapshot) Have() int64   { return h.have }
func (h *halfSnapshot) Commit() error { return nil }
func (h *halfSnapshot) Abort()        { h.aborted.Store(true) }

func (h *halfSnapshot) Write(p []byte) (int, error) {
	if h.failing {
		return 0, errors.New("no space left on device")
	}
	h.have += int64(len(p))
	return len(p), nil
}

// TestSnapshotAfterAFailedWrite: a snapshot whose stream broke off goes on where it was. One that
// could not be written begins anew: the file that it went to is of no use any more, and the same
// snapshot may be sent again and again.
func TestSnapshotAfterAFailedWrite(t *testing.T) {
	var k snapshotReceivers
	var begun []*halfSnapshot
	open := func() *snapshotReceiver {
		t.Helper()
		s, err := k.open(7, []byte("the same"), func() (incoming, error) {
			begun = append(begun, &halfSnapshot{})
			return begun[len(begun)-1], nil
		})
		testkit.Must(t, err)
		return s.(*snapshotReceiver)
	}
	s := open()
	testkit.Must(t, s.Write([]byte("half")))
	if _, err := k.open(7, []byte("another"), nil); err == nil {
		t.Error("two at once from one node")
	}
	s.Close() // the connection broke
	if s = open(); s.Have() != 4 || len(begun) != 1 {
		t.Fatalf("it goes on at %d, of %d begun", s.Have(), len(begun))
	}
	begun[0].failing = true
	if err := s.Write([]byte("more")); err == nil {
		t.Fatal("written to a full disk")
	}
	s.Close()
	if !begun[0].aborted.Load() {
		t.Error("the file stays")
	}
	if s = open(); s.Have() != 0 || len(begun) != 2 {
		t.Fatalf("after the disk had failed it goes on at %d, of %d begun", s.Have(), len(begun))
	}
	testkit.Must(t, errors.Join(s.Write([]byte("whole")), s.Commit()))
	s.Close()
	if open(); len(begun) != 3 {
		t.Error("one that has ended is gone on with")
	}
}

// TestHalfASnapshotIsKeptForAWhile: a part that nobody goes on with goes after a while, the oldest
// one when there are too many, and all when the node stops.
func TestHalfASnapshotIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k snapshotReceivers
		parts := map[uint64]*halfSnapshot{}
		brokenOff := func(from uint64) {
			t.Helper()
			s, err := k.open(from, []byte("the same"), func() (incoming, error) {
				parts[from] = &halfSnapshot{}
				return parts[from], nil
			})
			if err == nil {
				err = s.Write([]byte("half"))
			}
			testkit.Must(t, err)
			s.Close()
		}
		brokenOff(1)
		time.Sleep(receiverIdleTime - time.Second)
		brokenOff(1) // it went on, and broke off again
		time.Sleep(receiverIdleTime - time.Second)
		synctest.Wait()
		if parts[1].aborted.Load() || parts[1].have != 8 {
			t.Fatalf("given up after two tries, at %d", parts[1].have)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !parts[1].aborted.Load() || len(k.byNode) != 0 {
			t.Fatal("kept without end")
		}
		for from := range uint64(3 * keptReceivers) {
			brokenOff(from)
		}
		for from, part := range parts {
			if part.aborted.Load() != (from < 2*keptReceivers) {
				t.Errorf("of many the one of node %d is kept: %v", from, !part.aborted.Load())
			}
		}
		k.close()
		for from, part := range parts {
			if !part.aborted.Load() {
				t.Errorf("the one of node %d outlives the node", from)
			}
		}
		if _, err := k.open(1, nil, nil); err == nil {
			t.Error("one more is begun when the node has stopped")
		}
	})
}
