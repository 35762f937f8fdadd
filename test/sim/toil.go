package sim

import (
	"math"
	"time"

	"carillon/internal/clocks"
	"carillon/shard"
	"carillon/timer"
)

// A turn takes time: the host counts its work, and simulated time passes by it. Within a turn the
// host's clock shows the time that the turn has taken, so that its budgets of time end it. What the
// turn sends and starts leaves when it has been worked for, and the next turn begins after its end.
// So a node with slow turns answers late, misses heartbeats and loses elections, as in the world.
//
// Each run has machines of another speed: up to 20 times as slow as those that the costs are from.
const (
	turnCost  = 5 * time.Microsecond
	stepCost  = time.Microsecond
	entryCost = 5 * time.Microsecond
	byteCost  = 10 * time.Nanosecond // of an entry's commands, and of a frame that is sent
	slotCost  = 100 * time.Nanosecond

	slowestTurns = 20
)

// drawToil draws how slow turns are: each factor is as likely as its double.
func (s *swarm) drawToil(c chance) { s.toil = math.Pow(slowestTurns, c.Float64()) }

// toil is the work of a node's turns.
type toil struct {
	turning bool
	before  shard.Effort  // as of the begin of the turn
	sent    int           // bytes of frames that the turn has sent
	until   time.Duration // when the last turn ends
}

// toiled is what the running turn has taken so far. Outside of turns it is 0.
func (n *node) toiled() time.Duration {
	if !n.toil.turning || n.w.swarm.toil == 0 || n.host == nil {
		return 0
	}
	e, b := n.host.Effort(), &n.toil.before
	cost := turnCost + time.Duration(e.Steps-b.Steps)*stepCost + time.Duration(e.Entries-b.Entries)*entryCost +
		time.Duration(e.Bytes-b.Bytes+uint64(n.toil.sent))*byteCost + time.Duration(e.Slots-b.Slots)*slotCost
	return time.Duration(float64(cost) * n.w.swarm.toil)
}

// lag is when something that the host's turn does now takes effect.
func (n *node) lag() time.Duration {
	if n.toil.turning {
		return n.toiled()
	}
	return max(0, n.toil.until-n.w.now)
}

// work runs one turn of the host's workers, and returns how long it takes.
func (n *node) work() (took time.Duration, err error) {
	host := n.host
	n.toil.before, n.toil.sent, n.toil.turning = host.Effort(), 0, true
	err = host.Work()
	if took = n.toiled(); n.host == host {
		n.frugal(host.Effort().Steps - n.toil.before.Steps)
		n.toil.turning, n.toil.until = false, n.w.now+took
	}
	return took, err
}

// The product's budget of a turn: so many steps, and as many more as fit into the time. Groups that
// see at their next look that the time is over take some more, and a few their least.
const (
	leastSteps  = 512
	turnTime    = 3 * time.Millisecond
	moreSteps   = 704
	groupSteps  = 128
	leastGroups = 16
)

// frugal checks the steps of a turn, whatever there was to do.
func (n *node) frugal(steps uint64) {
	if n.w.swarm.toil == 0 {
		return
	}
	most := max(leastSteps, uint64(float64(turnTime/stepCost)/n.w.swarm.toil)) + moreSteps + groupSteps*uint64(min(len(n.checked), leastGroups))
	if steps > most {
		n.w.violate("turn", "a turn of node %d took %d steps of its schedulers, the budget is %d", n.id, steps, most)
	}
}

// hadTime checks that a group to which a turn gives no time goes first in another: with each turn one
// group less is before it.
func (n *node) hadTime(id timer.ShardID, c *checkedGroup, late bool) {
	if !late {
		c.late = 0
		return
	}
	if c.late++; c.late > len(n.checked) {
		n.w.violate("turn", "group %d of node %d has had no time in %d turns", id, n.id, c.late)
	}
}

// turnClock is the clock of a host.
type turnClock struct {
	*clocks.Keeper
	n *node
}

// Mono implements shard.Clock.
func (c turnClock) Mono() time.Duration { return c.Keeper.Mono() + c.n.toiled() }
