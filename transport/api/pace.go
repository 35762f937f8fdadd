package api

import (
	"context"
	"time"
)

// pace is what all sweeps of a node go through, so that together they leave the shards, and the machine, to others: a few
// batches at a time, each followed by a rest before the next one may begin.
type pace struct{ lanes chan struct{} }

const (
	paceLanes = 2                    // batches at once: a shard without a leader holds up one of them for a while, not all
	paceQuick = 2 * time.Millisecond // what a batch takes at most where not much else goes on
	paceMost  = 4                    // times as long as a batch took is the rest after it, at most …
	paceSpan  = 50 * time.Millisecond
)

func newPace() *pace { return &pace{make(chan struct{}, paceLanes)} }

// through does one batch when there is room for it, and then rests. The error is that of what was done.
func (p *pace) through(ctx context.Context, do func() error) error {
	select {
	case p.lanes <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.lanes }()
	begin := time.Now()
	if err := do(); err != nil {
		return err
	}
	return wait(ctx, restAfter(time.Since(begin)))
}

// restAfter is as long as the batch took, and longer where it took long: then others wait for the processor or the disk, too, and who
// keeps a busy machine busier is made to wait by it just when one of its timers comes due. A rest has a bound, for a sweep shall end.
func restAfter(took time.Duration) time.Duration {
	longer := time.Duration(float64(took) * min(float64(took)/float64(paceQuick), paceMost))
	return max(took, min(longer, paceSpan))
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
