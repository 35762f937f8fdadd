package route

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carillon/shard"
	"carillon/shard/wire"
	"carillon/test/testkit"
	"carillon/timer"
)

// stateFile is a state in memory.
type stateFile struct {
	*bytes.Reader
	open *atomic.Int32 // of all
}

func (f stateFile) SeekTo(offset int64) error {
	_, err := f.Seek(offset, io.SeekStart)
	return err
}

func (f stateFile) Close() error {
	f.open.Add(-1)
	return nil
}

// stateBook takes states, and remembers how often one began.
type stateBook struct {
	begun int
	size  uint64
	bytes.Buffer
	refuse error
}

func (b *stateBook) Begin(_ timer.ShardID, _, size, _ uint64) error {
	b.begun++
	b.size = size
	b.Reset()
	return b.refuse
}

// stateCluster has a state in each shard that is there after so many questions.
func stateCluster(t *testing.T, questions int32) (c *fakeCluster, state []byte, open *atomic.Int32) {
	t.Helper()
	c = newFakeCluster(3, 3)
	state = bytes.Repeat([]byte("0123456789abcdef0"), 50_000)
	open = new(atomic.Int32)
	var asked atomic.Int32
	c.openState = func(n *fakeNode, id timer.ShardID, index uint64) (*shard.State, error) {
		if index != 1 {
			t.Errorf("shard %d: asked for index %d, its leader has confirmed 1", id, index)
		}
		if asked.Add(1) <= questions {
			return nil, nil // it is being written
		}
		open.Add(1)
		return &shard.State{SnapshotSource: stateFile{bytes.NewReader(state), open}, Size: int64(len(state)), Hash: uint64(id), Index: 5}, nil
	}
	return c, state, open
}

func TestStateComesFromItsLeader(t *testing.T) {
	c, state, open := stateCluster(t, 2)
	for id := timer.ShardID(1); id <= 3; id++ {
		var got stateBook
		testkit.Must(t, c.nodes[1].State(context.Background(), id, &got))
		if !bytes.Equal(got.Bytes(), state) || got.begun != 1 || got.size != uint64(len(state)) {
			t.Errorf("shard %d: %d of %d bytes, begun %d times", id, got.Len(), got.size, got.begun)
		}
	}
	if open.Load() != 0 {
		t.Errorf("%d states are still open", open.Load())
	}
}

// Where a leader goes on the way, the state begins anew with the next one.
func TestStateBeginsAnewWithTheNextLeader(t *testing.T) {
	c, state, _ := stateCluster(t, 0)
	calls := 0
	c.onCall = func(_ context.Context, call fakeCall, deliver func() ([]byte, error)) ([]byte, error) {
		if call.to != 2 || call.method != methodState {
			return deliver()
		}
		if calls++; calls < 3 {
			return deliver()
		}
		c.mu.Lock()
		c.leaders[2] = 3
		c.mu.Unlock()
		return nil, errNotSentFake
	}
	var got stateBook
	testkit.Must(t, c.nodes[1].State(context.Background(), 2, &got))
	if !bytes.Equal(got.Bytes(), state) || got.begun != 2 {
		t.Errorf("%d bytes, begun %d times", got.Len(), got.begun)
	}
}

// A part that the writer of the backup refuses is not tried again.
func TestStateEndsWithItsSink(t *testing.T) {
	c, _, open := stateCluster(t, 0)
	got := stateBook{refuse: errors.New("the client is gone")}
	if err := c.nodes[1].State(context.Background(), 2, &got); !errors.Is(err, got.refuse) || got.begun != 1 {
		t.Errorf("%v, begun %d times", err, got.begun)
	}
	if open.Load() != 0 {
		t.Errorf("%d states are still open", open.Load())
	}
}

// A leader that cannot write the snapshot ends the backup soon, with its reason.
func TestStateEndsWithItsLeadersFault(t *testing.T) {
	c, _, _ := stateCluster(t, 0)
	tries, failed := 0, timer.SnapshotError{Name: "n2", Path: "/data", Why: "input/output error"}
	c.openState = func(*fakeNode, timer.ShardID, uint64) (*shard.State, error) {
		tries++
		return nil, failed
	}
	if err := c.nodes[1].State(context.Background(), 2, &stateBook{}); !errors.Is(err, failed) || tries != stateTries {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// A node opens so many states and no more, gives pieces of each to its opener alone, and closes
// states that no backup reads any more.
func TestOpenStatesAreBounded(t *testing.T) {
	c, _, open := stateCluster(t, 0)
	r := c.nodes[2].Router
	begin := func() (wire.StateAnswer, error) {
		return r.states.answer(r, 1, &wire.StateRequest{Group: 2})
	}
	var last wire.StateAnswer
	for range maxStates {
		var err error
		if last, err = begin(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := begin(); !errors.Is(err, timer.ErrOverloaded) || open.Load() != maxStates {
		t.Errorf("one more: %v, %d are open", err, open.Load())
	}
	piece := &wire.StateRequest{Group: 2, Number: last.Number, Offset: 10, Bytes: 7}
	if _, err := r.states.answer(r, 3, piece); !errors.Is(err, timer.ErrStopped) {
		t.Errorf("a piece for another node: %v", err)
	}
	if a, err := r.states.answer(r, 1, piece); err != nil || string(a.Piece) != "abcdef0" {
		t.Errorf("%q, %v", a.Piece, err)
	}
	r.states.expire(r.tasks.Now() + stateIdle + 1)
	if open.Load() != 0 {
		t.Errorf("%d are open though nobody reads them", open.Load())
	}
}

// TestStatesThatNobodyReadsAreClosed: the node that made a backup has died; an open file keeps its
// place on the disk, whether there is another backup or not.
func TestStatesThatNobodyReadsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, open := stateCluster(t, 0)
		r := c.nodes[2].Router
		if _, err := r.states.answer(r, 1, &wire.StateRequest{Group: 2}); err != nil || open.Load() != 1 {
			t.Fatalf("%v, %d are open", err, open.Load())
		}
		ctx, end := context.WithCancel(t.Context())
		go r.Run(ctx)
		time.Sleep(stateIdle - watchInterval)
		if open.Load() != 1 {
			t.Error("it was closed too soon")
		}
		time.Sleep(3 * watchInterval)
		if open.Load() != 0 {
			t.Error("it is open still")
		}
		end()
		synctest.Wait()
	})
}
