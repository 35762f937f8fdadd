package sim

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// visit is the judge of one of the feature clients' topics.
type visit interface {
	called(o *operation)
	refused(o *operation)
	answered(w *World, o *operation, r timer.Result, t *timer.Timer)
	mayStart(c *call, tbl *table.Table)
	started(c *call)
	heard(c *call)
	checkEnd(w *World)
}

// visits are the judges, by topic.
func (b *checker) judgeVisits() {
	fresh := func() featureChecker { return featureChecker{ids: map[idKey]*featureID{}, keys: map[string]*call{}} }
	b.ranked = &rankChecker{featureChecker: fresh(), lines: map[timer.ShardID][]*rankedTimer{}, reigns: map[place]time.Duration{}}
	b.bulks = &bulkChecker{ids: map[string]*bulkID{}}
	b.visits = map[timer.TopicID]visit{
		rankedTopic: b.ranked, spreadTopic: &spreadChecker{fresh()}, briefTopic: &briefChecker{fresh()},
		contentTopic: &contentChecker{ids: map[string]*contentID{}}, bulkTopic: b.bulks, mergingTopic: newMergeChecker(fresh()),
	}
}

func (b *checker) judgeTurns(w *World) {
	b.turned = newTurnChecker(w)
	b.visits[turnedTopic] = b.turned
}

// checkVisits is the judges' end.
func (b *checker) checkVisits(w *World) {
	for id := rankedTopic; id <= mergingTopic; id++ {
		b.visits[id].checkEnd(w)
	}
	if b.turned != nil {
		b.turned.checkEnd(w)
	}
}

// ends holds the end of each timer of a topic, of whose id there was one, against what is known of it.
func (f *featureChecker) ends(w *World, dead func(n *featureID, k idKey, now *timer.Timer)) {
	for _, k := range f.names {
		n := f.ids[k]
		if n.first == nil {
			continue
		}
		tbl, _ := w.leader(w.place(k.topic, k.id)).host.Inspect(w.place(k.topic, k.id))
		now := tbl.Read(k.topic, k.id)
		w.stamped(now)
		switch {
		case now == nil:
			if n.first.acked && !w.mayBeForgotten(w.place(k.topic, k.id), n.since, len(n.first.over) > 0 || n.cancels > 0 || k.topic == briefTopic) {
				w.violate("I1", "timer %s was acknowledged and is gone", k.id)
			}
		case now.State == timer.Done:
			if len(n.first.over) == 0 {
				w.violate("I1", "timer %s is done, but was never delivered", k.id)
			}
		case now.State == timer.Cancelled:
			if n.cancels == 0 {
				w.violate("I1", "timer %s is cancelled, and nobody asked for it", k.id)
			}
		case now.State == timer.Dead:
			dead(n, k, now)
		default:
			w.violate("I14", "timer %s is in state %d with %d attempts, due at %d; all should be over", k.id, now.State, now.Attempts, now.DueMs)
		}
	}
}

func (f *featureChecker) mayStart(*call, *table.Table) {}

// noneDead is for topics in which no timer can die.
func noneDead(w *World) func(*featureID, idKey, *timer.Timer) {
	return func(_ *featureID, k idKey, now *timer.Timer) {
		w.violate("I1", "timer %s is dead (reason %d) after %d attempts", k.id, now.Reason, now.Attempts)
	}
}

// spreadChecker: the first attempt starts no sooner than the timer is due and its share of the window, which its id decides whoever leads, has
// passed; and, when all is well, not much later than the window.
type spreadChecker struct{ featureChecker }

// punctual is how much later than they should things may happen when all is well.
const punctual = 3 * time.Second

func (b *spreadChecker) mayStart(c *call, tbl *table.Table) {
	w, j := c.node.w, &c.delivery.Job
	if j.Attempts != 1 {
		return
	}
	w.counts.Spread++
	now, share := c.node.clock.WallMs(), int64(tbl.IDHash(j.Handle)%uint64(w.featureClients.spreadMs))
	if now < j.DueMs+share {
		w.violate("spread", "node %d starts %s %d ms after it is due, its share of the window is %d ms", c.node.id, j.ID, now-j.DueMs, share)
	}
	if late := msOf(now - j.DueMs - w.featureClients.spreadMs); w.mended(j.DueMs) && late > punctual {
		w.violate("spread", "node %d starts %s %s after the end of its window, though all is well", c.node.id, j.ID, late)
	}
}

func (b *spreadChecker) checkEnd(w *World) { b.ends(w, noneDead(w)) }

// repaired says of a moment that all was well then, for as long as a cluster may take to recover.
func (w *World) mended(ms int64) bool {
	return w.calm && w.healed > 0 && ms >= epochMs+(max(w.healed+w.believed, w.checker.misled)+healLimit).Milliseconds()
}

// briefChecker: no attempt starts later than the expiry allows, unless the timer was redriven; what expires is a dead letter that says so, no
// sooner, and when all is well within a second.
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

// mayHaveExpired says whether a timer that counts as ended then may have expired at that moment by the time of its shard, which was wrong. If it
// was set back since, the end is when that was done.
func (w *World) mayHaveExpired(id timer.ShardID, since time.Duration, endedMs, moment int64) bool {
	until := msOf(endedMs - epochMs)
	for _, b := range w.checker.times.backs(id, since) {
		if b.fromMs >= moment && b.toMs <= endedMs {
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
			w.violate("expiry", "timer %s is dead for reason %d, it can only expire", k.id, now.Reason)
		case now.EndedMs <= moment-sureWithin.Milliseconds() && !w.mayHaveExpired(w.place(k.topic, k.id), n.since, now.EndedMs, moment):
			w.violate("expiry", "timer %s expired %d ms before its time was over", k.id, moment-now.EndedMs)
		case now.EndedMs > moment+1250 && w.mended(moment):
			w.violate("expiry", "timer %s expired %d ms late, though all is well", k.id, now.EndedMs-moment)
		}
	})
}
