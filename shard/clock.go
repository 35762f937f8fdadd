package shard

import (
	"time"

	"carillon/clocks"
)

// Clock is the time as a host sees it; a *clocks.Keeper is one.
type Clock interface {
	// Look is what a turn goes by. While its Trust is not Sure nothing is started, expired or
	// forgotten.
	Look() clocks.Moment
	// Mono is Moment.Mono.
	Mono() time.Duration
	// UntilWall is how long it is until Moment.WallMs is ms; negative when it is already.
	UntilWall(ms int64) time.Duration
}

// absence is how long a worker can have stood still before its groups ask whether they still lead.
// It is less than the time after which followers may elect another leader.
const absence = 500 * time.Millisecond

// look begins a turn: it reads the clocks once, for all that is done in it.
func (w *worker) look() {
	before := w.now.Lease
	w.now = w.host.cfg.Clock.Look()
	away := w.now.Lease - before
	if w.looked && away >= absence {
		for _, g := range w.groups {
			g.doubt()
		}
	}
	w.looked = true
}

// sure reports that what is due by the wall clock may be done.
func (w *worker) sure() bool { return w.now.Trust == clocks.Sure }

// doubt has a leader ask a majority whether it still leads before it starts anything more. Its
// process may have stood still, by any of its clocks or by all of them, and another may lead and
// have called since.
func (g *group) doubt() {
	if g.scheduler != nil && g.leader && !g.soleVoter() {
		g.scheduler.Doubt()
	}
}
