package route

import (
	"context"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
)

// bulkPace slows all bulk changes of a node, so that together they leave the shards, and the
// machine, to others: a few batches at a time, each followed by a rest before the next one may
// begin.
type bulkPace struct {
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

func newBulkPace(tasks task.Env) *bulkPace { return &bulkPace{tasks: tasks, free: paceLanes} }

// change does one batch when there is room for it, and then rests.
func (bp *bulkPace) change(ctx context.Context, do func()) error {
	return bp.through(ctx, func() error { do(); return nil }, func(took time.Duration) time.Duration {
		bp.mu.Lock()
		defer bp.mu.Unlock()
		bp.took = took
		return restAfter(took)
	})
}

// through does something when there is room for it, and then rests. The error is that of do, or of
// the context that has ended.
func (bp *bulkPace) through(ctx context.Context, do func() error, rest func(took time.Duration) time.Duration) error {
	if !bp.enter(ctx) {
		return ctx.Err()
	}
	defer bp.leave()
	begin := bp.tasks.Now()
	if err := do(); err != nil {
		return err
	}
	if !bp.tasks.Sleep(ctx, rest(bp.tasks.Now()-begin)) {
		return ctx.Err()
	}
	return nil
}

// batch is how many commands the next batch may have: the more, the longer the last one took.
// Beyond paceQuick it waited for others.
func (bp *bulkPace) batch() int {
	bp.mu.Lock()
	defer bp.mu.Unlock()
	return int(min(max(smallBatch*bp.took/paceQuick, smallBatch), largeBatch))
}

// enter takes a lane; false when the context ends first.
func (bp *bulkPace) enter(ctx context.Context) bool {
	bp.mu.Lock()
	if bp.free > 0 {
		bp.free--
		bp.mu.Unlock()
		return true
	}
	turn := bp.tasks.NewSignal()
	bp.waiting = append(bp.waiting, turn)
	bp.mu.Unlock()
	if turn.Wait(ctx, task.Forever) {
		return true
	}
	bp.mu.Lock()
	at := slices.Index(bp.waiting, turn)
	if at >= 0 {
		bp.waiting = slices.Delete(bp.waiting, at, at+1)
	}
	bp.mu.Unlock()
	if at < 0 { // it was given a lane meanwhile
		bp.leave()
	}
	return false
}

func (bp *bulkPace) leave() {
	bp.mu.Lock()
	defer bp.mu.Unlock()
	if len(bp.waiting) == 0 {
		bp.free++
		return
	}
	bp.waiting[0].Set()
	bp.waiting = bp.waiting[1:]
}

// restAfter is as long as the batch took, and longer where it took long: then others wait for the
// processor or the disk, too, and a batch that keeps a busy machine busier may run just when one of
// its timers comes due. A rest has a bound, for a bulk change shall end.
func restAfter(took time.Duration) time.Duration {
	longer := time.Duration(float64(took) * min(float64(took)/float64(paceQuick), paceMaxFactor))
	return max(took, min(longer, paceSpan))
}
