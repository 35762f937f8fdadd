package callback

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Run keeps house until ctx ends: it closes idle connections and forgets unused destinations. Then
// it grants nothing more, waits for the permits that are out at most Config.Drain, gives up calls
// that still run, and returns when every goroutine of the pool has ended. Run may be called once.
func (p *Pool) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return errors.New("callback: Run was called twice")
	}
	ticker := time.NewTicker(max(min(time.Second, p.config.ConnIdle/2), time.Millisecond))
	defer ticker.Stop()
	log := breakerLog{logger: p.config.Logger, unlogged: map[*breakerScope]struct{}{}}
	for {
		select {
		case c := <-p.breakerNews:
			log.record(c)
		case <-ticker.C:
			p.sweep()
			log.look(time.Now())
		case <-ctx.Done():
			return p.shutDown()
		}
	}
}

// sweep is bounded by MaxDestinations and takes the lock for short whiles only.
func (p *Pool) sweep() {
	now := p.config.Now()
	unusedSince := now.Add(-destinationIdle)
	for chunk := range slices.Chunk(p.all(), lockChunk) {
		p.mu.Lock()
		p.sweptAt = now
		for _, d := range chunk {
			if len(d.gates) > 1 {
				d.dropIdleGates(unusedSince)
			}
			if p.destinations[d.key] == d && d.idle() && d.lastUse.Before(unusedSince) && d.fresh() {
				p.dropLocked(d)
			}
		}
		p.mu.Unlock()
		for _, d := range chunk {
			d.closeIdle(now.Add(-p.config.ConnIdle))
		}
	}
	p.workers.trim(now.Add(-workerIdle))
}

// shutDown is the mirror of use: no new permits, then the calls, then the workers,
// then the connections.
func (p *Pool) shutDown() error {
	p.close()
	timer := time.NewTimer(p.config.Drain)
	defer timer.Stop()
	select {
	case <-p.drained:
	case <-timer.C:
	}
	left := p.InFlight()

	p.giveUp() // Dials end by the context, and so do connections, see newConn.
	p.workers.stop()
	p.openConns.Wait()
	if left > 0 {
		return fmt.Errorf("callback: gave up %d calls after %v", left, p.config.Drain)
	}
	return nil
}

// close grants nothing more and drops the waiters, which get no answer.
func (p *Pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, d := range p.destinations {
		for _, g := range d.gates {
			if g.alarm != nil {
				g.alarm.Stop()
			}
		}
	}
	if p.slots.Calls() == 0 {
		close(p.drained)
	}
}
