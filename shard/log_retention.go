package shard

import (
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
)

// logRetention is what of a group is on disk, and so which generations of the log it still needs.
//
// Two snapshots are kept. What the older one does not cover stays in the log, so that a damaged
// newest snapshot loses nothing.
type logRetention struct {
	gens      []genRange    // generations with entries that may be needed, oldest first
	hardGen   uint64        // where its newest hard state is
	newest    uint64        // index of the newest snapshot, 0 = none
	older     uint64        // index of the one before
	logBytes  int64         // of entries since the newest snapshot
	created   uint64        // where the replica's creation is, needed until there is a snapshot
	tomb      uint64        // where a removed replica's tombstone is; 0: the replica is here, or never was
	restating bool          // the creation or the tombstone is on its way to the log again
	failedAt  time.Duration // when writing a snapshot failed last; monotonic, 0 never
	suspect   uint64        // the snapshots up to here are of a state that was wrong; 0: none is
	unread    error         // of a start: a snapshot could not be read, which is not to say that it is damaged

	newestTerm  uint64 // of the newest snapshot, as are these
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

// saved takes note of a new snapshot.
func (f *logRetention) saved(m *record.Mark) {
	f.older, f.logBytes = f.newest, 0
	f.note(m)
	f.trim()
}

// restored takes note of a snapshot that came from a peer: nothing before it counts.
func (f *logRetention) restored(m *record.Mark) {
	f.logBytes, f.gens = 0, nil
	f.note(m)
	f.older = f.newest
}

func (f *logRetention) note(m *record.Mark) {
	f.newest, f.newestTerm, f.newestConf, f.newestEpoch = m.Index, m.Term, m.Conf, m.Epoch
}

// settle gives up the older snapshot: the group is idle and must not pin old generations.
func (f *logRetention) settle() {
	f.older = f.newest
	f.trim()
}

func (f *logRetention) trim() {
	for len(f.gens) > 0 && f.gens[0].last <= f.older {
		f.gens = f.gens[1:]
	}
}

// needed is the oldest generation that the group needs.
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

// pinnable is how many closed generations a group may hold back: as many as there is state, so that
// no more is written for snapshots than for the log, and some for what each file costs by itself.
// Few, where there is little state: a restart reads them all. One at least, since the older
// snapshot is in one and the newest in the next.
func pinnable(state, replicas, genBytes int64) uint64 {
	return uint64(min(1+state/genBytes+replicas/64, maxPinned))
}

const maxPinned = 7

// hasLocalState reports that the group has a replica here, or had one.
func (g *group) hasLocalState() bool { return g.replica != 0 || g.tombstone != 0 }

// rewriteMarker writes the creation of a replica that is still empty, or the tombstone of one that
// is gone, to the log again, so that the old generation that holds it may go.
func (w *worker) rewriteMarker(g *group) {
	g.files.restating = true
	if g.replica == 0 {
		w.append(appended{group: g, tombstone: g.tombstone, sync: true})
		return
	}
	g.hardDirty = true
	w.append(appended{group: g, create: &record.Mark{Replica: g.replica, Index: g.applied, Term: g.appliedTerm, Conf: g.store.conf, Epoch: g.epoch}, sync: true})
}

// mark writes the newest snapshot and the hard state to the log, so that older generations with
// theirs may go.
func (w *worker) mark(g *group) {
	g.hardDirty = true
	w.append(appended{group: g, mark: true, sync: true})
}
