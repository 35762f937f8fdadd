package shard

import "time"

// A worker checks the memory of its groups, group by group. A small state is checked about every
// half minute. Of a large one a tick checks scrubSlots, which takes about 0.15% of the worker's
// time.
const (
	scrubEach  = 30 * time.Second
	scrubSlots = 256 // in less than 0.1 ms; ticks are 50 ms apart, so 5,120 timers a second
)

// tickScrub checks groups in rotation, within one tick's budget.
func (w *worker) tickScrub() {
	budget := scrubSlots
	for range w.groups {
		g := w.groups[w.scrubTurn%len(w.groups)]
		if g.raft != nil && !g.damaged && w.now.Mono >= g.scrubAt {
			done, sound := g.scrub(budget)
			if !done {
				return // continued in the next tick
			}
			if budget -= g.scrubCost(); !sound {
				g.memoryFailed()
			}
			g.scrubAt = w.now.Mono + scrubEach
		}
		w.scrubTurn++
		if budget <= 0 {
			return
		}
	}
}

// scrub checks the next budget slots of the group's memory; see Table.Scrub.
func (g *group) scrub(budget int) (done, sound bool) {
	if g.meta != nil {
		return g.meta.machine.Scrub(budget)
	}
	return g.table.Scrub(budget)
}

// scrubCost is the cost that is charged for the end of a walk, in slots.
func (g *group) scrubCost() int {
	if g.table == nil {
		return scrubSlots / 8
	}
	return min(int(g.table.LastHandle()), scrubSlots) + 64
}
