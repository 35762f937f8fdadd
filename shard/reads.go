package shard

import (
	"encoding/binary"
	"slices"
	"time"

	"carillon/timer"
)

// scanSlots is how many slots the long reads of a worker (lists and walks) visit in one turn, in
// all its groups together: about half a millisecond. scanEach is the fixed cost of a slice, in
// slots.
const (
	scanSlots = 16384
	scanEach  = 64
)

// reads are a group's linearizable reads. All that arrive in one turn share one ReadIndex request
// to raft, which returns the index that must be applied before they may be answered.
type reads struct {
	fresh []*read     // arrived in this turn, or before the group could ask
	asked []readBatch // raft asks a quorum
	ready []*read     // confirmed by raft; wait for the state machine
	long  []*read     // like ready, but served in slices, in rotation
	last  uint64
}

type readBatch struct {
	number uint64
	reads  []*read
}

// ask requests a read index for the fresh reads.
func (r *reads) ask(g *replica) {
	if len(r.fresh) == 0 || !g.serving {
		return
	}
	r.last++
	r.asked = append(r.asked, readBatch{r.last, r.fresh})
	r.fresh = nil
	g.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, r.last))
}

// confirmed handles raft's answer: this node led when the request was made.
func (r *reads) confirmed(context []byte, index uint64) {
	number := binary.BigEndian.Uint64(context)
	for len(r.asked) > 0 && r.asked[0].number <= number {
		for _, rd := range r.asked[0].reads {
			rd.index = index
			rd.deadline += readLimit - waitLimit // the leader is confirmed: from here on readLimit applies
			if rd.long {
				r.long = append(r.long, rd)
			} else {
				r.ready = append(r.ready, rd)
			}
		}
		r.asked = r.asked[1:]
	}
}

// serve answers the reads whose index is applied.
func (r *reads) serve(g *replica) {
	keep := r.ready[:0]
	for _, rd := range r.ready {
		if rd.index <= g.applied {
			rd.serve(scanSlots)
			rd.answer(nil)
			continue
		}
		keep = append(keep, rd)
	}
	clear(r.ready[len(keep):])
	r.ready = keep
	r.serveLong(g)
}

// serveLong continues long reads, one slice after the other, within the group's share of the turn.
func (r *reads) serveLong(g *replica) {
	if len(r.long) == 0 {
		return
	}
	for share := g.w.scanShare(); share > 0 && len(r.long) > 0; {
		rd := r.long[0]
		if rd.index > g.applied {
			return // those after it wait too: a later turn of this group applies the entry
		}
		n := copy(r.long, r.long[1:])
		r.long[n], r.long = nil, r.long[:n]
		slice := share
		cost := min(slice, g.machine.slots()) + scanEach
		share -= cost
		g.w.budget.scanned += cost
		if rd.serve(slice) {
			rd.answer(nil)
		} else {
			r.long = append(r.long, rd)
		}
	}
	if len(r.long) > 0 {
		g.w.touchNext(g)
	}
}

// scanShare returns how many slots the group may visit in this turn. Groups that have long reads
// when the first of them asks have equal shares.
func (w *worker) scanShare() int {
	if w.budget.scanners == 0 {
		for _, r := range w.groups {
			if len(r.reads.long) > 0 {
				w.budget.scanners++
			}
		}
	}
	return min(max(scanSlots/max(w.budget.scanners, 1), 1), scanSlots-w.budget.scanned)
}

// fail answers all reads with an error.
func (r *reads) fail(err error) {
	for _, b := range r.asked {
		r.fresh = append(r.fresh, b.reads...)
	}
	for _, rd := range slices.Concat(r.fresh, r.ready, r.long) {
		rd.answer(err)
	}
	*r = reads{last: r.last}
}

// expire answers reads that have waited too long.
func (r *reads) expire(now time.Duration) {
	late := func(list []*read, err error) []*read {
		keep := list[:0]
		for _, rd := range list {
			if rd.deadline > now {
				keep = append(keep, rd)
				continue
			}
			rd.answer(err)
		}
		clear(list[len(keep):])
		return keep
	}
	r.fresh = late(r.fresh, timer.ErrNoLeader)
	for i := range r.asked {
		r.asked[i].reads = late(r.asked[i].reads, timer.ErrNoLeader)
	}
	r.ready, r.long = late(r.ready, timer.ErrOverloaded), late(r.long, timer.ErrOverloaded)
}
