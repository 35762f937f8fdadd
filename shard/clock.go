package shard

import (
	"time"

	"carillon/internal/clocks"
)

// Clock is a host's source of time. *clocks.Keeper implements it.
type Clock interface {
	// Look reads the clocks for one turn of a worker. While Trust is not Sure, no timer leaves the
	// wheel and no call starts.
	Look() clocks.Moment
	// Mono returns Moment.Mono.
	Mono() time.Duration
	// UntilWall returns the time until Moment.WallMs is ms. It is negative if ms is past.
	UntilWall(ms int64) time.Duration
}

// absence is the pause of a worker after which its groups confirm that they still lead. It is
// shorter than the time after which followers may elect another leader.
const absence = 500 * time.Millisecond

// look reads the clocks once for the whole turn. After a pause it makes led groups confirm their
// leadership.
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

// sure reports whether the wall clock is trusted.
func (w *worker) sure() bool { return w.now.Trust == clocks.Sure }

// doubt makes a leader confirm its leadership with a majority before it starts anything more. The
// process may have been suspended, and another leader may have been elected and have made calls
// since.
func (g *group) doubt() {
	if g.leader && !g.soleVoter() {
		g.machine.doubt()
	}
}
