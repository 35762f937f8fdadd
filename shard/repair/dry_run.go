package repair

import (
	"fmt"

	"carillon/shard/record"
	"carillon/timer"
)

// DryRun reads a group's records as a start does (recovery), by indexes and terms alone. A repaired
// log must pass it before it is written.
type DryRun struct {
	id        timer.ShardID
	replica   uint64
	tombstone uint64
	base      record.EntryID // the end of the newest snapshot, or of the creation
	applied   uint64
	log       []stretch // after base, including applied entries; without gaps
	hard      record.HardState
	alien     bool
	fault     error // that a start would find; cleared if the replica is removed later or goes on from a peer's snapshot
	wrong     error // a difference from the expected state; cleared likewise
}

func NewDryRun(id timer.ShardID, snapshot *record.Mark) *DryRun {
	t := &DryRun{id: id}
	if snapshot != nil {
		t.place(*snapshot)
	}
	return t
}

func (t *DryRun) place(m record.Mark) {
	t.replica, t.base, t.applied, t.log = m.Replica, record.EntryID{Index: m.Index, Term: m.Term}, m.Index, nil
}

// Fault returns why a start on these records would fail; nil if it would not.
func (t *DryRun) Fault() error { return t.fault }

// Wrong returns how the state so far differs from must; nil if indexes and terms agree.
func (t *DryRun) Wrong(must record.ReplicaState) error {
	t.check(&expected{ReplicaState: must})
	return t.wrong
}

// Last returns the last entry of the log.
func (t *DryRun) Last() record.EntryID {
	if n := len(t.log); n > 0 {
		return record.EntryID{Index: t.log[n-1].last, Term: t.log[n-1].term}
	}
	return t.base
}

// term returns the term of an entry after base; 0 if there is none.
func (t *DryRun) term(index uint64) uint64 {
	for n := len(t.log) - 1; n >= 0 && t.log[n].last >= index; n-- {
		if t.log[n].first <= index {
			return t.log[n].term
		}
	}
	return 0
}

// Create implements record.Folder.
func (t *DryRun) Create(m record.Mark) error {
	if t.fault == nil && t.replica == 0 {
		t.place(m)
	}
	return nil
}

// Tombstone implements record.Folder.
func (t *DryRun) Tombstone(id uint64) error {
	t.tombstone = max(t.tombstone, id)
	t.hard, t.alien, t.fault, t.wrong = record.HardState{}, false, nil, nil
	if t.replica <= id {
		t.replica, t.base = 0, record.EntryID{}
	}
	t.log, t.applied = nil, t.base.Index
	return nil
}

// HardState implements record.Folder.
func (t *DryRun) HardState(hard record.HardState) error {
	if t.hard = hard; t.fault == nil {
		t.applied = max(t.applied, min(hard.Commit, t.Last().Index))
	}
	return nil
}

// Entries implements record.Folder.
func (t *DryRun) Entries(entries []record.Entry) error {
	for i := range entries {
		t.entry(&entries[i])
	}
	return nil
}

// Snapshot implements record.Folder.
func (t *DryRun) Snapshot(m record.Mark) error {
	switch {
	case !m.Installed || m.Replica != t.replica:
	case m.Index > t.base.Index:
		t.fault = fmt.Errorf("it goes on from snapshot %d, which is missing or damaged", m.Index)
	case t.applied != t.base.Index:
		t.fault = fmt.Errorf("it would go on from snapshot %d after more was applied", m.Index)
	default:
		t.log, t.alien, t.wrong, t.fault = nil, false, nil, nil
	}
	return nil
}

func (t *DryRun) entry(e *record.Entry) {
	last := t.Last()
	switch {
	case t.fault != nil:
	case t.replica == 0:
		t.fault = fmt.Errorf("its log begins with entry %d, but nothing says what was before", e.Index)
	case e.Index == t.base.Index && e.Term != t.base.Term:
		t.alien, t.log = true, nil
	case e.Index <= t.base.Index:
		t.alien = t.alien && e.Index != t.base.Index
	case t.alien:
	case e.Index > last.Index+1:
		t.fault = fmt.Errorf("entry %d follows %d: entries between them are missing", e.Index, last.Index)
	case e.Index <= t.applied && t.term(e.Index) != e.Term:
		t.fault = fmt.Errorf("entry %d of term %d would be applied in the place of one of term %d", e.Index, t.term(e.Index), e.Term)
	case e.Index <= t.applied:
	default:
		t.log = below(t.log, e.Index)
		if before := t.Last().Term; before > e.Term {
			t.fault = fmt.Errorf("entry %d of term %d follows one of term %d", e.Index, e.Term, before)
			return
		}
		t.log = push(t.log, stretch{first: e.Index, last: e.Index, term: e.Term})
	}
}

// check compares the state so far with must and records the first difference.
func (t *DryRun) check(must *expected) {
	if t.fault != nil || t.wrong != nil {
		return
	}
	hard, due := t.hard.OrAfter(t.base), must.Hard.OrAfter(t.base)
	last := t.Last()
	switch {
	case t.replica != must.Replica || t.replica == 0 && t.tombstone != must.Tombstone:
		t.wrong = fmt.Errorf("replica %x (up to %x are gone) would be %x (%x)", must.Replica, must.Tombstone, t.replica, t.tombstone)
	case must.Replica == 0:
	case hard.Term != due.Term || hard.Vote != due.Vote:
		t.wrong = fmt.Errorf("its vote for %x in term %d would be one for %x in term %d", due.Vote, due.Term, hard.Vote, hard.Term)
	case t.alien || last != must.Last && (last.Index > t.base.Index || must.Last.Index > t.base.Index):
		t.wrong = fmt.Errorf("its log would end with entry %d of term %d, not %d of term %d", last.Index, last.Term, must.Last.Index, must.Last.Term)
	}
	for _, s := range must.sure {
		t.compare(s.first, s.last, s.term)
	}
	for _, h := range must.holes {
		for _, e := range h.entries {
			t.compare(e.Index, e.Index, e.Term)
		}
	}
}

// compare checks the term of the entries after base. Term 0 marks entries that an earlier damage
// lost: those were checked with the manifest after it.
func (t *DryRun) compare(first, last, term uint64) {
	for i := max(first, t.base.Index+1); i <= last && t.wrong == nil && term != 0 && t.replica != 0; i++ {
		if have := t.term(i); have != term {
			t.wrong = fmt.Errorf("entry %d would be of term %d, not %d", i, have, term)
		}
	}
}
