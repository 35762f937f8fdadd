package api

import (
	"errors"

	"carillon/timer"
)

func (rq *request) readTopic() *problem {
	t, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	counts, err := rq.s.cfg.Engine.Counts(rq.s.base, t.ID)
	if err != nil {
		return engineFault(err)
	}
	rq.json(200, appendTopic(rq.out(), t, &counts[0]))
	return nil
}

func (rq *request) putTopic() *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	var stored *timer.Policy
	switch t, err := rq.s.cfg.Engine.FindTopic(rq.s.base, rq.topic); {
	case err == nil:
		stored = &t.Policy
	case !errors.Is(err, timer.ErrNoTopic):
		return engineFault(err)
	}
	r := rq.reader()
	policy := r.policy(stored)
	if r.Err() != nil {
		return r.problem()
	}
	if p := rq.s.checkURL(policy.Callback.URL); p != nil {
		return p
	}
	t, created, err := rq.s.cfg.Engine.PutTopic(rq.s.base, rq.topic, policy)
	if leased, ok := errors.AsType[timer.LeasedError](err); ok {
		return failf(409, "in_flight", "delivery: cannot change while timers are leased, and %d are; pause the topic and wait for them to end", leased.Leased)
	}
	if err != nil {
		return engineFault(err)
	}
	status := 200
	if created {
		status = 201
	}
	rq.changedTopic(status, t)
	return nil
}

func (rq *request) pauseTopic() *problem  { return rq.setPaused(true) }
func (rq *request) resumeTopic() *problem { return rq.setPaused(false) }

func (rq *request) setPaused(paused bool) *problem {
	t, err := rq.s.cfg.Engine.SetPaused(rq.s.base, rq.topic, paused)
	if err != nil {
		return engineFault(err)
	}
	rq.changedTopic(200, t)
	return nil
}

// changedTopic answers a change that has been made: counts that cannot be had now are left out
// rather than make it look failed.
func (rq *request) changedTopic(status int, t *timer.Topic) {
	counts, err := rq.s.cfg.Engine.Counts(rq.s.base, t.ID)
	if err != nil {
		rq.json(status, appendTopic(rq.out(), t, nil))
		return
	}
	rq.json(status, appendTopic(rq.out(), t, &counts[0]))
}

func (rq *request) deleteTopic() *problem {
	force, p := rq.query.boolean("force", false)
	if p != nil {
		return p
	}
	n, err := rq.s.cfg.Engine.DeleteTopic(rq.s.base, rq.topic, force)
	if err != nil {
		return engineFault(err)
	}
	o := object{b: rq.out()}
	o.integer("cancelled", int64(n))
	rq.json(200, o.end())
	return nil
}

func appendTopic(b []byte, t *timer.Topic, counts *timer.Counts) []byte {
	o := object{b: b}
	o.str("topic", t.Name)
	o.name("policy")
	o.b = appendPolicy(o.b, &t.Policy)
	o.boolean("paused", t.Paused)
	if counts != nil {
		o.name("counts")
		c := object{b: o.b}
		c.integer("scheduled", counts.Scheduled)
		c.integer("ready", counts.Ready)
		c.integer("leased", counts.Leased)
		c.integer("done", counts.Done)
		c.integer("dead", counts.Dead)
		o.b = c.end()
		o.integer("oldest_overdue_ms", counts.OldestOverdueMs)
	}
	o.boolean("auto_created", t.AutoCreated)
	return o.end()
}
