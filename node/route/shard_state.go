package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/shard"
	"carillon/shard/wire"
	"carillon/timer"
	"carillon/timer/encoding"
)

// How states are read for a backup.
const (
	// The pause before a state that is being written is asked for again.
	stateRetry  = 100 * time.Millisecond
	stateTries  = 3                // of a shard, from its beginning
	stateWithin = 10 * time.Minute // a state must be there
	stateCallIn = 20 * time.Second // one piece
	stateIdle   = 5 * time.Minute  // one that nobody has asked for is closed
	maxStates   = 8                // open at once, for all backups
)

// StateSink takes shards' states one after the other, each in pieces.
type StateSink interface {
	// Begin begins a state. An earlier state of the same shard that was not ended is void.
	Begin(id timer.ShardID, index, size, hash uint64) error
	io.Writer
}

// State writes a shard's state as its leader has it, with all that was acknowledged before the
// call. If the leader is lost on the way, it begins again with the next.
func (r *Router) State(ctx context.Context, id timer.ShardID, to StateSink) (err error) {
	for range stateTries {
		var failed sinkError
		if err = r.stateOnce(ctx, id, to); err == nil || ctx.Err() != nil || errors.As(err, &failed) {
			return err
		}
	}
	return err
}

// sinkError is an error of a StateSink: to try again is in vain.
type sinkError struct{ error }

func (e sinkError) Unwrap() error { return e.error }

func (r *Router) stateOnce(ctx context.Context, id timer.ShardID, to StateSink) error {
	node, state, err := r.openState(ctx, id)
	if err != nil {
		return err
	}
	defer func() { // a state that is not given back goes by itself after a while
		_, _ = r.askState(context.WithoutCancel(ctx), node, &wire.StateRequest{Group: id, Number: state.Number})
	}()
	if err := to.Begin(id, state.Index, state.Size, state.Hash); err != nil {
		return sinkError{err}
	}
	for at := uint64(0); at < state.Size; {
		a, err := r.askState(ctx, node, &wire.StateRequest{Group: id, Number: state.Number, Offset: at, Bytes: wire.MaxStatePiece})
		if err != nil {
			return err
		}
		if len(a.Piece) == 0 || at+uint64(len(a.Piece)) > state.Size {
			return fmt.Errorf("route: a state of %d bytes has %d at %d", state.Size, len(a.Piece), at)
		}
		if _, err := to.Write(a.Piece); err != nil {
			return sinkError{err}
		}
		at += uint64(len(a.Piece))
	}
	return nil
}

// openState has a shard's leader open its state. The first answer names the index that it must
// have, and the opening waits until that is there.
func (r *Router) openState(ctx context.Context, id timer.ShardID) (node uint64, a wire.StateAnswer, err error) {
	begin := r.tasks.Now()
	b := task.NewBackoff(r.tasks, begin)
	q := wire.StateRequest{Group: id}
	var t target
	for r.tasks.Now()-begin < stateWithin {
		t.choose(r, id)
		switch a, err = r.askState(ctx, t.node, &q); {
		case readAgain(err):
			if !b.Wait(ctx, t.takeLeaderHint(err)) {
				return 0, a, timer.ErrNoLeader
			}
			continue
		case err != nil || a.Number != 0:
			return t.node, a, err
		}
		q.Index, b, t.hint = a.Index, task.NewBackoff(r.tasks, r.tasks.Now()), t.node
		if !r.tasks.Sleep(ctx, stateRetry) {
			return 0, a, ctx.Err()
		}
	}
	return 0, a, timer.ErrOverloaded
}

func (r *Router) askState(ctx context.Context, node uint64, q *wire.StateRequest) (wire.StateAnswer, error) {
	return readAt(ctx, r, node, &reading[wire.StateAnswer]{
		here:   func() (wire.StateAnswer, error) { return r.states.answer(r, r.self, q) },
		method: methodState, within: stateCallIn,
		ask:  func() []byte { return wire.AppendStateRequest(nil, q) },
		take: wire.DecodeStateAnswer,
	})
}

func (r *Router) serveState(from uint64, body []byte) ([]byte, error) {
	q, err := wire.DecodeStateRequest(body)
	if err != nil {
		return nil, err
	}
	a, err := r.states.answer(r, from, &q)
	return wire.AppendStateAnswer(nil, &a), err
}

// openStates are those that are being read. A state's file stays readable for as long as it is
// open, even if newer ones come.
type openStates struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*openState
}

type openState struct {
	mu    sync.Mutex // one piece at a time
	node  uint64     // its reader
	at    uint64
	state *shard.State
	used  time.Duration
}

func (s *openStates) answer(r *Router, from uint64, q *wire.StateRequest) (wire.StateAnswer, error) {
	if q.Number == 0 {
		return s.begin(r, from, q)
	}
	o := s.find(from, q, r.tasks.Now())
	switch {
	case o == nil && q.Bytes > 0:
		// Another process's, or closed: the reader begins again.
		return wire.StateAnswer{}, timer.ErrStopped
	case o != nil && q.Bytes > 0:
		return o.piece(q)
	case o != nil:
		o.close()
	}
	return wire.StateAnswer{}, nil
}

// find is the state of a request, if it is its reader's; one that is given back is open no more.
func (s *openStates) find(from uint64, q *wire.StateRequest, now time.Duration) *openState {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[q.Number]
	if o == nil || o.node != from {
		return nil
	}
	if o.used = now; q.Bytes == 0 {
		delete(s.open, q.Number)
	}
	return o
}

func (s *openStates) begin(r *Router, from uint64, q *wire.StateRequest) (a wire.StateAnswer, err error) {
	if err := r.notLeader(q.Group); err != nil {
		return a, err
	}
	if a.Index = q.Index; a.Index == 0 {
		if a.Index, err = r.host.Confirm(q.Group); err != nil {
			return a, err
		}
	}
	state, err := r.host.OpenState(q.Group, a.Index)
	if err != nil || state == nil {
		return a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxStates {
		_ = state.Close()
		return a, timer.ErrOverloaded
	}
	s.last++
	s.open[s.last] = &openState{node: from, state: state, used: r.tasks.Now()}
	return wire.StateAnswer{Index: state.Index, Number: s.last, Size: uint64(state.Size), Hash: state.Hash}, nil
}

// expire closes states that no backup reads any more.
func (s *openStates) expire(now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number, o := range s.open {
		if now-o.used > stateIdle {
			delete(s.open, number)
			o.close()
		}
	}
}

func (o *openState) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.state.Close()
}

func (o *openState) piece(q *wire.StateRequest) (a wire.StateAnswer, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if q.Offset > uint64(o.state.Size) {
		return a, encoding.ErrFormat
	}
	if q.Offset != o.at {
		if err := o.state.SeekTo(int64(q.Offset)); err != nil {
			return a, err
		}
	}
	a.Piece = make([]byte, min(q.Bytes, wire.MaxStatePiece, uint64(o.state.Size)-q.Offset))
	n, err := io.ReadFull(o.state, a.Piece)
	o.at = q.Offset + uint64(n)
	return a, err
}
