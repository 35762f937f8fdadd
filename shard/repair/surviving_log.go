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

// survivingLog is the remains of one group in a damaged log: the entries that were read, and which
// of them are known to be in the log in the end. A damage may hide any records. So entries read
// before it are in doubt, unless they were committed by then or later records prove them.
// survivingLog has indexes and terms, no data.
//
// The proof is raft's log matching: an entry's index and term determine all entries before it. If
// an entry is in the final log, so are the entries that preceded it when it was last read, and so
// is the entry right before it if that has the same term.
type survivingLog struct {
	id        timer.ShardID
	replica   uint64 // as far as the log says; 0: unknown
	tombstone uint64
	based     bool // base, after which the log begins, is known
	base      record.EntryID
	runs      []stretch // ascending
	layer     int       // the number of damages passed
	hard      record.HardState
	hardLayer int // the layer in which hard was read
	life      *life
	begins    map[int]uint64 // index of the first entry read in each layer
	pending   []int          // damages since the last manifest
	fault     error          // an error that no damage explains
}

// life belongs to one replica, until its tombstone.
type life struct{ commit uint64 } // the log is known to be committed up to here

// stretch is a range of entries of one term, read in one layer.
type stretch struct {
	first, last, term uint64 // term 0: unknown; the entries are lost, but belong here
	layer             int    // the number of damages before them
	firm              bool   // committed before the damage that followed
}

// span is a range of entries that are lost, or in doubt.
type span struct {
	first, last uint64
	above       record.EntryID // the entry after the span; at the end of the log, the last entry of the span
	layer       int            // of above: the damage before that layer is the last that can have lost the span
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

// Snapshot implements record.Folder. The log begins anew at a snapshot from a peer.
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

// end forgets a replica that a tombstone ends.
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

// below returns the part of the runs before an index.
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

// push appends a stretch and merges it with the last one where only the range differs.
func push(runs []stretch, r stretch) []stretch {
	if n := len(runs); n > 0 && runs[n-1].last+1 == r.first && runs[n-1].term == r.term && runs[n-1].layer == r.layer && runs[n-1].firm == r.firm {
		runs[n-1].last = r.last
		return runs
	}
	return append(runs, r)
}

// damage passes damage k: all entries read so far are in doubt, but for committed ones.
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

// resolve walks down from top to floor, exclusive, and separates the entries that are sure from
// those that are lost or in doubt. It needs a known end: top has its term, from a manifest, or
// linked says that all entries read in the last layer are in the log. Otherwise the end is in
// doubt, too.
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

// held returns the entries that are surely in the log, as far as it can be read.
func (m *survivingLog) held() []stretch {
	n := len(m.runs)
	if n == 0 {
		return nil
	}
	last := m.runs[n-1]
	sure, _ := m.resolve(record.EntryID{Index: last.last}, last.layer == m.layer, 0)
	return slices.DeleteFunc(sure, func(r stretch) bool { return r.term == 0 })
}

// patch replaces one damage for one group.
type patch struct {
	group     timer.ShardID
	tombstone uint64            // 0: none
	creation  *record.Mark      // nil: the creation is not lost
	mark      *record.Mark      // nil: none; otherwise the log goes on from this snapshot and all before is void
	hole      *missingRange     // lost entries; nil: none
	hard      *record.HardState // nil: it was read after the damage
}

// missingRange is a range of lost entries.
type missingRange struct {
	group timer.ShardID
	span
	life    *life
	entries []record.Entry // from span.first on; Term 0: not found yet
	left    int
}

var errContradiction = errors.New("a manifest contradicts what is left of the log")

// recount applies a manifest's state of the group: entries in doubt become sure, or known to be
// lost. It returns both, as far as they are above the floor.
func (m *survivingLog) recount(t record.ReplicaState, snapshot *record.Mark) (sure []stretch, lost []span, err error) {
	switch {
	case m.fault != nil:
		return nil, nil, m.fault
	case t.Replica == 0 && t.Tombstone < m.tombstone, t.Replica != 0 && t.Replica <= m.tombstone,
		t.Tombstone <= m.tombstone && m.replica != t.Replica && m.replica != 0,
		t.Tombstone <= m.tombstone && t.Replica == 0 && len(m.runs) > 0:
		return nil, nil, fmt.Errorf("%w: replica %x of log, %x of manifest; tombstones %x, %x", errContradiction, m.replica, t.Replica, m.tombstone, t.Tombstone)
	}
	// As far as is known, entries read before the last damage belong to a removed replica.
	if m.ended(t) {
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

// ended reports that the tombstone of the replica in the log was lost. If the manifest has the same
// replica, the tombstone is an earlier one's.
func (m *survivingLog) ended(t record.ReplicaState) bool {
	return t.Tombstone > m.tombstone && (t.Replica == 0 || t.Replica != m.replica)
}

// tally is recount for the node's own log. It returns the patches for the damages since the last
// manifest, by damage, and the state that the repaired log must have here. snapshot is the newest
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
	// Entries read between two damages may follow on entries that the first one lost, and be in
	// doubt only because of the second. Then the first damage's patch must fill that gap as well.
	for _, s := range lost {
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

// expected is the state that a group of the repaired log must have at a manifest.
type expected struct {
	record.ReplicaState
	sure  []stretch
	holes []*missingRange
}

// floor returns an index up to which the log need not have entries.
func (m *survivingLog) floor(snapshot *record.Mark) uint64 {
	switch {
	case len(m.runs) > 0 && m.runs[0].layer <= m.layer-len(m.pending): // no damage before it: the log begins there
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

// settle turns runs into the log that ends with top, lost entries included, and returns which
// entries are sure and which are lost.
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

// maxMissingRange bounds the entries of one missing range; a log within its bounds has fewer.
const maxMissingRange = 1 << 22

// records returns the patch as records, in the order in which a start must read them.
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
	entryBytes          = 24 // size of an entry beside its data
)
