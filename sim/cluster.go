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

// metaLeader is a process that leads the meta group, and has most to say for it; nil: none.
func (w *World) metaLeader() *node { return w.leader(shard.Meta) }

// join brings a machine with an empty disk into the cluster.
func (w *World) join(n *node) {
	w.note(n, "join", 0, 0, "")
	n.start()
}

// operator has a machine do something that an operator asks of it; then is told how that went, and is not if the machine's process ends before.
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

// insist has the operator ask one machine after the other until it is done; it reports whether it was within the limit.
func (w *World) insist(do func(ctx context.Context, n *node) error) bool {
	done := false
	var at *node // that is asked
	begun, asked, life := w.now, w.now, uint64(0)
	return w.passUntil(5*time.Minute, func() bool {
		if w.now-begun > lullAfter && !w.calm {
			w.beginLull()
		}
		if done || at != nil && at.life == life && w.now-asked < operatorPatience {
			return done
		}
		n := w.any()
		at, asked, life = n, w.now, n.life
		w.operator(n, do, func(err error) {
			done = done || err == nil
			if at == n {
				at = nil
			}
			if err != nil {
				w.refusal = err
			}
		})
		return done
	})
}

// lullAfter is after how long of trouble an operator who comes to nothing is given a lull: with enough of it nobody ever leads for long enough.
const lullAfter = time.Minute

// beginLull ends what goes wrong by chance, until endLull.
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

// operatorPatience is after what an operator turns to another machine.
const operatorPatience = healLimit / 4

// putTopic sets a topic's policy.
func putTopic(name string, p *timer.Policy) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		_, _, err := n.topics.Put(ctx, name, p)
		return err
	}
}

// pauseTopic stops a topic's calls, or lets them go on.
func pauseTopic(name string, paused bool) func(context.Context, *node) error {
	return func(ctx context.Context, n *node) error {
		_, err := n.topics.SetPaused(ctx, name, paused)
		return err
	}
}

// setState asks to drain a machine, or takes that back.
func (w *World) setState(at, n *node, s ring.NodeState) {
	w.note(n, string(s), 0, 0, "")
	w.operator(at, func(ctx context.Context, at *node) error {
		if s == ring.NodeDraining {
			return at.member.Drain(ctx, n.name)
		}
		return at.member.Resume(ctx, n.name)
	}, func(error) {})
}

// remove asks to have a machine removed.
func (w *World) remove(at, n *node, force bool) {
	w.note(n, "remove", b2u(force), at.id, "")
	w.operator(at, func(ctx context.Context, at *node) error { return at.member.Remove(ctx, n.name, force, false) }, func(err error) {
		if err == nil {
			n.gone = true
		}
	})
}

var _ member.Host = (*memberHost)(nil)
