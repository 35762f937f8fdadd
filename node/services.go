package node

import (
	"context"
	"errors"
	"sync"
)

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
