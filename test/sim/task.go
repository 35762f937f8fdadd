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
		if t.lives() {
			do()
		} else {
			t.defers(do)
		}
	})
}

// lives reports whether the process runs and is not paused.
func (t *tasks) lives() bool { return t.n.life == t.life && t.n.up && !t.n.paused }

// defers has do run after the pause of a process that is paused.
func (t *tasks) defers(do func()) {
	if n := t.n; n.life == t.life && n.up {
		n.backlog = append(n.backlog, delayed{n.id, func() {
			if !t.over {
				do()
			}
		}})
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

// pause is the wait of one task.
type pause struct {
	tasks *tasks
	c     *coroutine
	woken bool
	late  bool // woken because the time was over
}

// pause returns the wait of the running task, which begins with its hold.
func (t *tasks) pause() *pause {
	c := t.n.w.running
	if c == nil {
		panic("sim: something waits that is no task")
	}
	return &pause{tasks: t, c: c}
}

// wake ends the wait. It may be called once or more, from anywhere.
func (p *pause) wake() {
	if !p.woken {
		p.woken = true
		p.tasks.n.w.after(0, p.resume)
	}
}

func (p *pause) resume() {
	if p.tasks.lives() {
		p.run()
	} else {
		p.tasks.defers(p.run)
	}
}

func (p *pause) run() { p.tasks.run(p.c) }

// until ends the wait when the context ends, or when d has passed.
func (p *pause) until(ctx context.Context, d time.Duration) {
	if c, ok := ctx.(*taskContext); ok && !c.endless {
		c.waiting = append(c.waiting, p.wake)
	}
	if d != task.Forever {
		p.tasks.n.w.after(d, p.timeUp)
	}
}

func (p *pause) timeUp() {
	if !p.woken {
		p.late = true
		p.wake()
	}
}

// hold suspends the task until it is woken.
func (p *pause) hold() {
	if !p.c.yield(struct{}{}) || p.tasks.over {
		panic(ended{})
	}
}

// block suspends the running task. begin gets the function that wakes it.
func (t *tasks) block(begin func(wake func())) {
	p := t.pause()
	begin(p.wake)
	p.hold()
}

// Sleep implements task.Env.
func (t *tasks) Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	p := t.pause()
	p.until(ctx, d)
	p.hold()
	return p.late
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
		p := s.tasks.pause()
		s.wake = p.wake
		p.until(ctx, d)
		p.hold()
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
