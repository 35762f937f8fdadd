package member

import (
	"context"
	"sync"
	"time"

	"carillon/ring"
	"carillon/shard/table"
	"carillon/timer/encoding"
)

// The leases of a process that seems to have ended may be taken over early only by a decision of
// the meta group: see docs/adr/0048.

const (
	fenceFirstPause = 25 * time.Millisecond
	fenceMaxPause   = 500 * time.Millisecond // between two proposals, at most
	foundMemory     = 3 * time.Second        // after it was found gone last: it is not taken for gone
	fenceTimeout    = time.Minute            // most leases are over by then
	voterTimeout    = 300 * time.Millisecond // a voter's answer
)

// fences are the requests of this node's shards to take a process for gone.
type fences struct {
	*local
	meta *metaClient

	mu sync.Mutex
	// By process: the callers that wait for the next decision. A decision that is under way does
	// not count for them: it may have begun before they led their shards.
	asks map[table.Incarnation][]func(error)
}

// Restarted implements shard.Placement.
func (f *fences) Restarted(owner table.Incarnation) bool {
	return f.State.NewestStart(owner.Node()) > owner.Start()
}

func (f *fences) Fence(owner table.Incarnation, then func(error)) {
	ctx := f.running.Load()
	if ctx == nil {
		f.tasks.Go(func() { then(errNotYet) })
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting, busy := f.asks[owner]
	f.asks[owner] = append(waiting, then)
	if !busy {
		f.tasks.Go(func() { f.runFence(*ctx, owner) })
	}
}

// next takes those who wait for a decision about a process. It returns none when nothing is left to
// do.
func (f *fences) next(owner table.Incarnation) []func(error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.asks[owner]
	if len(list) == 0 {
		delete(f.asks, owner)
		return nil
	}
	f.asks[owner] = nil
	return list
}

func (f *fences) runFence(ctx context.Context, owner table.Incarnation) {
	for list := f.next(owner); list != nil; list = f.next(owner) {
		err := f.fence(ctx, owner)
		for _, then := range list {
			then(err)
		}
	}
}

// fence has the meta group decide that a process is gone, once this node finds it so. It need not
// if the next process has registered.
func (f *fences) fence(ctx context.Context, owner table.Incarnation) error {
	cmd := ring.Command{Verb: ring.Fence, NodeID: owner.Node(), Starts: owner.Start()}
	pause, end := fenceFirstPause, f.tasks.Now()+fenceTimeout
	for until := f.tasks.Now() + foundMemory; f.tasks.Now() < min(until, end); {
		if f.Restarted(owner) {
			return nil
		}
		if f.peers.FindsGone(ctx, owner.Node(), owner.Start()) {
			until = f.tasks.Now() + foundMemory
			if _, err := f.meta.Propose(ctx, cmd); err == nil {
				f.log.Warn("the cluster considers a process ended: calls that it had in flight may be repeated", "node", f.NameOf(owner.Node()), "start", owner.Start())
				return nil
			}
			pause = min(2*pause, fenceMaxPause)
		}
		if !f.tasks.Sleep(ctx, pause) {
			break
		}
	}
	return ring.ErrNotGone
}

// answerGone answers 1 if this node finds a process gone, else 0.
func (f *fences) answerGone(ctx context.Context, body []byte) ([]byte, error) {
	r := encoding.Reader{Rest: body}
	node, starts := r.Uvarint(), uint32(r.Number(1<<32-1, "starts"))
	if err := r.Close(); err != nil {
		return nil, err
	}
	if f.peers.FindsGone(ctx, node, starts) {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}
