package shard

import (
	"encoding/binary"
	"time"
)

// scanSlots is how many slots a list looks at in one turn of its group.
const scanSlots = 16384

// reads are a group's linearizable reads. All that arrive in one turn share one question to raft (ReadIndex): up to where
// must be applied before they may be answered.
type reads struct {
	fresh []*read     // came in this turn, or before the group could ask
	asked []readBatch // raft is asking a quorum
	ready []*read     // answered by raft; wait for the state machine, or are being served in slices
	last  uint64
}

type readBatch struct {
	number uint64
	reads  []*read
}

// ask puts this turn's question.
func (r *reads) ask(g *group) {
	if len(r.fresh) == 0 || !g.serving {
		return
	}
	if planted("reads-not-confirmed") {
		for _, rd := range r.fresh {
			rd.index = g.applied
		}
		r.ready, r.fresh = append(r.ready, r.fresh...), nil
		return
	}
	r.last++
	r.asked = append(r.asked, readBatch{r.last, r.fresh})
	r.fresh = nil
	g.raft.ReadIndex(binary.BigEndian.AppendUint64(nil, r.last))
}

// confirmed takes raft's answer: the leadership held when the question was put.
func (r *reads) confirmed(context []byte, index uint64) {
	number := binary.BigEndian.Uint64(context)
	for len(r.asked) > 0 && r.asked[0].number <= number {
		for _, rd := range r.asked[0].reads {
			rd.index = index
			rd.deadline += readLimit - waitLimit // from here on it is work, not doubt
			r.ready = append(r.ready, rd)
		}
		r.asked = r.asked[1:]
	}
}

// serve answers what can be answered.
func (r *reads) serve(g *group) {
	keep := r.ready[:0]
	for _, rd := range r.ready {
		if rd.index <= g.applied && rd.serve(g, scanSlots) {
			rd.answer(nil)
			continue
		}
		keep = append(keep, rd)
		if rd.index <= g.applied {
			g.w.touchNext(g)
		}
	}
	clear(r.ready[len(keep):])
	r.ready = keep
}

// fail answers all with an error.
func (r *reads) fail(err error) {
	for _, b := range r.asked {
		r.fresh = append(r.fresh, b.reads...)
	}
	for _, rd := range append(r.fresh, r.ready...) {
		rd.answer(err)
	}
	*r = reads{last: r.last}
}

// expire answers those that have waited too long.
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
	r.fresh = late(r.fresh, ErrNoLeader)
	for i := range r.asked {
		r.asked[i].reads = late(r.asked[i].reads, ErrNoLeader)
	}
	r.ready = late(r.ready, ErrOverloaded)
}
