package table

import (
	"cmp"

	"carillon/shard/table/slab"
	"carillon/timer"
)

// link is a timer's place among those of one id, if there are several. They are in this order:
// those that have not ended, the newest first, then those that have, the last one to end first. The
// id names the first. Only that one may be Done or Cancelled.
type link struct {
	newer, older timer.Handle
	live         bool // counted as one that has not ended
	// behind: it is scheduled, and is not attempted before the next older one has ended. Those
	// behind are the newest of an id.
	behind bool
	of     *sameID // not replicated: it follows from the links
}

// places are those of the timers that share their id with others.
type places map[timer.Handle]link

// front returns the timer that goes first of those of an id whose newest is h: the newest that does
// not wait behind another.
func (p places) front(h timer.Handle) timer.Handle {
	if l := p[h]; l.behind {
		return p[l.of.lastBehind].older
	}
	return h
}

// sameID summarizes the timers of one id, if there are several. A change is O(1). All but those
// behind and the dead letters are at most MaxLiveOfID.
type sameID struct {
	first, last timer.Handle
	lastLive    timer.Handle // the last of those that have not ended; 0 none
	lastBehind  timer.Handle // the last of those that are behind; 0 none
	live, over  int
}

// TakeDeadReplaced returns how many dead letters were dropped since the last call because their ids
// had too many.
func (u *updater) TakeDeadReplaced() int {
	n := u.deadReplaced
	u.deadReplaced = 0
	return n
}

// NextLive returns the next older timer of the same id that has not ended; 0 if there is none.
func (t *timers) NextLive(h timer.Handle) timer.Handle {
	if l := t.chains[h]; l.of != nil && l.live && l.of.lastLive != h {
		return l.older
	}
	return 0
}

// Named finds a timer that a change names: the one with a number among those of the id that have
// not ended, or without a number the one that the id names. If timers wait behind another, that is
// the one that goes first, not one that was redriven. It returns 0 if there is none. It is
// O(MaxLiveOfID), however many wait.
func (t *timers) Named(topic timer.TopicID, id []byte, seq uint64) timer.Handle {
	h := t.Find(topic, id)
	if of := t.chains[h].of; of != nil && t.chains[t.waiting[seq]].of == of {
		return t.waiting[seq]
	}
	h = t.chains.front(h)
	for seq != 0 && h != 0 && t.slots.At(h).Seq() != seq {
		h = t.NextLive(h)
	}
	return h
}

// setLink changes a timer's place. The timer must have no open update. It waits as before, unless it
// is let go.
func (u *updater) setLink(h timer.Handle, l link) {
	s := u.beginUpdate(h)
	if u.chains[h].behind != l.behind {
		u.updates[len(u.updates)-1].waited = false
	}
	if l.of == nil {
		u.chains = without(u.chains, &u.chainRoom, h)
	} else {
		u.chains[h] = l
	}
	s.Mark(slab.ChainMark, l.of != nil)
	u.endUpdate(h, s)
}

// supersede makes the id name the new timer h, which is not in the index, instead of old.
func (u *updater) supersede(hash uint32, old, h timer.Handle) {
	u.ids.Replace(hash, uint32(old), uint32(h))
	l := u.chains[old]
	if l.of == nil {
		l = link{live: !u.slots.At(old).State().Over(), of: &sameID{first: old, last: old}}
		l.of.count(old, l.live, +1)
		u.setLink(old, l)
	}
	u.insert(l.of, 0, h)
}

// count adds a timer to a summary or removes it. A timer that has not ended is added or removed as
// the last of them.
func (s *sameID) count(lastLive timer.Handle, live bool, by int) {
	if !live {
		s.over += by
		return
	}
	s.live += by
	s.lastLive = lastLive
}

// insert puts a timer without a place behind another of its id; 0: in front.
func (u *updater) insert(g *sameID, behind, h timer.Handle) {
	l := link{newer: behind, older: g.first, live: !u.slots.At(h).State().Over(), of: g}
	if behind != 0 {
		l.older = u.chains[behind].older
	}
	u.setOlder(g, behind, h)
	u.setNewer(g, l.older, h)
	last := g.lastLive
	if last == behind { // it is the last of the live ones itself
		last = h
	}
	g.count(last, l.live, +1)
	u.setLink(h, l)
}

