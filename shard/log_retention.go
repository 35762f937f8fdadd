package shard

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
)

// logRetention tracks a group's snapshots and log records on disk, and so which generations of the
// log the group still needs.
//
// Two snapshots are kept, and the log from the older one on. So nothing is lost if the newest is
// damaged.
type logRetention struct {
	gens      []genRange    // generations with entries that may be needed, oldest first
	hardGen   uint64        // generation of the newest hard state
	newest    uint64        // index of the newest snapshot, 0 = none
	older     uint64        // index of the snapshot before
	logBytes  int64         // bytes of entries since the newest snapshot
	created   uint64        // generation of the creation record, needed until there is a snapshot
	tomb      uint64        // generation of a removed replica's tombstone; 0: it was not removed
	restating bool          // the creation or the tombstone is being written to the log
	failedAt  time.Duration // when writing a snapshot last failed; monotonic, 0 = never
	unread    error         // at a start: a snapshot that may be intact could not be read

	newestTerm  uint64 // of the newest snapshot, as are the next two
	newestConf  *pb.ConfState
	newestEpoch uint32
	savedAt     time.Duration // when the newest snapshot was written; monotonic
}

// genRange is the last index of the group's entries in a generation.
type genRange struct{ gen, last uint64 }

func (f *logRetention) wrote(gen uint64, ents []*pb.Entry) {
	for _, e := range ents {
		f.logBytes += int64(len(e.Data)) + 16
	}
	f.reached(gen, ents[len(ents)-1].GetIndex())
}

func (f *logRetention) reached(gen, index uint64) {
	if n := len(f.gens); n > 0 && f.gens[n-1].gen == gen {
		f.gens[n-1].last = index
		return
	}
	f.gens = append(f.gens, genRange{gen, index})
}

// saved records a new snapshot of this replica.
func (f *logRetention) saved(m *record.Mark) {
	f.older, f.logBytes = f.newest, 0
	f.note(m)
	f.trim()
}

// restored records a snapshot from a peer. It replaces all earlier snapshots and entries.
func (f *logRetention) restored(m *record.Mark) {
	f.logBytes, f.gens = 0, nil
	f.note(m)
	f.older = f.newest
}

func (f *logRetention) note(m *record.Mark) {
	f.newest, f.newestTerm, f.newestConf, f.newestEpoch = m.Index, m.Term, m.Conf, m.Epoch
}

// settle gives up the older snapshot. It is for an idle group, which must not hold back old
// generations.
func (f *logRetention) settle() {
	f.older = f.newest
	f.trim()
}

func (f *logRetention) trim() {
	for len(f.gens) > 0 && f.gens[0].last <= f.older {
		f.gens = f.gens[1:]
	}
}

// needed returns the oldest generation that the group needs.
func (f *logRetention) needed() uint64 {
	if f.tomb != 0 {
		return f.tomb
	}
	needed := f.hardGen
	if len(f.gens) > 0 {
		needed = min(needed, f.gens[0].gen)
	}
	if f.newest == 0 {
		needed = min(needed, f.created)
	}
	return needed
}

// pinnable returns how many closed generations a group may hold back. It grows with the state, so
// that snapshots write no more than the log does, and with the number of replicas, for the fixed
// cost of each file. A small state pins few, because a restart reads them all. At least one is
// allowed: the older snapshot is in one generation and the newest in the next.
func pinnable(state, replicas, genBytes int64) uint64 {
	return uint64(min(1+state/genBytes+replicas/64, maxPinned))
}

const maxPinned = 7

// hasLocalState reports whether the group has, or had, a replica on this node.
func (r *replica) hasLocalState() bool { return r.id != 0 || r.tombstone != 0 }

// rewriteMarker writes the creation of a replica that is still empty, or the tombstone of a removed
// one, to the log again. The old generation that holds it can then be dropped.
func (w *worker) rewriteMarker(r *replica) {
	r.files.restating = true
	if r.id == 0 {
		w.append(appended{group: r, tombstone: r.tombstone, sync: true})
		return
	}
	r.written.dirty = true
	w.append(appended{group: r, create: &record.Mark{Replica: r.id, Index: r.applied, Term: r.appliedTerm, Conf: r.store.Conf, Epoch: r.membership.epoch}, sync: true})
}

// mark writes the newest snapshot's mark and the hard state to the log, so that generations with
// older ones can be dropped.
func (w *worker) mark(r *replica) {
	r.written.dirty = true
	w.append(appended{group: r, mark: true, sync: true})
}
