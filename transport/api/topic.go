package api

import (
	"errors"
	"time"

	"carillon/timer"
)

func (rq *request) readTopic() *problem {
	t, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	counts, err := rq.core.Timers.Counts(rq.s.base, []timer.TopicID{t.ID})
	if err != nil {
		return engineFault(err)
	}
	rq.setTopicETag(t)
	rq.json(200, appendTopic(rq.out(), t, &counts[0]))
	return nil
}

func (rq *request) putTopic() *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	change, p := rq.topicChange()
	if p != nil {
		return p
	}
	var stored *timer.Policy
	switch t, err := rq.core.Topics.Latest(rq.s.base, rq.topic); {
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
	var former int64
	change.FormerIDs = &former
	t, created, err := rq.core.Topics.Put(rq.s.base, rq.topic, policy, change)
	if err != nil {
		return topicFault(err, change)
	}
	status := 200
	if created {
		status = 201
	}
	rq.changedTopic(status, t, former)
	return nil
}

// patchTries bounds how often a patch is applied again because the topic has changed meanwhile.
const patchTries = 8

// patchTopic changes the fields that are given, and nothing else of the policy.
func (rq *request) patchTopic() *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	change, p := rq.topicChange()
	if p != nil {
		return p
	}
	var err error
	for try := range patchTries {
		var t *timer.Topic
		if t, err = rq.core.Topics.Latest(rq.s.base, rq.topic); err != nil {
			return engineFault(err)
		}
		r := rq.reader()
		policy := r.policyPatch(&t.Policy)
		if r.Err() != nil {
			return r.problem()
		}
		if policy.Callback.URL != t.Policy.Callback.URL {
			if p := rq.s.checkURL(policy.Callback.URL); p != nil {
				return p
			}
		}
		var former int64
		as := change
		as.FormerIDs = &former
		if change.Version == 0 {
			as.ID, as.Version = t.ID, t.Version
		}
		t, _, err = rq.core.Topics.Put(rq.s.base, rq.topic, policy, as)
		if err == nil {
			rq.changedTopic(200, t, former)
			return nil
		}
		if !errors.Is(err, timer.ErrTopicVersion) || change.Version != 0 || !rq.s.sleep(2*time.Millisecond<<try) {
			break
		}
	}
	return topicFault(err, change)
}

// topicFault is engineFault for a change of a topic: where the client named no version, others have
// changed it again and again.
func topicFault(err error, change timer.TopicChange) *problem {
	if errors.Is(err, timer.ErrTopicVersion) && change.Version == 0 {
		return fail(503, "overloaded", "the topic keeps changing; nothing was changed")
	}
	return engineFault(err)
}

// topicChange is the version that a change of the topic is for, and whether it is forced.
func (rq *request) topicChange() (c timer.TopicChange, p *problem) {
	c.ID, c.Version = rq.topicID, rq.ifMatch
	c.Force, p = rq.query.boolean("force", false)
	return c, p
}

func (rq *request) setTopicETag(t *timer.Topic) {
	rq.ctx.Response.Header.SetCanonical(etagName, appendTopicETag(nil, t))
}

func (rq *request) pauseTopic() *problem  { return rq.setPaused(true) }
func (rq *request) resumeTopic() *problem { return rq.setPaused(false) }

func (rq *request) setPaused(paused bool) *problem {
	t, err := rq.core.Topics.SetPaused(rq.s.base, rq.topic, paused)
	if err != nil {
		return engineFault(err)
	}
	rq.changedTopic(200, t, 0)
	return nil
}

// changedTopic answers a change that has been made: counts that cannot be had now are left out
// rather than make it look failed.
func (rq *request) changedTopic(status int, t *timer.Topic, formerIDs int64) {
	rq.setTopicETag(t)
	o := object{b: rq.out()}
	if counts, err := rq.core.Timers.Counts(rq.s.base, []timer.TopicID{t.ID}); err != nil {
		o.topic(t, nil)
	} else {
		o.topic(t, &counts[0])
		if n := counts[0].NoURL; n > 0 && t.Policy.CallsNobody() {
			o.integer("without_url", n)
		}
	}
	if formerIDs > 0 {
		o.integer("former_ids", formerIDs)
	}
	rq.json(status, o.end())
}

func (rq *request) deleteTopic() *problem {
	change, p := rq.topicChange()
	if p != nil {
		return p
	}
	n, err := rq.core.Topics.Delete(rq.s.base, rq.topic, change)
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
	o.topic(t, counts)
	return o.end()
}

func (o *object) topic(t *timer.Topic, counts *timer.Counts) {
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
		if counts.Waiting != (timer.Waiting{}) {
			c.name("waiting")
			waiting := object{b: c.b}
			for _, cause := range timer.WaitCauses() {
				if n := counts.Waiting[cause]; n > 0 {
					waiting.integer(cause.String(), n)
				}
			}
			c.b = waiting.end()
		}
		o.b = c.end()
		o.integer("oldest_overdue_ms", counts.OldestOverdueMs)
	}
	o.boolean("auto_created", t.AutoCreated)
	o.name("version")
	o.b = appendTopicETag(o.b, t)
}
