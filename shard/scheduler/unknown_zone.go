package scheduler

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// zoneRetry is the interval at which a timer in an unknown zone is looked at again. Zones do not
// change while a process lives, so this only finds timers that were changed or cancelled.
const zoneRetry = 5 * time.Second

// zoneBudget bounds how many of them one turn looks at.
const zoneBudget = 512

// unknownZones are the due timers in time zones that this node's release lacks. Their next
// occurrence cannot be computed, so they are not called here: they wait for a node that knows the
// zone, or for a client's change.
type unknownZones struct {
	list   []zoneless // by retry
	timers int        // in it, that stand
	topics map[timer.TopicID]*zonelessTopic

	*leader
}

func newUnknownZones(s *Scheduler) unknownZones {
	return unknownZones{topics: map[timer.TopicID]*zonelessTopic{}, leader: &s.leader}
}

type zoneless struct {
	entry
	topic timer.TopicID
	retry time.Duration // monotonic
}

// zonelessTopic counts a topic's timers in unknownZones.
type zonelessTopic struct {
	table.QueuePlace
	zones    *unknownZones
	dueOrder table.DueOrder // its timers that stand
	entries  int            // in the list
}

// Count implements table.Queue.
func (t *zonelessTopic) Count(by int) { t.zones.timers += by }

func (t *zonelessTopic) DueOrder() *table.DueOrder { return &t.dueOrder }

// await sets a due timer aside.
func (u *unknownZones) await(e entry, topic timer.TopicID) {
	t := u.topics[topic]
	if t == nil {
		t = &zonelessTopic{zones: u}
		u.topics[topic] = t
	}
	name, _ := u.table.Zone(e.handle)
	u.env.ZoneUnknown(name)
	if !u.table.WaitIn(e.handle, t, e.dueMs) {
		return // it is in the list: all timers were rearmed
	}
	t.entries++
	u.list = append(u.list, zoneless{e, topic, u.now.Mono + zoneRetry})
}

// retry drops the timers that were changed or have ended. A changed one is in the wheel again.
func (u *unknownZones) retry() {
	for budget := zoneBudget; len(u.list) > 0 && u.list[0].retry <= u.now.Mono; budget-- {
		if budget == 0 {
			u.env.WakeNext()
			return
		}
		z := u.list[0]
		u.list = u.list[1:]
		if d := u.table.Due(z.handle); u.table.Live(z.handle, z.seq) && d.Rev == z.rev && d.State == timer.Scheduled {
			z.retry = u.now.Mono + zoneRetry
			u.list = append(u.list, z)
			continue
		}
		if t := u.topics[z.topic]; t.entries > 1 {
			t.entries--
		} else {
			delete(u.topics, z.topic)
		}
	}
}

// overdue calls f for each topic with timers in unknown zones.
func (u *unknownZones) overdue(nowMs int64, f func(topic timer.TopicID, timers, oldestMs int64)) {
	for id, t := range u.topics {
		if n, oldest := t.dueOrder.Overdue(nowMs); n > 0 {
			f(id, n, oldest)
		}
	}
}

// InUnknownZones returns how many due timers wait because this node lacks their time zone.
func (v *view) InUnknownZones() int { return v.zones.timers }
