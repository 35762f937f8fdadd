package shard

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/shard/wire"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/timer/encoding"
)

// openState calls OpenState until the state is available.
func (h *hostHarness) openState(index uint64) *State {
	h.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		var got *State
		h.blocking(func() {
			var err error
			if got, err = h.host.OpenState(1, index); err != nil {
				h.t.Error(err)
			}
		})
		if got != nil {
			return got
		}
		h.pass(50 * time.Millisecond)
		// The file is written in the background.
		if h.host.jobs.Load() > 0 {
			select {
			case <-h.host.workers[0].box.wake:
			case <-time.After(5 * time.Millisecond):
			}
			h.runIdle()
		}
	}
	h.t.Fatal("the state does not come")
	return nil
}

func (h *hostHarness) confirm() (index uint64) {
	h.t.Helper()
	h.blocking(func() {
		var err error
		if index, err = h.host.Confirm(1); err != nil {
			h.t.Error(err)
		}
	})
	return index
}

// TestStateHasAllThatWasConfirmed: a state contains every command that was acknowledged before it
// was requested. Its file stays readable after newer snapshots have replaced it.
func TestStateHasAllThatWasConfirmed(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("first", time.Hour)
	first := r.openState(r.confirm())
	defer first.Close()
	r.add("second", time.Hour)
	second := r.openState(r.confirm())
	defer second.Close()
	r.add("third", time.Hour)
	third := r.openState(r.confirm())
	defer third.Close()
	for i, s := range []*State{first, second, third} {
		body, err := io.ReadAll(s)
		if err != nil || int64(len(body)) != s.Size {
			t.Fatalf("%d of %d bytes, %v", len(body), s.Size, err)
		}
		tbl, err := table.Load(1, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for n, id := range []string{"first", "second", "third"} {
			if has := tbl.Read(1, id) != nil; has != (n <= i) {
				t.Errorf("state %d: %s is in it: %t", i, id, has)
			}
		}
	}
}

func TestStateMessages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		q := wire.StateRequest{Group: 7, Index: random.Uint64(), Number: random.Uint64(), Offset: random.Uint64(), Bytes: random.Uint64()}
		if got, err := wire.DecodeStateRequest(wire.AppendStateRequest(nil, &q)); err != nil || got != q {
			t.Fatalf("%+v, %v", got, err)
		}
		a := wire.StateAnswer{Index: random.Uint64(), Number: random.Uint64(), Size: random.Uint64(), Hash: random.Uint64(), Piece: []byte("piece")}
		b := wire.AppendStateAnswer(nil, &a)
		got, err := wire.DecodeStateAnswer(b)
		if err != nil || got.Index != a.Index || got.Number != a.Number || got.Size != a.Size || got.Hash != a.Hash || !bytes.Equal(got.Piece, a.Piece) {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, err := wire.DecodeStateAnswer(b[:random.IntN(len(b))]); err == nil {
			t.Fatal("a part of an answer is taken for the whole")
		}
	}
	if _, err := wire.DecodeStateAnswer(wire.AppendFailure(nil, encoding.ErrFormat)); err == nil {
		t.Error("an error is lost")
	}
}

// TestADamagedSnapshotIsMadeAnew: it is found damaged while a backup, or another node, reads it.
// They get another one, though nothing has changed since. Found by the simulator, seed 1020040.
func TestADamagedSnapshotIsMadeAnew(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.group(1)
		r.add("first", time.Hour)
		r.take(g)
		list := r.snapshotFiles(1)
		if err := r.fs.FlipBit(r.host.snapshotDir()+"/"+list[0].Name, list[0].Bytes*4); err != nil {
			t.Fatal(err)
		}
		state := r.openState(g.files.Newest.Index)
		if _, err := io.ReadAll(state); err == nil {
			t.Fatal("it is not damaged")
		}
		_ = state.Close()
		r.runIdle()
		state = r.openState(g.files.Newest.Index)
		if _, err := io.ReadAll(state); err != nil {
			t.Errorf("the next one: %v", err)
		}
		_ = state.Close()
	})
}

// TestStateThatCannotBeWritten: where the snapshot of which a backup is made cannot be written, the
// backup is told why, once. Asked again, the host tries again.
func TestStateThatCannotBeWritten(t *testing.T) {
	bubbleHarness(t, func(cfg *Config) { smallLog(cfg); cfg.Name = "n1" }, func(r *hostHarness) {
		sick := true
		r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
			if sick && op == memfs.OpWrite && strings.Contains(name, "snapshots/") {
				return syscall.EIO
			}
			return nil
		})
		r.add("first", time.Hour)
		index := r.confirm()
		told := func() (err error) {
			var s *State
			for range 100 {
				if r.blocking(func() { s, err = r.host.OpenState(1, index) }); s != nil || err != nil {
					break
				}
				r.pass(100 * time.Millisecond)
			}
			if s != nil {
				_ = s.Close()
			}
			return err
		}
		for range 2 {
			failed, ok := errors.AsType[timer.SnapshotError](told())
			if !ok || failed.Name != "n1" || failed.Path != "data" || !strings.Contains(failed.Why, "input/output error") {
				t.Fatalf("it is told %+v", failed)
			}
		}
		sick = false
		if err := told(); err != nil {
			t.Errorf("the disk is well: %v", err)
		}
	})
}