// remove takes a timer out of its place. It may leave a chain of one.
func (u *updater) remove(h timer.Handle, l link) {
	g := l.of
	last := g.lastLive
	if last == h {
		last = l.newer
	}
	g.count(last, l.live, -1)
	if l.behind {
		u.waiting = without(u.waiting, &u.waitingRoom, u.slots.At(h).Seq())
	}
	if g.lastBehind == h {
		g.lastBehind = l.newer
	}
	u.setLink(h, link{})
	u.setOlder(g, l.newer, l.older)
	u.setNewer(g, l.older, l.newer)
	if l.live && !l.behind && u.chains[l.newer].behind {
		u.setBehind(l.newer, false)
	}
}

// setOlder makes older the next after h, or the first if h is 0.
func (u *updater) setOlder(g *sameID, h, older timer.Handle) {
	if h == 0 {
		g.first = older
		return
	}
	l := u.chains[h]
	l.older = older
	u.setLink(h, l)
}

// setNewer makes newer the one before h, or the last if h is 0.
func (u *updater) setNewer(g *sameID, h, newer timer.Handle) {
	if h == 0 {
		g.last = newer
		return
	}
	l := u.chains[h]
	l.newer = newer
	u.setLink(h, l)
}

// unchain removes a timer from its place and from the index. The next timer of the id takes its
// place in the index.
func (u *updater) unchain(h timer.Handle) {
	s := u.slots.At(h)
	hash := func() uint32 { return u.idHash(u.topics.rows[s.Topic].id, u.content.View(s.Ref).ID) }
	l := u.chains[h]
	if l.of == nil {
		u.ids.Remove(hash(), uint32(h))
		return
	}
	u.remove(h, l)
	if l.newer == 0 {
		u.ids.Replace(hash(), uint32(h), uint32(l.older))
	}
	if l.of.first == l.of.last {
		u.setLink(l.of.first, link{})
	}
}

// rank puts a timer into its place after it has ended, or was redriven: behind those that have not
// ended.
func (u *updater) rank(h timer.Handle) {
	s := u.slots.At(h)
	l := u.chains[h]
	if l.of == nil || l.live == !s.State().Over() {
		return
	}
	g, first := l.of, l.of.first
	u.remove(h, l)
	u.insert(g, g.lastLive, h)
	if g.first != first {
		u.ids.Replace(u.idHash(u.topics.rows[s.Topic].id, u.content.View(s.Ref).ID), uint32(first), uint32(g.first))
	}
}

// rankEnded ranks a timer that may have ended. One that is done or cancelled is dropped if another
// of the id has not ended: clients then see that one. A dead letter may be one too many.
func (u *updater) rankEnded(h timer.Handle) {
	l := u.chains[h]
	if l.of == nil {
		return
	}
	switch u.slots.At(h).State() {
	case timer.Done, timer.Cancelled:
		others := l.of.live
		if l.live {
			others--
		}
		if others > 0 {
			u.drop(h)
			return
		}
		u.rank(h)
	case timer.Dead:
		u.rank(h)
		if l.of.over > timer.MaxDeadOfID {
			u.drop(l.of.last)
			u.deadReplaced++
		}
	}
}

// setBehind makes a scheduled timer wait for those of its id before it, or lets it go.
func (u *updater) setBehind(h timer.Handle, on bool) {
	s := u.beginUpdate(h)
	l := u.chains[h]
	l.behind = on
	u.chains[h] = l
	if on {
		u.waiting[s.Seq()] = h
		l.of.lastBehind = cmp.Or(l.of.lastBehind, h)
	} else {
		u.waiting = without(u.waiting, &u.waitingRoom, s.Seq())
		l.of.lastBehind = l.newer
	}
	if s.State() == timer.Scheduled { // else it was cancelled together with the one before
		u.transition(h, s, timer.Scheduled, s.When())
	}
	u.endUpdate(h, s)
}

// Awaited reports whether timers of a live one's id wait behind it, or behind another that does
// not wait itself. It cannot become a series: the next occurrence would have no place among them.
func (t *timers) Awaited(h timer.Handle) bool {
	l := t.chains[h]
	return l.of != nil && l.live && !l.behind && t.chains[l.of.first].behind
}
