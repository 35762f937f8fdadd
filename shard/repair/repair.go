// Package repair puts back a log that was damaged at rest, exactly as it was, from what is left of
// it and what other nodes have. It works on the bytes of records, by indexes and terms alone: no
// group is opened before it is done.
package repair

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"carillon/shard/record"
	"carillon/timer"
	"carillon/vfs"
	"carillon/wal"
)

// A Repairer restores a node's log that was damaged at rest, from what is left of it and what other
// nodes have, to exactly what it was as far as that matters: no other state, but the very one of
// this node, so that it has forgotten nothing and may vote and lead as before. docs/adr/0013 has
// the argument. It is used before a host is made, and by one goroutine:
//
//	m, err := New(…)                  // what is lost, and that it can be told
//	for m.Missing() > 0 { m.Take(answer to m.Questions()) }
//	m.Write(…)                        // then the log can be opened
type Repairer struct {
	fs        vfs.FS
	dir       string
	groups    []*survivingLog
	snapshots []*record.Mark // by group, the newest that is whole; nil: none
	wreck     *wal.DamagedStream
	patches   []map[timer.ShardID]*patch // by damage
	holes     []*missingRange
	truths    []map[timer.ShardID]*expected // by manifest
}

// New reads what is left of the log in a data directory. The error says why it cannot be repaired,
// as it would be guesswork.
func New(fs vfs.FS, dir string, shards int) (*Repairer, error) {
	m := &Repairer{fs: fs, dir: filepath.Join(dir, "wal", "0")}
	for i := range shards + 1 {
		m.groups = append(m.groups, newSurvivingLog(timer.ShardID(i)))
	}
	var err error
	if m.snapshots, err = wholeSnapshots(fs, filepath.Join(dir, "snapshots"), shards); err != nil {
		return nil, err
	}
	if m.wreck, err = salvage(fs, m.dir, m.groups, m.tally); err != nil {
		return nil, err
	}
	for len(m.patches) < len(m.wreck.Damages) {
		m.patches = append(m.patches, nil)
	}
	for _, g := range m.groups {
		switch {
		case g.fault != nil:
			return nil, fmt.Errorf("shard %d: %w", g.id, g.fault)
		case len(g.pending) > 0:
			return nil, fmt.Errorf("nothing behind the damage says what the lost frames held of shard %d: it is too near the end of the log", g.id)
		}
	}
	return m, nil
}

