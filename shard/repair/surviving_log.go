package repair

import (
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/timer"
	"carillon/wal"
)

// survivingLog is what a damaged log still tells of one group: which entries, and which of them are
// known to be in the log to its end. A damage may have held anything; so what was read before it is
// in doubt, unless it was committed then, or what comes later vouches for it. It knows indexes and
// terms, no data.
//
// It rests on this: an entry's index and term determine all entries before it (raft's log
// matching). So where an entry is known to be in the log in the end, what stood before it when it
// was last seen stands there still; and so does, right before it, one of its own term.
type survivingLog struct {
	id        timer.ShardID
	replica   uint64 // as the log says; 0: it does not
	tombstone uint64
	based     bool // the log is known to begin behind …
	base      record.EntryID
	runs      []stretch // ascending
	layer     int       // how many damages were passed
	hard      record.HardState
	hardLayer int // in which layer that was read
	life      *life
	begins    map[int]uint64 // the first entry of the first that were read, by layer
	pending   []int          // damages since the last manifest
	fault     error          // what is wrong and not by a damage
}

// life is a replica's, up to its tombstone.
type life struct{ commit uint64 } // its log is known to be committed up to there

// stretch is some entries of one term that were read in one layer.
type stretch struct {
	first, last, term uint64 // term 0: it is not known, they are lost, but belong here
	layer             int    // how many damages were before them
	firm              bool   // committed before the damage that followed
}

// span is some entries that are lost, or in doubt.
type span struct {
	first, last uint64
	above       record.EntryID // the entry behind it; where there is none, its own last
	layer       int            // of that entry: the damage before that layer is where they were lost at the latest
}

func newSurvivingLog(id timer.ShardID) *survivingLog {
	return &survivingLog{id: id, life: &life{}, begins: map[int]uint64{}}
}

// Create implements record.Folder.
func (m *survivingLog) Create(k record.Mark) error {
	if m.replica == 0 {
		m.begin(k)
	}
	return nil
}

// Snapshot implements record.Folder. One from a peer is where the log begins anew.
func (m *survivingLog) Snapshot(k record.Mark) error {
	if k.Installed {
		m.begin(k)
	}
	return nil
}

func (m *survivingLog) begin(k record.Mark) {
	m.replica, m.based, m.base, m.runs = k.Replica, true, record.EntryID{Index: k.Index, Term: k.Term}, nil
}

// Tombstone implements record.Folder.
func (m *survivingLog) Tombstone(id uint64) error {
	m.end(id)
	return nil
}

// end is the end of a replica.
func (m *survivingLog) end(id uint64) {
	m.tombstone = max(m.tombstone, id)
	m.replica, m.based, m.base, m.runs, m.hard, m.hardLayer, m.life = 0, false, record.EntryID{}, nil, record.HardState{}, m.layer, &life{}
}

// HardState implements record.Folder.
func (m *survivingLog) HardState(hard record.HardState) error {
	m.hard, m.hardLayer = hard, m.layer
	m.life.commit = max(m.life.commit, hard.Commit)
	return nil
}

// Entries implements record.Folder.
func (m *survivingLog) Entries(ents []record.Entry) error {
	first := ents[0].Index
	if _, ok := m.begins[m.layer]; !ok {
		m.begins[m.layer] = first
	}
	m.runs = below(m.runs, first)
	if n := len(m.runs); n > 0 && m.runs[n-1].last+1 < first && m.runs[n-1].layer == m.layer {
		m.fault = fmt.Errorf("entry %d follows %d, and there is no damage between them", first, m.runs[n-1].last)
	}
	for _, e := range ents {
		m.runs = push(m.runs, stretch{first: e.Index, last: e.Index, term: e.Term, layer: m.layer})
	}
	return nil
}

