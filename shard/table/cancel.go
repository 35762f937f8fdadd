package table

import (
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// cancelWork is how much an entry's cancels do, see dropWork, before those of arrays are Partly.
const cancelWork = 1 << 15

// cancel prevents every attempt that has not started (I5), both of the timer and of its older
// occurrences that have not ended, or the arrays that wait behind it. If the command names one of
// those by its number, it ends that one alone; the newest occurrence ends all. If it names one that
// is gone, it ends none, and the answer, VersionMismatch, has the timer that the id names now. It is
// O(their number). When the entry's cancelWork is used up, arrays that wait are left, the oldest
// ones, and the answer is Partly.
func (t *Table) cancel(c *encoding.Command) timer.Result {
	h, alone := t.cancels(c.Topic, c.ID, c.Seq)
	if h == 0 {
		return timer.Result{Code: timer.NotFound}
	}
	if t.slots.At(h).State().Over() { // then all others of the id are over too
		code := map[timer.State]timer.Code{timer.Done: timer.OverFired, timer.Dead: timer.OverDead, timer.Cancelled: timer.Prevented}[t.slots.At(h).State()]
		return timer.Result{Code: code, Handle: h, Unchanged: code == timer.Prevented}
	}
	named, first := timer.Handle(0), t.Named(c.Topic, c.ID, 0)
	if t.slots.At(h).Seq() == c.Seq {
		named, first = h, h
	}
	if v := t.content.View(t.slots.At(first).Ref); !c.Meets(v.Version) || c.Seq != 0 && named == 0 {
		return timer.Result{Code: timer.VersionMismatch, Handle: first}
	}
	code, unchanged := timer.Prevented, true
	for at := h; at != 0; {
		next := t.NextLive(at)
		if alone {
			next = 0
		}
		if t.cancelLeft <= 0 && (t.chains[at].behind || at == h && t.collects(h)) {
			if at != h {
				t.rankEnded(h)
			}
			return timer.Result{Code: timer.Partly}
		}
		t.cancelLeft -= t.dropWork(at)
		running, changed := t.cancelOne(at)
		unchanged = unchanged && !changed
		if running && (named == 0 || named == at) {
			code = timer.CancelInFlight
		}
		if at != h {
			t.rankEnded(at)
		}
		at = next
	}
	t.rankEnded(h)
	return timer.Result{Code: code, Handle: t.Named(c.Topic, c.ID, 0), Unchanged: unchanged}
}

// cancels finds what a cancel ends: the newest timer of the id and all older ones that have not
// ended, or alone the one that it names, if that is one of the older ones or waits.
func (t *Table) cancels(topic timer.TopicID, id []byte, seq uint64) (h timer.Handle, alone bool) {
	h = t.Find(topic, id)
	if seq == 0 {
		return h, false
	}
	if named := t.Named(topic, id, seq); named != 0 && (named != h || t.chains[h].behind) {
		return named, true
	}
	return h, false
}

// MayBeLeased finds the timers that a change names and that may be leased: the first one, and
// whether those after it by NextLive are meant too.
func (t *Table) MayBeLeased(c *timer.Command) (h timer.Handle, more bool) {
	if c.Kind == timer.Cancel {
		h, alone := t.cancels(c.Topic, []byte(c.ID), c.Seq)
		if c.Seq != 0 && !t.Live(h, c.Seq) {
			return 0, false // it is gone
		}
		if !alone {
			h = t.chains.front(h)
		}
		return h, !alone
	}
	return t.Named(c.Topic, []byte(c.ID), c.Seq), false
}

// cancelOne cancels a timer unless it has ended. It reports whether an attempt may be running, and
// whether the timer has changed. The caller ranks the timer.
func (t *Table) cancelOne(h timer.Handle) (running, changed bool) {
	switch t.slots.At(h).State() {
	case timer.Leased:
		s := t.beginUpdate(h)
		r := t.attempts.At(s.Attempt)
		changed = !s.Cancelled() || r.Successor != 0
		s.Mark(slab.CancelMark, true)
		t.forgetParts(h, s) // what is added from now on is not cancelled
		t.dropSuccessor(h, r)
		t.endUpdate(h, s)
		return true, changed
	case timer.Scheduled:
		s := t.beginUpdate(h)
		t.end(h, s, timer.Cancelled, t.clockMs)
		t.endUpdate(h, s)
		return false, true
	}
	return false, false
}
