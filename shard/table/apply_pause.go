package table

import (
	"carillon/shard/table/content"
	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// pause holds a scheduled timer until a resume, or lets it go on. Everything else stays, as with
// fire: the due time, the version and with it the webhook-id, and the attempts. A timer that is
// replaced or patched stays held.
func (t *Table) pause(c *encoding.Command) timer.Result {
	h := t.Named(c.Topic, c.ID, c.Seq)
	if h == 0 {
		return timer.Result{Code: timer.NotFound}
	}
	s := t.slots.At(h)
	if code, refused := refusal(s.State()); refused {
		return timer.Result{Code: code, Handle: h}
	}
	v := t.content.View(s.Ref)
	if !v.Meets(c) {
		return timer.Result{Code: timer.VersionMismatch, Handle: h}
	}
	on := c.Kind == timer.Pause
	if s.Paused() == on {
		return timer.Result{Code: timer.OK, Handle: h}
	}
	s = t.beginUpdate(h)
	s.SetPaused(on, !on && missed(s, &v, max(t.clockMs, c.DueMs)))
	t.transition(h, s, timer.Scheduled, s.When())
	t.endUpdate(h, s)
	return timer.Result{Code: timer.OK, Handle: h}
}

// missed reports whether a held timer is an occurrence whose time has passed, of a series that skips
// those. The leader moves it on, because a table knows no calendar.
func missed(s *slab.Slot, v *content.Blob, nowMs int64) bool {
	if v.AskedMs != 0 || s.Attempts() != 0 || s.When() > nowMs {
		return false
	}
	p := repeatOf(v)
	return p != nil && p.CatchUp == timer.CatchUpSkip
}

// unmiss ends the mark of a missed occurrence when the timer gets another time or another series. The
// timer's update is open.
func unmiss(s *slab.Slot) {
	if s.Missed() {
		s.SetPaused(false, false)
	}
}