// below is what of the runs is before an index.
func below(runs []stretch, index uint64) []stretch {
	for n := len(runs); n > 0 && runs[n-1].last >= index; n = len(runs) {
		if runs[n-1].first < index {
			runs[n-1].last = index - 1
			break
		}
		runs = runs[:n-1]
	}
	return runs
}

// push adds entries behind others, as one stretch where they are of a kind.
func push(runs []stretch, r stretch) []stretch {
	if n := len(runs); n > 0 && runs[n-1].last+1 == r.first && runs[n-1].term == r.term && runs[n-1].layer == r.layer && runs[n-1].firm == r.firm {
		runs[n-1].last = r.last
		return runs
	}
	return append(runs, r)
}

// damage number k: from here on all that was read is in doubt, but what was committed.
func (m *survivingLog) damage(k int) {
	var runs []stretch
	for _, r := range m.runs {
		switch sure := r.layer == m.layer || r.firm; {
		case sure && r.last <= m.life.commit:
			r.firm = true
			runs = push(runs, r)
		case sure && r.first <= m.life.commit:
			runs = push(runs, stretch{r.first, m.life.commit, r.term, r.layer, true})
			runs = push(runs, stretch{m.life.commit + 1, r.last, r.term, r.layer, r.firm})
		default:
			runs = push(runs, r)
		}
	}
	m.runs = runs
	m.layer++
	m.pending = append(m.pending, k)
}

// resolve goes down from the end of the log to an index, which is not looked at, and tells what is
// sure from what is lost or in doubt. Either the end's term is known, from a manifest; or, linked,
// all that was read in the last layer is in the log; or its end is unknown, too.
func (m *survivingLog) resolve(top record.EntryID, linked bool, floor uint64) (sure []stretch, doubt []span) {
	above, layer, open := top, m.layer, false
	lose := func(first, last uint64) {
		if !open {
			doubt = append(doubt, span{last: last, above: above, layer: layer})
		}
		open, linked, above = true, false, record.EntryID{}
		doubt[len(doubt)-1].first = first
	}
	n := len(m.runs)
	for at := top.Index; at > floor; {
		for n > 0 && m.runs[n-1].first > at {
			n--
		}
		if n == 0 || m.runs[n-1].last <= floor {
			lose(floor+1, at)
			break
		}
		r := m.runs[n-1]
		if r.last < at {
			lose(r.last+1, at)
			at = r.last
		}
		r.first, r.last = max(r.first, floor+1), at
		if r.firm || linked && r.layer == layer || r.term != 0 && r.term == above.Term {
			above, layer, linked, open = record.EntryID{Index: r.first, Term: r.term}, r.layer, true, false
			sure = append(sure, r)
		} else {
			lose(r.first, r.last)
		}
		at = r.first - 1
	}
	slices.Reverse(sure)
	return sure, doubt
}

// held are the entries that are sure to be in the log as far as it can be read.
func (m *survivingLog) held() []stretch {
	n := len(m.runs)
	if n == 0 {
		return nil
	}
	last := m.runs[n-1]
	sure, _ := m.resolve(record.EntryID{Index: last.last}, last.layer == m.layer, 0)
	return slices.DeleteFunc(sure, func(r stretch) bool { return r.term == 0 })
}

// patch is what takes the place of one damage for one group.
type patch struct {
	group     timer.ShardID
	tombstone uint64            // 0: none
	creation  *record.Mark      // nil: the creation is there
	mark      *record.Mark      // what was before is void: the state is this snapshot's
	hole      *missingRange     // entries
	hard      *record.HardState // nil: it is known without
}

// missingRange is some lost entries.
type missingRange struct {
	group timer.ShardID
	span
	life    *life
	entries []record.Entry // from span.first on; term 0: not here yet
	left    int
}

var errContradiction = errors.New("a manifest contradicts what is left of the log")

