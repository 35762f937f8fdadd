package sim

import (
	"context"
	"errors"
	"time"

	"carillon/node/member"
	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

// metaLeader is the process that leads the meta group; if several believe so, the one with the
// highest term; nil: none.
func (w *World) metaLeader() *node { return w.leader(shard.Meta) }

// join starts a machine with an empty disk, which then joins the cluster.
func (w *World) join(n *node) {
	w.note(n, "join", 0, 0, "")
	n.start()
}

// operator sends an operator's request to a machine. then gets the result; it is not called if the
// machine's process ends first.
func (w *World) operator(n *node, do func(ctx context.Context, n *node) error, then func(error)) {
	if !n.up || n.closed {
		then(errNoProcess)
		return
	}
	n.do(func() {
		if n.router == nil {
			then(timer.ErrRecovering)
			return
		}
		n.tasks.Go(func() {
			err := do(n.tasks.ctx, n)
			w.after(0, func() { then(err) })
		})
	})
}

var errNoProcess = errors.New("there is no process")

// request is what operators ask of one machine after another, until one accepts it.
type request struct {
	do    func(ctx context.Context, n *node) error
	done  bool
	at    *node // the machine with the open request
	asked time.Duration
	life  uint64
}

// insist repeats requests, all at once, until all have succeeded. It reports whether they have
// within five minutes.
func (w *World) insist(all ...func(ctx context.Context, n *node) error) bool {
	w.tries = 0
	begun, list := w.now, make([]request, len(all))
	for i, do := range all {
		list[i].do = do
	}
	return w.passUntil(5*time.Minute, func() bool {
		if w.now-begun > lullAfter && !w.calm {
			w.beginLull()
		}
		done := true
		for i := range list {
			done = w.ask(&list[i]) && done
		}
		return done
	})
}

// ask sends a request to a machine, unless it is done or another machine may still answer. It
// reports whether it is done.
func (w *World) ask(r *request) bool {
	if r.done || r.at != nil && r.at.life == r.life && w.now-r.asked < operatorPatience {
		return r.done
	}
	n := w.any()
	r.at, r.asked, r.life = n, w.now, n.life
	w.tries++
	w.operator(n, r.do, func(err error) {
		r.done = r.done || err == nil
		if r.at == n {
			r.at = nil
		}
		if err != nil {
			w.refusal = err
		}
	})
	return r.done
}

// lullAfter is how long a request is repeated under faults before the faults pause. Under heavy
// faults no leader may ever last long enough to serve it.
const lullAfter = time.Minute

// beginLull stops all random faults until endLull.
func (w *World) beginLull() {
	if w.lull == nil {
		was := w.swarm
		w.lull = &was
		w.swarm.calm()
		w.swarm.ordeals, w.swarm.ailments = ordeals{}, ailments{}
	}
}

func (w *World) endLull() {
	if w.lull != nil {
		w.swarm, w.lull = *w.lull, nil
	}
}

// operatorPatience is how long an operator waits for an answer before it asks another machine.
const operatorPatience = healLimit / 4

// putTopic sets a topic's policy.
func putTopic(name string, p *timer.Policy) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		_, _, err := n.topics.Put(ctx, name, p, timer.TopicChange{})
		return err
	}
}

// pauseTopic pauses or resumes a topic's calls.
func pauseTopic(name string, paused bool) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		_, err := n.topics.SetPaused(ctx, name, paused)
		return err
	}
}

// setState asks machine at to drain machine n, or to resume it.
func (w *World) setState(at, n *node, s ring.NodeState) {
	w.note(n, string(s), 0, 0, "")
	w.operator(at, func(ctx context.Context, at *node) error {
		if s == ring.NodeDraining {
			return at.member.Drain(ctx, n.name)
		}
		return at.member.Resume(ctx, n.name)
	}, func(error) {})
}

// remove asks machine at to remove machine n from the cluster.
func (w *World) remove(at, n *node, force bool) {
	w.note(n, "remove", b2u(force), at.id, "")
	if force {
		w.removed = w.now
	}
	w.operator(at, func(ctx context.Context, at *node) error { return at.member.Remove(ctx, n.name, force, false) }, func(err error) {
		if err == nil {
			n.gone = true
		}
	})
}

var _ member.Host = (*memberHost)(nil)
