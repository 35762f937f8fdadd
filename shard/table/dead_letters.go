package table

import (
	"carillon/shard/table/content"
	"carillon/timer"
	"carillon/timer/encoding"
)

// redrive gives a dead letter new attempts. It keeps its due time, and its number, tag and version,
// so the receiver sees the same webhook-id. Its expiry no longer counts, and the patch may change
// its callback.
func (t *Table) redrive(c *encoding.Command, p *timer.Patch) timer.Result {
	h := t.deadLetter(c)
	if h == 0 {
		return timer.Result{Code: timer.Skipped}
	}
	if code := t.mayRedrive(h); code != timer.OK {
		return timer.Result{Code: code, Handle: h}
	}
	if g := t.chains[h].of; g != nil && t.slots.At(g.first).State() != timer.Dead && g.live == 0 {
		t.drop(g.first) // it is done or cancelled; the id names the redriven timer
	}
	s := t.beginUpdate(h)
	v := t.content.View(s.Ref)
	v.Flags |= content.NoExpiry
	t.scratch = append(t.scratch[:0], t.content.EncodedCallback(v.Target)...)
	callback := t.scratch
	if p != nil {
		cb, _ := encoding.DecodeCallback(callback)
		p.ApplyToCallback(&cb)
		callback = encoding.AppendCallback(nil, &cb)
	}
	next := t.clockMs
	if c.DueMs != 0 {
		next = timer.ClampMs(c.DueMs)
	}
	// It may have died before it was due: by a clock that was ahead, or after a Fire. Only in the
	// second case may it be attempted before that again, and the redrive takes the Fire's place.
	dueMs := t.dueMs(s)
	if next = max(next, earliestMs(dueMs, v.AskedMs)); v.AskedMs != 0 {
		v.AskedMs = 0
		if next < dueMs {
			v.AskedMs = next
		}
	}
	t.rewrite(h, s, &v, callback)
	s.SetAttempts(0)
	s.SetReason(timer.NoReason)
	t.transition(h, s, timer.Scheduled, next)
	t.endUpdate(h, s)
	t.rank(h)
	return timer.Result{Code: timer.OK, Handle: h}
}

// Redriven reports whether a timer that has not ended was a dead letter, and no client has changed
// its expiry since.
func (t *timers) Redriven(h timer.Handle) bool {
	v := t.viewOf(h)
	return v.Flags&content.NoExpiry != 0
}

func (t *Table) purge(c *encoding.Command) timer.Result {
	h := t.deadLetter(c)
	if h == 0 {
		return timer.Result{Code: timer.Skipped}
	}
	t.drop(h)
	return timer.Result{Code: timer.OK}
}

func (t *Table) forgetDead(h timer.Handle, seq uint64) timer.Result {
	s := t.live(h, seq)
	if s == nil || s.State() != timer.Dead {
		return timer.Result{Code: timer.Skipped, Handle: h}
	}
	t.drop(h)
	return timer.Result{Code: timer.OK}
}

// deadLetter finds the dead letter that Redrive or Purge names: that of a number, else the last one
// of the id, or of the id and version. It returns 0 if there is none.
func (t *timers) deadLetter(c *encoding.Command) timer.Handle {
	h := t.Find(c.Topic, c.ID)
	if g := t.chains[h].of; g != nil && g.lastLive != 0 {
		h = t.chains[g.lastLive].older
	}
	for ; h != 0; h = t.chains[h].older {
		s := t.slots.At(h)
		if s.State() != timer.Dead || c.Seq != 0 && c.Seq != s.Seq() {
			continue
		}
		if v := t.content.View(s.Ref); c.Meets(v.Version) {
			return h
		}
	}
	return 0
}

// mayRedrive reports whether a dead letter can be scheduled again: no timer of the id is live, or
// those that are belong to the same series.
func (t *timers) mayRedrive(h timer.Handle) timer.Code {
	g := t.chains[h].of
	if g == nil || g.live == 0 {
		return timer.OK
	}
	if t.collects(h) && t.collects(g.first) { // it runs in parallel to those that wait
		n := 0
		for first := t.chains.front(g.first); first != 0; first = t.NextLive(first) {
			if n++; n >= timer.MaxLiveOfID {
				return timer.TooMany
			}
		}
		return timer.OK
	}
	dead, first := t.content.View(t.slots.At(h).Ref), t.content.View(t.slots.At(g.first).Ref)
	switch {
	case dead.Flags&first.Flags&content.IsSeries == 0 || dead.Tag != first.Tag:
		return timer.InUse
	case g.live >= timer.MaxLiveOfID:
		return timer.TooMany
	}
	return timer.OK
}
