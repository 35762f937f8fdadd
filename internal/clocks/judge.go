package clocks

import (
	"fmt"
	"slices"
	"time"
)

// Agree is the largest difference between two clocks that show the same time.
const Agree = time.Second

// drained is the time after a step in which reports confirm nothing. They may have waited in a
// socket while the process stood still, and be as old as its clock is behind.
const drained = 200 * time.Millisecond

// tie is the largest difference between two times of steadiness that count as equal.
const tie = 2 * time.Second

// Peer is another node's clock, as reported lately.
type Peer struct {
	Node uint64
	// OffsetMs is its wall clock minus this node's boot clock.
	OffsetMs int64
	Heard    time.Duration // this node's boot clock at its last report
	Steps    uint32
	Steady   time.Duration // since its last step, or since it began
	Sure     bool          // the node trusts its clock
}

// counts reports whether the clock is evidence. A clock that was just set is none, until its node
// trusts it.
func (p *Peer) counts() bool { return p.Sure || p.Steps == 0 || p.Steady >= SteadyFor }

// Judge compares this node's wall clock with the other members' clocks in peers. members is the
// number of all members, this node included, heard or not. Judge removes from peers what was heard
// before this node's last step.
//
// A clock that a majority of the members shares is right; after a step, only if one of the others
// counts as evidence and was heard since sockets were drained, or after SteadyFor. A clock outside
// the majority's range is wrong. If no majority is heard, a clock that has been steady for
// SteadyFor is trusted, unless a node with another time trusts its own clock and has been steady
// for longer: at most one of two continues. A clock found wrong stays wrong when the nodes that
// found it are not heard any more.
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
	// A step may hide that the boot clock stood still: then older offsets are wrong.
	peers = slices.DeleteFunc(peers, func(p Peer) bool { return p.Heard < k.steadyAt })
	agree, confirmed := 1, false
	for i := range peers {
		if near(peers[i].OffsetMs, rawMs) {
			agree, confirmed = agree+1, confirmed || peers[i].counts() && peers[i].Heard >= k.steadyAt+drained
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
	if k.trust != Sure && steadyFor >= SteadyFor && !k.knownWrong() {
		k.adopt()
	}
}

// correct continues the time that was trusted before, or uses the others' time if none was.
func (k *Keeper) correct(offsetMs int64, why string) {
	k.hold(why)
	k.wrong, k.wrongUs = true, k.rawUs
	if !k.anchored {
		k.offsetUs, k.anchored = offsetMs*1000, true
	}
}

// majority is the median of the clocks that most members share, if they do. Clocks that have just
// been set do not count.
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

// rival is a node with another time and precedence over this one; nil: none. Of two nodes that both
// trust their clocks, both find the same one to take precedence.
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
