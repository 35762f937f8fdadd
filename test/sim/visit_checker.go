package sim

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// visit is the checker of one of the feature clients' topics.
type visit interface {
	called(o *operation)
	refused(o *operation)
	answered(w *World, o *operation, r timer.Result, t *timer.Timer)
	mayStart(c *call, tbl *table.Table)
	started(c *call)
	heard(c *call)
	checkEnd(w *World)
}

// judgeVisits makes these checkers.
func (b *checker) judgeVisits() {
	b.ranked = &rankChecker{featureChecker: newFeatureChecker(), lines: map[timer.ShardID][]*rankedTimer{}, reigns: map[place]time.Duration{}}
	b.bulks = &bulkChecker{ids: map[string]*bulkID{}}
	b.visits = map[timer.TopicID]visit{
		rankedTopic: b.ranked, spreadTopic: &spreadChecker{newFeatureChecker()}, briefTopic: &briefChecker{newFeatureChecker()},
		contentTopic: &contentChecker{ids: map[string]*contentID{}}, bulkTopic: b.bulks, mergingTopic: newMergeChecker(newFeatureChecker()),
	}
}

func (b *checker) judgeTurns(w *World) {
	b.turned = newTurnChecker(w)
	b.visits[turnedTopic] = b.turned
}

// checkVisits runs their final checks.
func (b *checker) checkVisits(w *World) {
	for id := rankedTopic; id <= windowTopic; id++ {
		b.visits[id].checkEnd(w)
	}
	b.visits[perKeyTopic].checkEnd(w)
	b.visits[collectTopic].checkEnd(w)
	if b.turned != nil {
		b.turned.checkEnd(w)
	}
	if w.outcomes.on {
		w.outcomes.checkEnd(w)
	}
}

// ends checks the final state of each timer of a topic whose ids are used once.
func (f *featureChecker) ends(w *World, dead func(n *featureID, k idKey, now *timer.Timer)) {
	for _, k := range f.names {
		n := f.ids[k]
		if n.first == nil {
			continue
		}
		tbl, _ := w.leader(w.holder(k.topic, k.id)).host.Inspect(w.holder(k.topic, k.id))
		now := tbl.Read(k.topic, k.id)
		w.stamped(now)
		switch {
		case now == nil:
			if n.first.acked && !w.mayBeForgotten(w.place(k.topic, k.id), n.since, len(n.first.over) > 0 || n.cancels > 0 || k.topic == briefTopic || k.topic == w.outcomes.ending) {
				w.violate("I1", "timer %s was acknowledged and is gone", k.id)
			}
		case now.State == timer.Done:
			if len(n.first.over) == 0 {
				w.violate("I1", "timer %s is done, but was never delivered", k.id)
			}
		case now.State == timer.Cancelled:
			if n.cancels == 0 {
				w.violate("I1", "timer %s is cancelled, but no client requested it", k.id)
			}
		case now.State == timer.Dead:
			dead(n, k, now)
		default:
			w.violate("I14", "timer %s is in state %d with %d attempts, due at %d, expected an ended timer", k.id, now.State, now.Attempts, now.DueMs)
		}
	}
}

func (f *featureChecker) mayStart(*call, *table.Table) {}

// noneDead is for topics in which no timer can become a dead letter.
func noneDead(w *World) func(*featureID, idKey, *timer.Timer) {
	return func(_ *featureID, k idKey, now *timer.Timer) {
		w.violate("I1", "timer %s is dead (reason %d) after %d attempts", k.id, now.Reason, now.Attempts)
	}
}

// spreadChecker checks spreading. The first attempt starts no sooner than the timer's due time plus
// its share of the window, which depends on its id alone. When nothing is wrong, it starts soon
// after the window.
type spreadChecker struct{ featureChecker }

// punctual is the allowed lateness when nothing is wrong.
const punctual = 3 * time.Second

func (b *spreadChecker) mayStart(c *call, tbl *table.Table) {
	w, j := c.node.w, &c.delivery.Job
	if j.Attempts != 1 {
		return
	}
	w.counts.Spread++
	now, share := c.node.clock.WallMs(), int64(tbl.IDHash(j.Handle)%uint64(w.featureClients.spreadMs))
	if now < j.DueMs+share {
		w.violate("spread", "node %d starts %s %d ms after it is due, expected at least its share of the window, %d ms", c.node.id, j.ID, now-j.DueMs, share)
	}
	if late := msOf(now - j.DueMs - w.featureClients.spreadMs); w.mended(j.DueMs) && late > punctual {
		w.violate("spread", "node %d starts %s %s after the end of its window, although the cluster is healthy", c.node.id, j.ID, late)
	}
}

func (b *spreadChecker) checkEnd(w *World) { b.ends(w, noneDead(w)) }

// mended reports whether the cluster was healed at a moment and had recovered from all faults. A
// bit that was flipped before may be found later.
func (w *World) mended(ms int64) bool {
	return w.calm && w.healed > 0 && ms >= epochMs+(max(w.healed+w.believed, w.checker.misled, w.foundAt)+healLimit).Milliseconds()
}

// briefChecker checks expiry. No attempt starts after the expiry, unless the timer was redriven. An
// expired timer is a dead letter with that reason, no sooner than its expiry, and within a second
// of it when nothing is wrong.
type briefChecker struct{ featureChecker }

func (b *briefChecker) mayStart(c *call, _ *table.Table) {
	w, j := c.node.w, &c.delivery.Job
	n := b.ids[idKey{j.Topic, j.ID}]
	if n == nil || n.redriven {
		return
	}
	if late := c.letGoMs - j.DueMs - n.first.expiresMs; late > 0 {
		w.violate("expiry", "node %d starts attempt %d of %s %d ms after it has expired", c.node.id, j.Attempts, j.ID, late)
	}
}

// mayHaveExpired reports whether a timer with the recorded end endedMs may have reached its expiry
// by the time of its shard, which was wrong. If that clock was set back since, once or several
// times, the end is when that happened.
func (w *World) mayHaveExpired(id timer.ShardID, since time.Duration, endedMs, moment int64) bool {
	until, reached := msOf(endedMs-epochMs), false
	for _, b := range w.checker.times.backs(id, since) {
		if reached = reached || b.fromMs >= moment; reached && b.toMs <= endedMs {
			until = max(until, b.at)
		}
	}
	_, last := w.checker.times.shown(id, since, until+timeSlack)
	return last >= moment-timeSlack.Milliseconds()
}

func (b *briefChecker) checkEnd(w *World) {
	b.ends(w, func(n *featureID, k idKey, now *timer.Timer) {
		w.counts.Expired++
		moment := n.first.dueMs + n.first.expiresMs
		switch {
		case now.Reason != timer.Expired:
			w.violate("expiry", "timer %s is dead for reason %d, expected expiry", k.id, now.Reason)
		case now.EndedMs <= moment-sureWithin.Milliseconds() && !w.mayHaveExpired(w.place(k.topic, k.id), n.since, now.EndedMs, moment):
			w.violate("expiry", "timer %s expired %d ms before its time was over", k.id, moment-now.EndedMs)
		case now.EndedMs > moment+1250 && w.mended(moment):
			w.violate("expiry", "timer %s expired %d ms late, although the cluster is healthy", k.id, now.EndedMs-moment)
		}
	})
}
