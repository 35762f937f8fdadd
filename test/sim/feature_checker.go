package sim

import (
	"slices"
	"time"

	"carillon/timer"
)

// featureChecker checks the timers of all topics from featureTopic on. Its rules:
//
//   - a call has a payload and a due time that were written together (I2, I6), also after a fire or a
//     redrive; a series is called only for its times, and before them only if somebody asked (I4);
//   - calls of one id, and of one key in the serial topic, do not overlap, and their fences grow
//     (I3, I21); a redriven occurrence runs in parallel with its series, and so do the occurrences of
//     a series that lets them overlap;
//   - a repeated add makes one timer (I18);
//   - each occurrence is one timer; a series that catches up with all occurrences and that no
//     client changed leaves none out;
//   - an add is delivered if no other operation on its id overlapped it or followed it.
type featureChecker struct {
	recent []string
	ids    map[idKey]*featureID
	names  []idKey // in order
	keys   map[string]*call
}

// featureID is the checker's knowledge of one id.
type featureID struct {
	writes   map[string]*write // by payload
	first    *write
	since    time.Duration // when a client first used it
	askedMs  int64         // the last time at which a Fire asked for an attempt; 0 none has
	fires    int64
	againMs  int64 // the last time for which a Redrive asked for an attempt
	calls    int   // operations that may have changed something
	open     int   // … with an unknown outcome
	cancels  int
	redriven bool
	stopped  bool              // a cancel was answered `prevented`
	made     map[uint64]uint64 // by content: the timer's sequence number
	lives    map[uint64]*featureLife
	line
}

// featureLife is the checker's knowledge of one timer.
type featureLife struct {
	prevented bool
	dueMs     int64 // of its last call
	attempts  map[attemptKey]bool
	line
}

// line is what is called one after the other.
type line struct {
	fence   uint64
	running *call
}

func newFeatureChecker() featureChecker {
	return featureChecker{ids: map[idKey]*featureID{}, keys: map[string]*call{}}
}

func (f *featureChecker) id(k idKey) *featureID {
	n := f.ids[k]
	if n == nil {
		n = &featureID{writes: map[string]*write{}, made: map[uint64]uint64{}, lives: map[uint64]*featureLife{}}
		f.ids[k] = n
		f.names = append(f.names, k)
	}
	return n
}

func (n *featureID) life(seq uint64) *featureLife {
	l := n.lives[seq]
	if l == nil {
		l = &featureLife{attempts: map[attemptKey]bool{}}
		n.lives[seq] = l
	}
	return l
}

// occurrence is the due time of occurrence i of a series, from 0.
func (w *write) occurrence(i int64) int64 {
	if w.timetable != nil {
		return w.timetable.dues[i]
	}
	return w.dueMs + i*w.every
}

// called records an operation before it is sent.
func (f *featureChecker) called(o *operation) {
	n := f.id(idKey{o.topic, o.id})
	if o.cmd == nil {
		return
	}
	if n.calls++; n.calls == 1 {
		n.since = o.began
	}
	if o.write != nil {
		if n.first == nil {
			n.first = o.write
		}
		n.writes[o.write.payload] = o.write
		o.write.call, o.write.alone = n.calls, n.open == 0 && o.cmd.Merge != timer.MergeKeep
	}
	n.open++
	switch o.cmd.Kind {
	case timer.Cancel:
		n.cancels++
	case timer.Fire:
		n.askedMs = max(n.askedMs, o.cmd.DueMs)
		n.fires++
	case timer.Redrive:
		n.redriven, n.againMs = true, max(n.againMs, o.cmd.DueMs)
	}
}

// refused records that an operation never takes effect.
func (f *featureChecker) refused(o *operation) {
	if o.cmd != nil {
		f.id(idKey{o.topic, o.id}).open--
	}
}

