package clocks

import (
	"fmt"
	"slices"
	"time"
)

// Agree is how far apart two clocks may be that show the same time.
const Agree = time.Second

// tie is within what two clocks count as steady for equally long.
const tie = 2 * time.Second

// Peer is another node's clock, as it was heard lately.
type Peer struct {
	Node uint64
	// OffsetMs is its wall clock less this node's boot clock, so that it stays true when this node's
	// wall clock is set.
	OffsetMs int64
	Steps    uint32
	Steady   time.Duration // since its last step, or since it began
	Sure     bool          // it goes by its clock
}

// counts says that the clock says something about what is right: one that was just set does not, until its node goes by it.
func (p *Peer) counts() bool { return p.Sure || p.Steps == 0 || p.Steady >= SteadyFor }

// Judge compares this node's wall clock with those of the other members that it hears. members is
// how many there are, itself included, heard or not.
//
// A clock that a majority of the members shares is right; after a step that takes one among them
// that did not step. A clock outside of what a majority shares is wrong. Where no majority is heard,
// a clock that has been steady for SteadyFor is believed, unless it differs from that of a node that
// goes by its own and whose clock has been steady for longer: at most one of two goes on. What was found
// wrong stays so when those are not heard any more that said so.
func (k *Keeper) Judge(self uint64, members int, peers []Peer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.look()
	fresh, steadyFor := k.trust == Unknown && k.steps == 0, r.Boot-k.steadyAt
	if members <= 1 {
		if fresh || k.trust != Sure && steadyFor >= SteadyFor {
			k.adopt()
		}
		return
	}
	rawMs := floorMs(k.rawUs)
	agree, confirmed := 1, false
	for i := range peers {
		if near(peers[i].OffsetMs, rawMs) {
			agree, confirmed = agree+1, confirmed || peers[i].counts()
		}
	}
	if 2*agree > members {
		if fresh || confirmed || steadyFor >= SteadyFor {
			k.adopt()
		}
		return
	}
	if right, ok := majority(members, peers); ok {
		k.correct(right, fmt.Sprintf("its clock is %d ms from the others' median", rawMs-right))
		k.denied = !near(k.offsetUs/1000, right)
		return
	}
	if p := k.rival(self, steadyFor, rawMs, peers); p != nil {
		k.correct(p.OffsetMs, fmt.Sprintf("its clock is %d ms from that of another node, which has been steady for longer", rawMs-p.OffsetMs))
		return
	}
	if k.trust != Sure && steadyFor >= SteadyFor && !k.condemned() {
		k.adopt()
	}
}

// correct goes on from what was believed before, or by the time that others have if nothing was.
func (k *Keeper) correct(offsetMs int64, why string) {
	k.hold(why)
	k.wrong, k.wrongUs = true, k.rawUs
	if !k.anchored {
		k.offsetUs, k.anchored = offsetMs*1000, true
	}
}

// majority is the median of the clocks that most members share, if they do, those that have just been set left aside.
func majority(members int, peers []Peer) (offsetMs int64, ok bool) {
	var all []int64
	for i := range peers {
		if peers[i].counts() {
			all = append(all, peers[i].OffsetMs)
		}
	}
	slices.Sort(all)
	for _, middle := range all {
		var shared []int64
		for _, o := range all {
			if near(o, middle) {
				shared = append(shared, o)
			}
		}
		if 2*len(shared) > members {
			return shared[len(shared)/2], true
		}
	}
	return 0, false
}

// rival is a node whose clock differs from this node's and comes before it; nil: there is none. Of two
// nodes that both go by their clocks, both find the same one to come first.
func (k *Keeper) rival(self uint64, steadyFor time.Duration, rawMs int64, peers []Peer) *Peer {
	for i := range peers {
		p := &peers[i]
		if !p.Sure || near(p.OffsetMs, rawMs) {
			continue
		}
		longer := p.Steady - steadyFor
		if k.trust != Sure && k.steps > 0 && steadyFor < SteadyFor || longer > tie || longer >= -tie && p.Node < self {
			return p
		}
	}
	return nil
}

func near(a, b int64) bool {
	d := a - b
	return d <= Agree.Milliseconds() && d >= -Agree.Milliseconds()
}

func floorMs(us int64) int64 {
	ms := us / 1000
	if us%1000 < 0 {
		ms--
	}
	return ms
}
