package table

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// link is a timer's place among those of one id, if there are several. They are in this order: those
// that have not ended, the newest first, then those that have, the last one to end first. The id
// names the first. Only that one may be Done or Cancelled.
type link struct {
	newer, older timer.Handle
	live         bool    // counted as one that has not ended
	of           *sameID // not replicated: it follows from the links
}

// sameID summarizes the timers of one id, if there are several.
type sameID struct {
	first, last timer.Handle
	lastLive    timer.Handle // the last of those that have not ended; 0 none
	live, over  int
}

// TakeDeadReplaced returns how many dead letters were dropped since the last call because their ids
// had too many.
func (t *Table) TakeDeadReplaced() int {
	n := t.deadReplaced
	t.deadReplaced = 0
	return n
}

// NextLive returns the next older timer of the same id that has not ended; 0 if there is none.
func (t *Table) NextLive(h timer.Handle) timer.Handle {
	if l := t.chains[h]; l.of != nil && l.live && l.of.lastLive != h {
		return l.older
	}
	return 0
}

// Named finds a timer that a change names: the one with a number among those of the id that have not
// ended, or without a number the one that the id names. It returns 0 if there is none.
func (t *Table) Named(topic timer.TopicID, id []byte, seq uint64) timer.Handle {
	h := t.Find(topic, id)
	for seq != 0 && h != 0 && t.slab.at(h).seq() != seq {
		h = t.NextLive(h)
	}
	return h
}

// setLink changes a timer's place. The timer must have no open update.
func (t *Table) setLink(h timer.Handle, l link) {
	s := t.beginUpdate(h)
	if l.of == nil {
		delete(t.chains, h)
	} else {
		t.chains[h] = l
	}
	s.mark(chainMark, l.of != nil)
	t.endUpdate(h, s)
}

// supersede makes the id name the new timer h, which is not in the index, instead of old.
func (t *Table) supersede(hash uint32, old, h timer.Handle) {
	t.ids.replace(hash, uint32(old), uint32(h))
	l := t.chains[old]
	if l.of == nil {
		l = link{live: !t.slab.at(old).state().Over(), of: &sameID{first: old, last: old}}
		l.of.count(old, l.live, +1)
		t.setLink(old, l)
	}
	t.insert(l.of, 0, h)
}

// count adds a timer to a summary or removes it. A timer that has not ended is added or removed as
// the last of them.
func (g *sameID) count(lastLive timer.Handle, live bool, by int) {
	if !live {
		g.over += by
		return
	}
	g.live += by
	g.lastLive = lastLive
}

// insert puts a timer without a place behind another of its id; 0: in front.
func (t *Table) insert(g *sameID, behind, h timer.Handle) {
	l := link{newer: behind, older: g.first, live: !t.slab.at(h).state().Over(), of: g}
	if behind == 0 {
		g.first = h
	} else {
		n := t.chains[behind]
		l.older = n.older
		n.older = h
		t.setLink(behind, n)
	}
	if l.older == 0 {
		g.last = h
	} else {
		o := t.chains[l.older]
		o.newer = h
		t.setLink(l.older, o)
	}
	last := g.lastLive
	if last == behind { // it is the last of the live ones itself
		last = h
	}
	g.count(last, l.live, +1)
	t.setLink(h, l)
}

// remove takes a timer out of its place. It may leave a chain of one.
func (t *Table) remove(h timer.Handle, l link) {
	g := l.of
	last := g.lastLive
	if last == h {
		last = l.newer
	}
	g.count(last, l.live, -1)
	t.setLink(h, link{})
	if l.newer == 0 {
		g.first = l.older
	} else {
		n := t.chains[l.newer]
		n.older = l.older
		t.setLink(l.newer, n)
	}
	if l.older == 0 {
		g.last = l.newer
	} else {
		o := t.chains[l.older]
		o.newer = l.newer
		t.setLink(l.older, o)
	}
}

// unchain removes a timer from its place and from the index. The next timer of the id takes its
// place in the index.
func (t *Table) unchain(h timer.Handle) {
	s := t.slab.at(h)
	hash := func() uint32 { return t.idHash(t.topics.rows[s.topic].id, t.view(s.ref).id) }
	l := t.chains[h]
	if l.of == nil {
		t.ids.remove(hash(), uint32(h))
		return
	}
	t.remove(h, l)
	if l.newer == 0 {
		t.ids.replace(hash(), uint32(h), uint32(l.older))
	}
	if l.of.first == l.of.last {
		t.setLink(l.of.first, link{})
	}
}

// rank puts a timer into its place after it has ended, or was redriven: behind those that have not
// ended.
func (t *Table) rank(h timer.Handle) {
	s := t.slab.at(h)
	l := t.chains[h]
	if l.of == nil || l.live == !s.state().Over() {
		return
	}
	g, first := l.of, l.of.first
	t.remove(h, l)
	t.insert(g, g.lastLive, h)
	if g.first != first {
		t.ids.replace(t.idHash(t.topics.rows[s.topic].id, t.view(s.ref).id), uint32(first), uint32(g.first))
	}
}

// rankEnded ranks a timer that may have ended. One that is done or cancelled is dropped if another
// of the id has not ended: clients then see that one. A dead letter may be one too many.
func (t *Table) rankEnded(h timer.Handle) {
	l := t.chains[h]
	if l.of == nil {
		return
	}
	switch t.slab.at(h).state() {
	case timer.Done, timer.Cancelled:
		others := l.of.live
		if l.live {
			others--
		}
		if others > 0 {
			t.drop(h)
			return
		}
		t.rank(h)
	case timer.Dead:
		t.rank(h)
		if l.of.over > timer.MaxDeadOfID {
			t.drop(l.of.last)
			t.deadReplaced++
		}
	}
}

// deadLetter finds the dead letter that Redrive or Purge names: that of a number, else the last one
// of the id, or of the id and version. It returns 0 if there is none.
func (t *Table) deadLetter(c *encoding.Command) timer.Handle {
	h := t.Find(c.Topic, c.ID)
	if g := t.chains[h].of; g != nil && g.lastLive != 0 {
		h = t.chains[g.lastLive].older
	}
	for ; h != 0; h = t.chains[h].older {
		s := t.slab.at(h)
		if s.state() != timer.Dead || c.Seq != 0 && c.Seq != s.seq() {
			continue
		}
		if v := t.view(s.ref); v.meets(c) {
			return h
		}
	}
	return 0
}

// mayRedrive reports whether a dead letter can be scheduled again: no timer of the id is live, or
// those that are belong to the same series.
func (t *Table) mayRedrive(h timer.Handle) timer.Code {
	g := t.chains[h].of
	if g == nil || g.live == 0 {
		return timer.OK
	}
	dead, first := t.view(t.slab.at(h).ref), t.view(t.slab.at(g.first).ref)
	switch {
	case dead.flags&first.flags&blobSeries == 0 || dead.tag != first.tag:
		return timer.InUse
	case g.live >= timer.MaxLiveOfID:
		return timer.TooMany
	}
	return timer.OK
}
