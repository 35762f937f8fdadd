package node

import (
	"context"
	"errors"
	"sync"
	"time"
)

// handOverTime is how long a stopping node tries to give its leaderships away.
const handOverTime = 5 * time.Second

// services are the parts that run in a process, and the order in which they end.
type services struct {
	p     *process
	outer *scope // gossip, peers: to the end
	calls *scope // to receivers
	host  *scope // the shards
	api   *scope // intake: it ends first

	failed chan struct{} // the log failed: nothing can be saved any more
	once   sync.Once
	mu     sync.Mutex
	errs   []error
}

// scope is a context with the goroutines that run under it.
type scope struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

func newScope(parent context.Context) *scope {
	s := &scope{}
	s.ctx, s.cancel = context.WithCancel(parent)
	return s
}

func newServices(ctx context.Context, p *process) *services {
	detached := context.WithoutCancel(ctx)
	s := &services{p: p, outer: newScope(detached), calls: newScope(detached), host: newScope(detached), api: newScope(ctx), failed: make(chan struct{})}
	p.running = s.outer.ctx
	return s
}

// start runs a service; when it ends by itself, the process does.
func (s *services) start(in *scope, run func(context.Context) error) {
	in.work.Go(func() {
		s.ended(run(in.ctx))
	})
}

// ended takes how a service ended.
func (s *services) ended(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
	}
	s.api.cancel()
}

// alive reports that the node is not about to end.
func (s *services) alive() bool { return s.api.ctx.Err() == nil }

// broken is called as soon as shards fail for good: requests must not wait for them.
func (s *services) broken(err error) {
	s.ended(err)
	s.once.Do(func() { close(s.failed) })
}

// await waits for the end and brings it about: leaderships go, intake stops, calls in flight end
// and are reported, the shards stop, calls that last longer are cut off, then the rest ends. A
// process whose log has failed does not wait for anybody.
func (s *services) await() error {
	var reason error
	select {
	case <-s.api.ctx.Done():
	case reason = <-s.p.failure:
		s.api.cancel()
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop()
	}()
	select {
	case <-stopped:
	case <-s.failed:
		// Nothing that is still under way can be kept, and a slow client must not hold the process:
		// the rest is abandoned.
		select {
		case <-stopped:
		case <-time.After(failureGrace):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(append(s.errs, reason)...)
}

func (s *services) stop() {
	s.p.self.Stop()
	c := s.p.core.Load()
	if c != nil {
		defer c.logStopped()()
		ctx, cancel := context.WithTimeout(s.untilFailed(s.host.ctx), handOverTime)
		c.member.HandOver(ctx)
		cancel()
	}
	s.api.work.Wait() // intake has stopped, requests are answered
	if c != nil {
		ctx, cancel := context.WithTimeout(s.outer.ctx, drainTime)
		// Calls in flight end, and their outcomes are in the log, or with the new leaders.
		c.host.Drain(ctx)
		cancel()
	}
	s.host.cancel()
	s.host.work.Wait()
	s.calls.cancel() // the calls that last longer are cut off
	s.calls.work.Wait()
	// The port for other nodes closes last: to them that is the proof that this process has ended.
	s.outer.cancel()
	s.outer.work.Wait()
	s.p.intakes.close()
	s.p.tasks.Wait()
}

// untilFailed is a context that ends also when the log fails.
func (s *services) untilFailed(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.failed:
		case <-ctx.Done():
		}
		cancel()
	}()
	return ctx
}