// answered records and checks an answer.
func (f *featureChecker) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	n := f.id(idKey{o.topic, o.id})
	if t != nil {
		wrote := n.writes[string(t.Payload)]
		if t.ID != o.id || wrote == nil || !n.mayBeDue(w, o.shard, wrote, t.DueMs) {
			w.violate("I6", "operation %d on %s is answered with timer %s, payload %s, due %d, which no client wrote", o.number, o.id, t.ID, t.Payload, t.DueMs)
		}
	}
	if o.cmd == nil {
		return
	}
	n.open--
	switch r.Code {
	case timer.Created:
		if seq, twice := n.made[o.cmd.Content]; twice && o.id[0] == 'd' && seq != t.Seq && !w.mayBeForgotten(o.shard, n.since, true) {
			w.violate("I18", "the add of %s was repeated and made a second timer: number %d after %d", o.id, t.Seq, seq)
		}
		n.made[o.cmd.Content] = t.Seq
		o.write.acked = true
	case timer.Merged, timer.Same:
		o.write.acked = true
	case timer.Prevented:
		n.life(t.Seq).prevented, n.stopped = true, true
	}
}

// mayBeDue reports whether a timer that was written so can be due at dueMs.
func (n *featureID) mayBeDue(w *World, at timer.ShardID, wrote *write, dueMs int64) bool {
	switch since := dueMs - wrote.dueMs; {
	case since == 0:
		return true
	case wrote.timetable != nil:
		return slices.Contains(wrote.timetable.dues, dueMs)
	case wrote.every != 0:
		return since%wrote.every == 0 && (since > 0 || w.mayBeginSooner(at, wrote, dueMs, n.fires > 0)) || w.mayBeDueAtOnce(at, wrote, dueMs)
	case wrote.capped:
		return since < 0
	}
	return false
}

// started checks a call when it is sent.
func (f *featureChecker) started(c *call) {
	w, j := c.node.w, &c.delivery.Job
	n := f.ids[idKey{j.Topic, j.ID}]
	if n == nil || n.writes[string(j.Payload)] == nil {
		w.violate("I2", "node %d delivers %s of %s, which no client wrote", c.node.id, j.Payload, j.ID)
	}
	wrote, l := n.writes[string(j.Payload)], n.life(j.Seq)
	if !n.mayBeDue(w, c.delivery.Shard, wrote, j.DueMs) {
		w.violate("I6", "node %d delivers %s due at %d, it was written to be due at %d", c.node.id, j.Payload, j.DueMs, wrote.dueMs)
	}
	if (l.prevented || wrote.overlap && n.stopped) && !n.redriven {
		w.violate("I5", "node %d calls for %s after its cancel was answered `prevented`", c.node.id, j.ID)
	}
	if key := (attemptKey{j.Version, j.Attempts}); l.attempts[key] && !n.redriven {
		w.violate("I3", "attempt %d of %s (number %d, version %d) starts twice", j.Attempts, j.ID, j.Seq, j.Version)
	} else {
		l.attempts[key] = true
	}
	asked := n.askedMs
	if n.fires > 0 { // a redrive takes the place of a fire before it
		asked = max(asked, n.againMs)
	}
	if j.AskedMs > asked {
		w.violate("I4", "node %d calls for %s, asked for at %d; the last request was at %d", c.node.id, j.ID, j.AskedMs, asked)
	}
	w.counts.Asked += int(b2u(j.DueMs > epochMs+w.now.Milliseconds() && j.AskedMs != 0))
	repeats, in := wrote.every != 0 || wrote.timetable != nil, &n.line
	if repeats && (n.redriven || wrote.overlap) {
		in = &l.line
		parallel := int(b2u(n.line.running.runs() && n.line.running.delivery.Job.Seq != j.Seq))
		w.counts.Parallel += parallel * int(b2u(n.redriven))
		w.counts.Overlapping += parallel * int(b2u(!n.redriven))
	}
	if j.Fence <= in.fence {
		w.violate("I3", "a call of %s starts under fence %d after fence %d", j.ID, j.Fence, in.fence)
	}
	if in.running.runs() {
		w.violate("I3", "node %d calls for %s while a call of node %d runs", c.node.id, j.ID, in.running.node.id)
	}
	n.line, l.line = line{max(n.line.fence, j.Fence), c}, line{j.Fence, c}
	moved := l.dueMs > j.DueMs && w.mayBeDueAtOnce(c.delivery.Shard, wrote, j.DueMs)
	if l.dueMs = j.DueMs; repeats && !moved {
		before, twice := wrote.starts[j.DueMs]
		if twice && before.seq != j.Seq && !w.mayRecur(c.delivery.Shard, before.at, j.DueMs) && !n.mayMeetAgain(w, c.delivery.Shard, wrote.asked) {
			w.violate("series", "the occurrence of %s due at %d is called as timer %d and as timer %d", j.ID, j.DueMs, before.seq, j.Seq)
		}
		if wrote.starts == nil {
			wrote.starts = map[int64]startedAs{}
		}
		if before.seq != j.Seq {
			wrote.starts[j.DueMs] = startedAs{j.Seq, w.now}
		}
	}
	if key := lineOf(j.Topic, j.ID); key != "" {
		if other := f.keys[key]; other.runs() {
			w.violate("I21", "node %d calls for %s while node %d calls for %s of the same key", c.node.id, j.ID, other.node.id, other.delivery.Job.ID)
		}
		f.keys[key] = c
	}
}

