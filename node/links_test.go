package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"carillon/shard/wire"
	"carillon/timer"
)

// halfSnapshot is an incoming whose disk fails when it says so.
type halfSnapshot struct {
	have    int64
	failing bool
	aborted bool
}

func (h *halfSnapshot) Have() int64   { return h.have }
func (h *halfSnapshot) Commit() error { return nil }
func (h *halfSnapshot) Abort()        { h.aborted = true }

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
	var k intakes
	var begun []*halfSnapshot
	open := func() *snapshotReceiver {
		t.Helper()
		s, err := k.open(7, []byte("the same"), func() (incoming, error) {
			begun = append(begun, &halfSnapshot{})
			return begun[len(begun)-1], nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return s.(*snapshotReceiver)
	}
	s := open()
	if err := s.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
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
	if !begun[0].aborted {
		t.Error("the file stays")
	}
	if s = open(); s.Have() != 0 || len(begun) != 2 {
		t.Fatalf("after the disk had failed it goes on at %d, of %d begun", s.Have(), len(begun))
	}
	if err := errors.Join(s.Write([]byte("whole")), s.Commit()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if open(); len(begun) != 3 {
		t.Error("one that has ended is gone on with")
	}
}

// A panic in the request of another node costs it the answer.
func TestPanicInAnAnswerToANode(t *testing.T) {
	var log bytes.Buffer
	l := links{p: &process{log: slog.New(slog.NewTextHandler(&log, nil))}}
	// 4: counts; there is no router.
	answer, err := l.answer(t.Context(), &core{}, 1, 4, wire.AppendCountsRequest(nil, []timer.TopicID{1}))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := wire.DecodeCounts(answer); !errors.Is(err, timer.ErrUnknown) {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "stack=") {
		t.Error(log.String())
	}
}