// wholeSnapshots are the newest snapshot of each group that is whole.
func wholeSnapshots(fs vfs.FS, dir string, shards int) ([]*record.Mark, error) {
	found := make([]*record.Mark, shards+1)
	infos, err := wal.Snapshots(fs, dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, info := range infos { // the newest of a group comes first
		if int(info.Shard) > shards || found[info.Shard] != nil {
			continue
		}
		f, err := wal.OpenSnapshot(fs, dir, info.Name)
		if err == nil {
			_, err = io.Copy(io.Discard, f)
			if m, bad := record.DecodeMark(f.Meta().Conf); err == nil && bad == nil {
				found[info.Shard] = &m
			}
			_ = f.Close()
		}
		if vfs.IsReadFailure(err) { // one that is damaged a start does without, too, and says so; of this one nothing is known
			return nil, err
		}
	}
	return found, nil
}

// salvage reads a damaged log into what remains of its groups; entries nil are not of interest.
func salvage(fs vfs.FS, dir string, groups []*survivingLog, tally func(*record.Manifest) error) (*wal.DamagedStream, error) {
	damages := 0
	return wal.ScanDamaged(fs, dir, func(_ wal.Position, r wal.Record) error {
		if r.Type == wal.RecordNodeMeta {
			c, err := record.DecodeManifest(r.Data)
			if err != nil {
				return err
			}
			return tally(c)
		}
		if int(r.Shard) >= len(groups) {
			return fmt.Errorf("record of shard %d, but there are only %d", r.Shard, len(groups)-1)
		}
		g := groups[r.Shard]
		if g == nil {
			return nil
		}
		return record.Fold(r, g)
	}, func(*wal.Damage) error {
		for _, g := range groups {
			if g != nil {
				g.damage(damages)
			}
		}
		damages++
		return nil
	})
}

// tally takes a manifest of the own log.
func (m *Repairer) tally(c *record.Manifest) error {
	truths := map[timer.ShardID]*expected{}
	byGroup := c.ByGroup()
	for _, g := range m.groups {
		if !c.Covers(g.id) || len(g.pending) == 0 {
			continue
		}
		patches, must, err := g.tally(byGroup(g.id), m.snapshots[g.id])
		if err != nil {
			return fmt.Errorf("shard %d: %w", g.id, err)
		}
		truths[g.id] = must
		for k, p := range patches {
			for len(m.patches) <= k {
				m.patches = append(m.patches, nil)
			}
			if m.patches[k] == nil {
				m.patches[k] = map[timer.ShardID]*patch{}
			}
			m.patches[k][g.id] = p
		}
		m.holes = append(m.holes, must.holes...)
	}
	m.truths = append(m.truths, truths)
	return nil
}

// Damages are what cannot be read, for people.
func (m *Repairer) Damages() (list []string) {
	for _, d := range m.wreck.Damages {
		list = append(list, d.String())
	}
	return list
}

// Frames is how many frames of the log were lost.
func (m *Repairer) Frames() (n uint64) {
	for _, d := range m.wreck.Damages {
		n += d.Lost()
	}
	return n
}

// Missing is how many entries are still to be found.
func (m *Repairer) Missing() (n int) {
	for _, h := range m.holes {
		n += h.left
	}
	return n
}

// Lost says which entries are still to be found, for people.
func (m *Repairer) Lost() string {
	var b strings.Builder
	for _, h := range m.holes {
		if h.left == 0 {
			continue
		}
		if b.Len() > 300 {
			b.WriteString(", …")
			break
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "shard %d: %d of entries %d to %d", h.group, h.left, h.first, h.last)
	}
	return b.String()
}

// Questions is what to ask another node, which answers with Answer. There may be more to ask after
// the answer.
func (m *Repairer) Questions() []byte {
	var list []question
	for _, h := range m.holes {
		for i := 0; i < len(h.entries) && len(list) < maxQuestions; i++ {
			if h.entries[i].Term != 0 {
				continue
			}
			from := i
			for i < len(h.entries) && h.entries[i].Term == 0 {
				i++
			}
			list = append(list, question{group: h.group, first: h.first + uint64(from), last: h.first + uint64(i) - 1, above: h.above})
		}
	}
	return appendQuestions(nil, list)
}

// Take takes an answer, and says how many entries of it were of use. An entry is taken only where
// it must be the one that was lost: it comes from a log that has the same entry behind the hole, or
// both logs know it to be committed.
func (m *Repairer) Take(body []byte) (taken int, err error) {
	answers, err := decodeAnswers(body)
	if err != nil {
		return 0, err
	}
	for i := range answers {
		a := &answers[i]
		for _, h := range m.holes {
			if h.group == a.group && h.above == a.above {
				taken += h.take(a)
			}
		}
	}
	return taken, nil
}

// take fills a hole with what must be in it.
func (h *missingRange) take(a *answer) (taken int) {
	same := a.term == h.above.Term && a.term != 0
	if a.term != 0 && h.above.Term != 0 && !same {
		return 0 // another log than this one, as far as it goes
	}
	for _, e := range a.entries {
		if e.Index < h.first || e.Index > h.last || e.Term == 0 || !same && e.Index > min(h.life.commit, a.commit) {
			continue
		}
		if at := &h.entries[e.Index-h.first]; at.Term == 0 {
			*at = e
			at.Data = slices.Clone(e.Data)
			h.left--
			taken++
		}
	}
	return taken
}

// Write repairs the log, if it reads as it must then. After an error, or a crash, it is damaged or
// repaired as before.
func (m *Repairer) Write(nowMs int64) error {
	if n := m.Missing(); n > 0 {
		return fmt.Errorf("%d entries are missing: %s", n, m.Lost())
	}
	records := make([][]wal.Record, len(m.patches))
	for k, byGroup := range m.patches {
		for _, g := range m.groups {
			if p := byGroup[g.id]; p != nil {
				records[k] = append(records[k], p.records()...)
			}
		}
	}
	if err := m.try(records); err != nil {
		return err
	}
	return m.wreck.Repair(nowMs, records)
}

// try reads the log as it will be.
func (m *Repairer) try(records [][]wal.Record) error {
	trials := make([]*DryRun, len(m.groups))
	for i := range trials {
		trials[i] = NewDryRun(timer.ShardID(i), m.snapshots[i])
	}
	take := func(r wal.Record) error { return record.Fold(r, trials[r.Shard]) }
	damages, counted := 0, 0
	_, err := wal.ScanDamaged(m.fs, m.dir, func(_ wal.Position, r wal.Record) error {
		if r.Type != wal.RecordNodeMeta {
			return take(r)
		}
		if counted >= len(m.truths) {
			return errors.New("the log has changed while it was repaired")
		}
		for id, must := range m.truths[counted] {
			trials[id].check(must)
		}
		counted++
		return nil
	}, func(*wal.Damage) error {
		if damages >= len(records) {
			return errors.New("the log has changed while it was repaired")
		}
		for _, r := range records[damages] {
			if err := take(r); err != nil {
				return err
			}
		}
		damages++
		return nil
	})
	for _, t := range trials {
		if bad := errors.Join(t.fault, t.wrong); err == nil && bad != nil {
			err = fmt.Errorf("shard %d: %w", t.id, bad)
		}
	}
	return err
}