// mayMeetAgain reports whether a series may come to an occurrence a second time, which was made
// early: when its shard's clock was set back since it was added, the series goes by the clock alone.
func (n *featureID) mayMeetAgain(w *World, id timer.ShardID, since time.Duration) bool {
	return n.askedMs != 0 && len(w.checker.times.backs(id, since)) > 0
}

// mayBeginSooner reports whether a series may have reached an occurrence before its first one. That
// happens if the shard's clock was ahead: the first occurrence was over before it was due, or the
// clock was later set back behind it. Then the series goes on with the next occurrence that is
// left. The first occurrence of one that was fired may be over at any time since it was added.
func (w *World) mayBeginSooner(id timer.ShardID, wrote *write, dueMs int64, fired bool) bool {
	first := msOf(wrote.dueMs - epochMs)
	if _, last := w.checker.times.shown(id, wrote.asked, min(w.now, first)); last > wrote.dueMs+timeSlack.Milliseconds() {
		return true
	}
	if fired {
		first = min(first, wrote.asked)
	}
	return w.now > first && w.mayRecur(id, first, dueMs)
}

// mayBeDueAtOnce reports whether an occurrence that a wrong clock called beside its series may have
// become due as its shard's clock was set back.
func (w *World) mayBeDueAtOnce(id timer.ShardID, wrote *write, dueMs int64) bool {
	return wrote.overlap && wrote.catchUp != timer.CatchUpAll && slices.ContainsFunc(w.checker.times.backs(id, wrote.asked), func(b clockBack) bool {
		_, latest := w.checker.times.shown(id, b.at, w.now) // the clock that it was set to may be ahead, too
		return b.toMs <= dueMs && dueMs <= latest+timeSlack.Milliseconds()
	})
}

// mayRecur reports whether an occurrence of a series may have come twice, because its shard's clock
// was set back behind it since the first time.
func (w *World) mayRecur(id timer.ShardID, since time.Duration, dueMs int64) bool {
	soonest, _ := w.checker.times.shown(id, since, w.now)
	return soonest <= dueMs+timeSlack.Milliseconds() && slices.ContainsFunc(w.checker.times.backs(id, since), func(b clockBack) bool {
		return b.fromMs >= dueMs && b.toMs <= dueMs
	})
}

// runs reports whether a call is under way.
func (c *call) runs() bool { return c != nil && !c.ended && c.node.life == c.life }

// heard records that a receiver took a call, or rejected it for good.
func (f *featureChecker) heard(c *call) {
	j := &c.delivery.Job
	wrote := f.ids[idKey{j.Topic, j.ID}].writes[string(j.Payload)]
	if wrote.over == nil {
		wrote.over = map[int64]bool{}
	}
	wrote.over[j.DueMs] = true
}

// checkEnd compares the calls at receivers with the answers to clients.
func (f *featureChecker) checkEnd(w *World) {
	w.checker.leases.checkEnd(w)
	for _, k := range f.names {
		n := f.ids[k]
		for _, wrote := range n.writes {
			if !wrote.acked || n.cancels > 0 {
				continue
			}
			if wrote.alone && wrote.call == n.calls && len(wrote.over) == 0 && !wrote.dies && wrote.catchUp != timer.CatchUpSkip {
				w.violate("I1", "%s was acknowledged and no later operation used %s, but it was never delivered", wrote.payload, k.id)
			}
			for i := int64(0); i < wrote.count && wrote.catchUp == timer.CatchUpAll; i++ {
				if due := wrote.occurrence(i); !wrote.over[due] {
					w.violate("series", "occurrence %d of %s, due at %d, was left out", i+1, k.id, due)
				}
			}
		}
	}
}
