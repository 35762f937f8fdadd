package shard

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3"

	"carillon/shard/record"
	"carillon/timer"
	"carillon/timer/encoding"
)

// scanSlots is how many slots the long reads of a worker (lists and walks) visit in one turn, in
// all its groups together: about half a millisecond. A slice of one read has scanSlice slots at
// least, so that many groups do not make slices of a few slots; scanSliceCost is its fixed cost, in
// slots.
const (
	scanSlots     = 16384
	scanSlice     = 1024
	scanSliceCost = 64
)

// reads are a group's linearizable reads. All that arrive in one turn share one question to the
// other voters: whether the group is still in this leader's term there. Once a majority has been in
// that term after the reads arrived, no later leader can have been elected before, so everything
// that was acknowledged before is in the entries committed here by then. That is raft's ReadIndex.
// Its own form is a heartbeat, which costs each voter a turn of the group: a listing asks all
// shards of all nodes (docs/adr/0075).
type reads struct {
	fresh []*read     // arrived in this turn, or before the group could ask
	asked []readBatch // the voters are asked
	ready []*read     // confirmed; wait for the state machine
	long  []*read     // like ready, but served in slices, in rotation
	last  uint64      // number of the last question; never used again by this process
	// confirmed is the highest number that each voter has confirmed in this term. Invariant: an
	// answer to one question is also one to those before it, which arrived earlier.
	confirmed map[uint64]uint64
	askedAt   time.Duration // the last time that the voters were asked
}

type readBatch struct {
	number uint64
	index  uint64 // of the last entry that was committed when they were asked
	reads  []*read
}

// ask asks the voters for the fresh reads.
func (r *reads) ask(g *replica) {
	if len(r.fresh) == 0 || !g.serving {
		return
	}
	status := g.raft.BasicStatus()
	if status.RaftState != raft.StateLeader || status.GetTerm() != g.term {
		return // deposed in this turn: collect will answer them
	}
	r.last++
	r.asked = append(r.asked, readBatch{r.last, status.GetCommit(), r.fresh})
	r.fresh = nil
	r.askVoters(g)
	r.confirm(g) // a leader without other voters has a majority
}

// askVoters sends the last question to all voters. Such a message, and its answer, goes to no raft:
// it takes a voter some hundred nanoseconds, and all of one turn to one node leave in one frame.
func (r *reads) askVoters(g *replica) {
	r.askedAt = g.w.now.Mono
	for _, voters := range [2][]uint64{g.store.Conf.Voters, g.store.Conf.VotersOutgoing} {
		for _, id := range voters {
			if id != g.id && r.confirmed[id] < r.last {
				g.sendTerm(nodeOf(id), termQuestion, id, g.term, r.last)
			}
		}
	}
}

// askAgain repeats the question if its answers are late: messages may be lost.
func (r *reads) askAgain(g *replica) {
	if len(r.asked) > 0 && g.w.now.Mono-r.askedAt >= raftTick {
		r.askVoters(g)
	}
}

// sendTerm sends a question about the term of a replica, or the answer.
func (r *replica) sendTerm(node uint64, kind byte, replica, term, number uint64) {
	r.w.addMessage(node, kind, r.shard, 0, func(frame []byte) []byte { return encoding.AppendUvarints(frame, replica, term, number) })
}

// receiveTerm handles a question about this replica's term, or a voter's answer.
func (r *replica) receiveTerm(kind byte, from uint64, body []byte) {
	in := record.Read(body)
	replica, term, number := in.Uvarint(), in.Uvarint(), in.Uvarint()
	switch {
	case in.End() != nil || r.raft == nil:
	case kind == termAnswer:
		if r.leader && term == r.term && nodeOf(replica) == from && number <= r.reads.last {
			r.reads.answered(r, replica, number)
		}
	case replica == r.id && term == r.raft.BasicStatus().GetTerm():
		r.sendTerm(from, termAnswer, replica, term, number)
	}
}

// answered handles a voter's answer.
func (r *reads) answered(g *replica, voter, number uint64) {
	if r.confirmed == nil {
		r.confirmed = map[uint64]uint64{}
	}
	r.confirmed[voter] = max(r.confirmed[voter], number)
	if r.confirm(g) {
		g.w.touch(g)
	}
}

// confirm handles the answers of a majority: this node led when it asked. some: there was one.
func (r *reads) confirm(g *replica) (some bool) {
	conf := g.store.Conf
	did := func(id uint64) bool { return id == g.id || r.confirmed[id] >= r.asked[0].number }
	for len(r.asked) > 0 && most(conf.Voters, did) && (len(conf.VotersOutgoing) == 0 || most(conf.VotersOutgoing, did)) {
		b := &r.asked[0]
		for _, rd := range b.reads {
			rd.index = b.index
			rd.deadline += readLimit - waitLimit // the leader is confirmed: from here on readLimit applies
			if rd.long {
				r.long = append(r.long, rd)
			} else {
				r.ready = append(r.ready, rd)
			}
		}
		r.asked, some = r.asked[1:], true
	}
	return some
}

func (r *reads) serve(g *replica) {
	r.ready = slices.DeleteFunc(r.ready, func(rd *read) bool {
		if rd.index > g.applied {
			return false
		}
		rd.serve(scanSlots)
		rd.answer(nil)
		return true
	})
	g.w.scan(g)
}

// scan has the worker serve the group's long reads. Those whose entry is not applied yet wait: a
// later turn of the group applies it.
func (w *worker) scan(r *replica) {
	if !r.turn.scans && len(r.reads.long) > 0 && r.reads.long[0].index <= r.applied {
		r.turn.scans = true
		w.parked.scans = append(w.parked.scans, r)
	}
}

// serveLong continues the long reads of all groups in rotation, a slice of one read at a time, until
// the turn's slots are visited. Cost: that, and O(groups that wait) once a turn to close up their
// list; a group that waits takes no turn of its own.
func (w *worker) serveLong() {
	slice := max(scanSlots/max(len(w.parked.scans), 1), scanSlice)
	for n := 0; n < len(w.parked.scans); n++ {
		if w.budget.scanned >= scanSlots {
			w.parked.scans = slices.Delete(w.parked.scans, 0, n)
			return
		}
		r := w.parked.scans[n]
		r.turn.scans = false
		if len(r.reads.long) > 0 {
			w.budget.scanned += r.reads.slice(r, min(slice, scanSlots-w.budget.scanned))
			w.scan(r)
		}
	}
	w.parked.scans = w.parked.scans[:0]
}

// slice continues the first long read, which goes behind the others then, and returns its cost.
func (r *reads) slice(g *replica, slots int) (cost int) {
	rd := r.long[0]
	n := copy(r.long, r.long[1:])
	r.long[n], r.long = nil, r.long[:n]
	if rd.serve(slots) {
		rd.answer(nil)
	} else {
		r.long = append(r.long, rd)
	}
	return min(slots, g.machine.slots()) + scanSliceCost
}

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
		return slices.DeleteFunc(list, func(rd *read) bool {
			if rd.deadline > now {
				return false
			}
			rd.answer(err)
			return true
		})
	}
	r.fresh = late(r.fresh, timer.ErrNoLeader)
	for i := range r.asked {
		r.asked[i].reads = late(r.asked[i].reads, timer.ErrNoLeader)
	}
	r.ready, r.long = late(r.ready, timer.ErrOverloaded), late(r.long, timer.ErrOverloaded)
}
