package route

import (
	"context"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
)

// pace slows all bulk changes of a node, so that together they leave the shards, and the machine,
// to others: a few batches at a time, each followed by a rest before the next one may begin.
type pace struct {
	tasks   task.Env
	mu      sync.Mutex
	free    int           // lanes
	waiting []task.Signal // for a lane, the longest first; one that is set has been given one
	took    time.Duration // by the last batch
}

const (
	// Batches at once: a shard without a leader holds up one of them for a while, not all.
	paceLanes = 3
	paceQuick = 2 * time.Millisecond // the longest time of a batch on a node with little other work
	// Times as long as a batch took is the rest after it, at most …
	paceMaxFactor = 4
	paceSpan      = 50 * time.Millisecond
)

func newPace(tasks task.Env) *pace { return &pace{tasks: tasks, free: paceLanes} }

// walk reads when there is room for it, and then rests for as long as the read took. The error is
// that of the read, or of the context that has ended.
func (p *pace) walk(ctx context.Context, read func() error) error {
	return p.through(ctx, read, func(took time.Duration) time.Duration { return took })
}

// change does one batch when there is room for it, and then rests.
func (p *pace) change(ctx context.Context, do func()) error {
	return p.through(ctx, func() error { do(); return nil }, func(took time.Duration) time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.took = took
		return restAfter(took)
	})
}

func (p *pace) through(ctx context.Context, do func() error, rest func(took time.Duration) time.Duration) error {
	if !p.enter(ctx) {
		return ctx.Err()
	}
	defer p.leave()
	begin := p.tasks.Now()
	if err := do(); err != nil {
		return err
	}
	if !p.tasks.Sleep(ctx, rest(p.tasks.Now()-begin)) {
		return ctx.Err()
	}
	return nil
}

// batch is how many commands the next batch may have: the more, the longer the last one took.
// Beyond paceQuick it waited for others.
func (p *pace) batch() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(min(max(smallBatch*p.took/paceQuick, smallBatch), largeBatch))
}

// enter takes a lane; false when the context ends first.
func (p *pace) enter(ctx context.Context) bool {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return true
	}
	turn := p.tasks.NewSignal()
	p.waiting = append(p.waiting, turn)
	p.mu.Unlock()
	if turn.Wait(ctx, task.Forever) {
		return true
	}
	p.mu.Lock()
	at := slices.Index(p.waiting, turn)
	if at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
	}
	p.mu.Unlock()
	if at < 0 { // it was given a lane meanwhile
		p.leave()
	}
	return false
}

func (p *pace) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.free++
		return
	}
	p.waiting[0].Set()
	p.waiting = p.waiting[1:]
}

// restAfter is as long as the batch took, and longer where it took long: then others wait for the
// processor or the disk, too, and a batch that keeps a busy machine busier may run just when one of
// its timers comes due. A rest has a bound, for a bulk change shall end.
func restAfter(took time.Duration) time.Duration {
	longer := time.Duration(float64(took) * min(float64(took)/float64(paceQuick), paceMaxFactor))
	return max(took, min(longer, paceSpan))
}
