package shard

import "time"

// How a worker looks through its groups' memory: all of it about every half minute where there is
// little, and so many slots in a tick where there is much, which is about a hundredth of the
// worker's time.
const (
	scrubEach  = 30 * time.Second
	scrubSlots = 2048 // about half a millisecond; ticks come every 50 ms
)

// tickScrub goes on with the group whose turn it is.
func (w *worker) tickScrub() {
	budget := scrubSlots
	for range w.groups {
		g := w.groups[w.scrubTurn%len(w.groups)]
		if g.raft != nil && !g.damaged && w.now.Mono >= g.scrubAt {
			done, sound := g.scrub(budget)
			if !done {
				return // it goes on in the next tick
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

// scrub looks through so much of the group's memory; see Table.Scrub.
func (g *group) scrub(budget int) (done, sound bool) {
	if g.meta != nil {
		return g.meta.machine.Scrub(budget)
	}
	return g.table.Scrub(budget)
}

// scrubCost is what is reckoned for the end of a walk, in slots.
func (g *group) scrubCost() int {
	if g.table == nil {
		return scrubSlots / 8
	}
	return min(int(g.table.LastHandle()), scrubSlots) + 64
}
