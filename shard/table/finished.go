package table

import (
	"carillon/shard/table/slab"
	"carillon/timer"
)

// finished lists the timers that are Done or Cancelled in the order in which they ended. The list
// is linked through their attempts. To add or remove one is O(1).
type finished struct {
	oldest, newest timer.Handle
	bytes          int64 // by finishedCost
}

// Bounds of the finished timers that a table keeps in memory, in addition to the history on disk.
const (
	finishedKeepMs   = timer.KeptMs // how long a Done or Cancelled timer can be read by its id
	finishedMaxBytes = 64 << 20     // per table; beyond it the oldest are dropped early
)

// finishedFixed is the nominal size of a finished timer without its id, content and error. It
// decides replicated state, so it is a constant and not the timer's real memory in this version.
const finishedFixed = 160

func (t *timers) finishedCost(h timer.Handle, s *slab.Slot) int64 {
	v, a := t.content.View(s.Ref), t.arrays[h]
	text, answer := t.content.Failure(t.attempts.At(s.Attempt).ErrRef)
	return int64(a.Kept() + finishedFixed + len(v.ID) + len(v.Rest) + len(text) + len(answer))
}

// push appends a timer that has just ended. The timer's update is open.
func (f *finished) push(u *updater, h timer.Handle, s *slab.Slot) {
	r := u.attemptOf(s)
	r.Newer, r.Older = 0, uint32(f.newest)
	if f.newest == 0 {
		f.oldest = h
	} else {
		f.relink(u, f.newest, func(r *slab.Attempt) { r.Newer = uint32(h) })
	}
	f.newest = h
	f.bytes += u.finishedCost(h, s)
}

// remove removes a timer from the list. The timer's update is open.
func (f *finished) remove(u *updater, h timer.Handle, s *slab.Slot) {
	r := u.attempts.At(s.Attempt)
	newer, older := timer.Handle(r.Newer), timer.Handle(r.Older)
	if older == 0 {
		f.oldest = newer
	} else {
		f.relink(u, older, func(r *slab.Attempt) { r.Newer = uint32(newer) })
	}
	if newer == 0 {
		f.newest = older
	} else {
		f.relink(u, newer, func(r *slab.Attempt) { r.Older = uint32(older) })
	}
	f.bytes -= u.finishedCost(h, s)
}

func (f *finished) relink(u *updater, h timer.Handle, change func(*slab.Attempt)) {
	s := u.beginUpdate(h)
	change(u.attempts.At(s.Attempt))
	u.endUpdate(h, s)
}

// end finishes a timer with an open update as Done or Cancelled.
func (t *Table) end(h timer.Handle, s *slab.Slot, to timer.State, endMs int64) {
	t.attemptOf(s).SetEndedMs(endMs)
	t.transition(h, s, to, endMs)
	t.endedAs = to
	t.forgetParts(h, s)
	t.dropLog(h, s)
	t.finished.push(&t.updater, h, s)
	t.events.addEnd(&t.timers, h, s)
}

// FinishedOverdue reports that a finished timer is kept for too long by now. The next entry drops
// some of them.
func (t *Table) FinishedOverdue(nowMs int64) bool {
	h := t.finished.oldest
	return h != 0 && t.slots.At(h).When() < nowMs-finishedKeepMs
}

// dropFinished drops at most budget finished timers that ended too long ago or exceed the bound of
// bytes.
func (t *Table) dropFinished(budget int) {
	for ; budget > 0; budget-- {
		h := t.finished.oldest
		if h == 0 {
			return
		}
		if t.slots.At(h).When() >= t.clockMs-finishedKeepMs && t.finished.bytes <= finishedMaxBytes {
			return
		}
		t.drop(h)
	}
}
