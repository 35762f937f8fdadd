// Package repair restores a log that was damaged at rest, exactly as it was, from its remains and
// from other nodes' logs. It works on the bytes of records, by indexes and terms alone: no group is
// opened before the repair is done.
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

// A Repairer restores a damaged log of a node, from its remains and from other nodes' logs, to
// exactly the state that it had, as far as that matters: the node must have forgotten nothing,
// since it will vote and lead as before. docs/adr/0013 has the argument. A Repairer is used before
// a host is made, and by one goroutine:
//
//	m, err := New(…)                  // finds the lost entries, or why it cannot
//	for m.Missing() > 0 { m.Take(answer to m.Questions()) }
//	m.Write(…)                        // then the log can be opened
type Repairer struct {
	fs        vfs.FS
	dir       string
	groups    []*survivingLog
	snapshots []*record.Mark // by group, the newest whole one; nil: none
	wreck     *wal.DamagedStream
	patches   []map[timer.ShardID]*patch // by damage
	holes     []*missingRange
	truths    []map[timer.ShardID]*expected // by manifest
}

// New reads the remains of the log in a data directory. The error says why the log cannot be
// repaired without guessing.
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

// wholeSnapshots returns the newest whole snapshot of each group.
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
		// A start does without a damaged snapshot, too. A read failure leaves unknown whether it is
		// damaged.
		if vfs.IsReadFailure(err) {
			return nil, err
		}
	}
	return found, nil
}

// salvage reads a damaged log into groups and calls tally with each manifest. It skips groups that
// are nil.
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

// tally applies a manifest of the node's own log.
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

// Damages describes the damages, for people.
func (m *Repairer) Damages() (list []string) {
	for _, d := range m.wreck.Damages {
		list = append(list, d.String())
	}
	return list
}

// Frames returns how many frames of the log were lost.
func (m *Repairer) Frames() (n uint64) {
	for _, d := range m.wreck.Damages {
		n += d.Lost()
	}
	return n
}

// Missing returns how many entries are still to be found.
func (m *Repairer) Missing() (n int) {
	for _, h := range m.holes {
		n += h.left
	}
	return n
}

// Lost describes the entries that are still to be found, for people.
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

// Questions returns a request for another node, to be answered by Answer. After its answer there
// may be more to ask.
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

// Take uses an answer and returns how many missing entries it supplied. It accepts an entry only if
// it must be the lost one: the answering log has the same entry behind the missing range, or both
// logs know the entry to be committed.
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

// take fills a missing range from an answer.
func (h *missingRange) take(a *answer) (taken int) {
	same := a.term == h.above.Term && a.term != 0
	if a.term != 0 && h.above.Term != 0 && !same {
		return 0 // the logs differ behind the range
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

// Write repairs the log, provided that a dry run of the result succeeds. After an error or a crash
// the log is damaged as before, or repaired.
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

// try reads the log as it will be after the repair.
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