// recount takes what a manifest says of the group: what was in doubt is known again, or known to be
// lost. It gives what is sure and what is lost behind the floor.
func (m *survivingLog) recount(t record.ReplicaState, snapshot *record.Mark) (sure []stretch, lost []span, err error) {
	switch {
	case m.fault != nil:
		return nil, nil, m.fault
	case t.Replica == 0 && t.Tombstone < m.tombstone, t.Replica != 0 && t.Replica <= m.tombstone,
		t.Tombstone <= m.tombstone && m.replica != t.Replica && m.replica != 0,
		t.Tombstone <= m.tombstone && t.Replica == 0 && len(m.runs) > 0:
		return nil, nil, fmt.Errorf("%w: replica %x of log, %x of manifest; tombstones %x, %x", errContradiction, m.replica, t.Replica, m.tombstone, t.Tombstone)
	}
	if m.ended(t) { // what was read before the last damage is of a replica that is gone, as far as is known
		fresh := m.runs
		for len(fresh) > 0 && fresh[0].layer < m.layer {
			fresh = fresh[1:]
		}
		m.end(t.Tombstone)
		m.runs = fresh
	}
	if t.Creation != nil && m.replica != t.Replica {
		m.based, m.base = true, record.EntryID{Index: t.Creation.Index, Term: t.Creation.Term}
	}
	if t.Replica == 0 {
		m.runs = nil
	} else {
		sure, lost = m.settle(t.Last, m.floor(snapshot))
	}
	m.life.commit = max(m.life.commit, t.Hard.Commit)
	m.replica, m.pending = t.Replica, nil
	return sure, lost, nil
}

// ended reports that the end of a replica was lost. One that is here still has not ended, whatever
// was before it.
func (m *survivingLog) ended(t record.ReplicaState) bool {
	return t.Tombstone > m.tombstone && (t.Replica == 0 || t.Replica != m.replica)
}

// tally is recount for the node's own log: it gives what must be put in the place of the damages
// since the last manifest, by damage, and what the log must have been here. snapshot is the newest
// whole one, or nil.
func (m *survivingLog) tally(t record.ReplicaState, snapshot *record.Mark) (patches map[int]*patch, must *expected, err error) {
	if len(m.pending) == 0 {
		return nil, nil, m.fault
	}
	if snapshot != nil && snapshot.Replica != t.Replica {
		snapshot = nil
	}
	unborn := t.Replica != 0 && m.replica != t.Replica
	if unborn && snapshot == nil && t.Creation == nil {
		return nil, nil, fmt.Errorf("how its replica %x began is lost", t.Replica)
	}
	first, last, commit := m.pending[0], m.pending[len(m.pending)-1], m.hard.Commit
	known, ended := m.hardLayer == m.layer, m.ended(t)
	sure, lost, err := m.recount(t, snapshot)
	if err != nil {
		return nil, nil, err
	}
	patches, must = map[int]*patch{}, &expected{ReplicaState: t, sure: sure}
	at := func(k int) *patch {
		if patches[k] == nil {
			patches[k] = &patch{group: m.id}
		}
		return patches[k]
	}
	switch {
	case ended:
		commit, at(last).tombstone = 0, t.Tombstone
		if unborn {
			at(last).creation = t.Creation
		}
	case unborn:
		at(first).creation = t.Creation
	}
	fill := func(k int, s span) {
		p := at(k)
		if snapshot != nil && s.first <= snapshot.Index {
			p.mark, s.first = snapshot, snapshot.Index+1
		}
		if s.first <= s.last {
			p.hole = newMissingRange(m.id, s, m.life)
			must.holes = append(must.holes, p.hole)
		}
	}
	for _, s := range lost {
		if s.layer-1 < first || s.last-s.first >= maxMissingRange {
			return nil, nil, fmt.Errorf("%w: entries %d to %d are lost", errContradiction, s.first, s.last)
		}
		fill(s.layer-1, s)
	}
	for _, s := range lost { // what was read between two damages may build on what was lost before, and have been in doubt because of the second one
		for k := first; k < s.layer-1; k++ {
			if begin, ok := m.begins[k+1]; ok && begin > s.first && begin <= t.Last.Index+1 && begin-s.first < maxMissingRange && (patches[k] == nil || patches[k].hole == nil) {
				fill(k, span{first: s.first, last: begin - 1, above: s.above, layer: k + 1})
			}
		}
	}
	if t.Replica != 0 && !known {
		at(last).hard = &record.HardState{Term: t.Hard.Term, Vote: t.Hard.Vote, Commit: commit}
		m.hard, m.hardLayer = *at(last).hard, m.layer
	}
	return patches, must, nil
}

