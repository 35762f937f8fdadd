package sim

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"carillon/node/task"
)

// tasks implements task.Env for one process: the tasks of node/member and node/route. Only one task
// of the whole world runs at a time, until it waits; then the world goes on and wakes it by an
// event. A task is a coroutine, so the order of execution is the same in each run of a seed.
type tasks struct {
	n    *node
	life uint64
	all  map[*coroutine]bool
	last uint64 // number of the newest task
	over bool
	ctx  *taskContext // never ends: the tasks end with the process
}

func newTasks(n *node) *tasks {
	t := &tasks{n: n, life: n.life, all: map[*coroutine]bool{}}
	t.ctx = &taskContext{tasks: t, endless: true}
	return t
}

// coroutine runs one task after another. Idle coroutines wait in World.idle for the next task.
type coroutine struct {
	number uint64 // of its task, within the process
	tasks  *tasks
	task   func()
	begun  bool
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
}

// newCoroutine returns an idle coroutine or a new one.
func (w *World) newCoroutine() *coroutine {
	if n := len(w.idle); n > 0 {
		c := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return c
	}
	c := &coroutine{}
	c.resume, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		c.yield = yield
		for {
			c.do()
			w.idle = append(w.idle, c)
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return c
}

// do runs a task until it returns or its process ends.
func (c *coroutine) do() {
	defer func() {
		if r := recover(); r != nil && r != any(ended{}) {
			panic(r)
		}
		delete(c.tasks.all, c)
		c.tasks, c.task, c.begun = nil, nil, false
	}()
	c.begun = true
	c.task()
}

// ended is the panic that unwinds a task whose process has ended.
type ended struct{}

// Now implements task.Env.
func (t *tasks) Now() time.Duration { return t.n.clock.Mono() }

// Go implements task.Env.
func (t *tasks) Go(run func()) {
	if t.over {
		return
	}
	t.last++
	c := t.n.w.newCoroutine()
	c.number, c.tasks, c.task = t.last, t, run
	t.all[c] = true
	t.schedule(0, func() { t.run(c) })
}

// schedule runs do in the process after d, if it still runs; if it is paused, after the pause.
func (t *tasks) schedule(d time.Duration, do func()) {
	t.n.w.after(d, func() {
		if n := t.n; n.life == t.life && n.up {
			if n.paused {
				n.backlog = append(n.backlog, delayed{n.id, func() { t.alive(do) }})
				return
			}
			do()
		}
	})
}

func (t *tasks) alive(do func()) {
	if !t.over {
		do()
	}
}

// run resumes a task until it waits.
func (t *tasks) run(c *coroutine) {
	w := t.n.w
	before := w.running
	w.running = c
	c.resume()
	w.running = before
}

// end unwinds all tasks of a process that has ended.
func (t *tasks) end() {
	if t == nil || t.over {
		return
	}
	t.over = true
	left := slices.SortedFunc(maps.Keys(t.all), func(a, b *coroutine) int { return cmp.Compare(a.number, b.number) })
	for _, c := range left {
		if c.begun {
			t.run(c)
		} else {
			c.tasks, c.task = nil, nil
			t.n.w.idle = append(t.n.w.idle, c)
		}
	}
	clear(t.all)
}

// block suspends the running task. begin gets the function that wakes it, which may be called once
// or more, from anywhere.
func (t *tasks) block(begin func(wake func())) {
	c, woken := t.n.w.running, false
	if c == nil {
		panic("sim: something waits that is no task")
	}
	begin(func() {
		if !woken {
			woken = true
			t.schedule(0, func() { t.run(c) })
		}
	})
	if !c.yield(struct{}{}) || t.over {
		panic(ended{})
	}
}

// Sleep implements task.Env.
func (t *tasks) Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	slept := false
	t.wait(ctx, d, func(func()) {}, &slept)
	return slept
}

// wait blocks until begin's wake is called, the context ends, or d has passed; in the last case it
// sets over.
func (t *tasks) wait(ctx context.Context, d time.Duration, begin func(wake func()), over *bool) {
	done := false
	t.block(func(wake func()) {
		once := func() {
			done = true
			wake()
		}
		begin(once)
		if c, ok := ctx.(*taskContext); ok {
			c.whenEnded(once)
		}
		if d != task.Forever {
			t.n.w.after(d, func() {
				if !done {
					*over = true
					once()
				}
			})
		}
	})
}

// NewSignal implements task.Env.
func (t *tasks) NewSignal() task.Signal { return &signal{tasks: t} }

// signal implements task.Signal.
type signal struct {
	tasks *tasks
	set   bool
	wake  func() // wakes the waiting task; nil: none waits
}

// Set implements task.Signal.
func (s *signal) Set() {
	s.set = true
	if s.wake != nil {
		s.wake()
	}
}

// Wait implements task.Signal.
func (s *signal) Wait(ctx context.Context, d time.Duration) bool {
	if !s.set && ctx.Err() == nil && d > 0 {
		over := false
		s.tasks.wait(ctx, d, func(wake func()) { s.wake = wake }, &over)
		s.wake = nil
	}
	was := s.set
	s.set = false
	return was
}

// WithTimeout implements task.Env.
func (t *tasks) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := &taskContext{tasks: t, pull: pullOf(ctx)}
	if parent, ok := ctx.(*taskContext); ok {
		c.until = parent.until
		if c.err = parent.err; c.err == nil {
			parent.adopt(c)
		}
	}
	if d != task.Forever {
		if until := t.n.w.now + d; c.until == 0 || until < c.until {
			c.until = until
			t.n.w.after(d, func() { c.end(context.DeadlineExceeded) })
		}
	}
	return c, func() { c.end(context.Canceled) }
}

// taskContext is a context in the world's time. When its process ends, nobody waits for it any
// more.
type taskContext struct {
	tasks    *tasks
	parent   *taskContext
	children []*taskContext
	until    time.Duration // in the world's time; 0: no deadline
	endless  bool          // it never ends
	err      error
	pull     *hangUp       // the pull that it belongs to
	done     chan struct{} // nil: Done was not called yet
	waiting  []func()
}

// Deadline implements context.Context. It reports none, because until is in the world's time.
func (c *taskContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *taskContext) Done() <-chan struct{} {
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err implements context.Context.
func (c *taskContext) Err() error { return c.err }

// Value implements context.Context.
func (c *taskContext) Value(key any) any {
	if key == (pullValue{}) && c.pull != nil {
		return c.pull
	}
	return nil
}

func (c *taskContext) whenEnded(wake func()) {
	if !c.endless {
		c.waiting = append(c.waiting, wake)
	}
}

func (c *taskContext) adopt(child *taskContext) {
	if !c.endless {
		child.parent = c
		c.children = append(c.children, child)
	}
}

func (c *taskContext) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
	for _, wake := range c.waiting {
		wake()
	}
	c.waiting = nil
	for _, child := range c.children {
		child.end(err)
	}
	c.children = nil
	if p := c.parent; p != nil {
		for i, child := range p.children {
			if child == c {
				p.children = append(p.children[:i], p.children[i+1:]...)
				break
			}
		}
	}
}