// expected is what a group must be at a manifest behind damage, once that is repaired.
type expected struct {
	record.ReplicaState
	sure  []stretch
	holes []*missingRange
}

// floor is before which entry the log need not go back.
func (m *survivingLog) floor(snapshot *record.Mark) uint64 {
	switch {
	case len(m.runs) > 0 && m.runs[0].layer <= m.layer-len(m.pending): // nothing was lost before it: the log goes back no further
		return m.runs[0].first - 1
	case m.based:
		return m.base.Index
	case snapshot == nil:
		return 0
	case len(m.runs) > 0:
		return min(snapshot.Index, m.runs[0].first-1)
	}
	return snapshot.Index
}

// settle makes the log what it must be up to an entry, and gives what is sure and what is lost of
// it.
func (m *survivingLog) settle(top record.EntryID, floor uint64) (sure []stretch, lost []span) {
	sure, lost = m.resolve(top, false, floor)
	var runs []stretch
	for _, r := range sure {
		runs = append(runs, stretch{first: r.first, last: r.last, term: r.term, layer: m.layer})
	}
	for _, s := range lost {
		runs = append(runs, stretch{first: s.first, last: s.last, layer: m.layer})
	}
	slices.SortFunc(runs, func(a, b stretch) int { return int(int64(a.first - b.first)) })
	m.runs = nil
	for _, r := range runs {
		m.runs = push(m.runs, r)
	}
	return sure, lost
}

func newMissingRange(id timer.ShardID, s span, l *life) *missingRange {
	n := int(s.last - s.first + 1)
	return &missingRange{group: id, span: s, life: l, entries: make([]record.Entry, n), left: n}
}

// maxMissingRange bounds the entries of one hole: a log that is within its bounds has fewer.
const maxMissingRange = 1 << 22

// records are the patch as the log has it, in the order in which it must be read.
func (p *patch) records() (list []wal.Record) {
	add := func(t wal.RecordType, body []byte) {
		list = append(list, wal.Record{Type: t, Shard: uint32(p.group), Data: body})
	}
	if p.tombstone != 0 {
		add(wal.RecordReplicaTombstone, record.AppendTombstone(nil, p.tombstone))
	}
	if p.creation != nil {
		add(wal.RecordReplicaCreate, record.AppendMark(nil, *p.creation))
	}
	if p.mark != nil {
		m := *p.mark
		m.Installed = true
		add(wal.RecordSnapMark, record.AppendMark(nil, m))
	}
	if p.hole != nil {
		for ents := p.hole.entries; len(ents) > 0; {
			n, bytes := 0, 0
			batch := make([]*pb.Entry, 0, min(len(ents), 1024))
			for ; n < len(ents) && bytes < repairedRecordBytes; n++ {
				e := &ents[n]
				batch = append(batch, &pb.Entry{Index: &e.Index, Term: &e.Term, Type: &e.Type, Data: e.Data})
				bytes += len(e.Data) + entryBytes
			}
			add(wal.RecordEntries, record.AppendEntries(nil, batch))
			ents = ents[n:]
		}
	}
	if p.hard != nil {
		add(wal.RecordHardState, record.AppendHardState(nil, *p.hard))
	}
	return list
}

const (
	repairedRecordBytes = 4 << 20
	entryBytes          = 24 // what an entry counts beside its data
)
