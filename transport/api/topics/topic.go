// Package topics answers for topics: their policies, pauses, secrets and signing keys.
package topics

import (
	"errors"
	"fmt"
	"time"

	"carillon/timer"
	"carillon/transport/api/web"
)

// Read answers with a topic and the counts of its timers.
func Read(rq *web.Request) *web.Problem {
	t, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	counts, err := rq.Core.Timers.Counts(rq.Base, []timer.TopicID{t.ID})
	if err != nil {
		return web.Fault(err)
	}
	setTopicETag(rq, t)
	return rq.JSON(200, appendTopic(rq.Out(), t, &counts[0]))
}

// Put sets the whole policy of a topic, which it makes if need be.
func Put(rq *web.Request) *web.Problem {
	if _, p := rq.MediaType(false); p != nil {
		return p
	}
	change, p := topicChange(rq)
	if p != nil {
		return p
	}
	var stored *timer.Policy
	old, err := rq.Core.Topics.Latest(rq.Base, rq.Topic)
	switch {
	case err == nil:
		stored = &old.Policy
	case !errors.Is(err, timer.ErrNoTopic):
		return web.Fault(err)
	}
	r := rq.ReaderOf(rq.Body)
	policy := readPolicy(r, stored)
	if r.Err() != nil {
		return r.Problem()
	}
	if p := rq.CheckURL(policy.Callback.URL); p != nil {
		return p
	}
	if p := findOutcomeTopics(rq, policy, nil); p != nil {
		return p
	}
	var former int64
	change.FormerIDs = &former
	t, created, err := rq.Core.Topics.Put(rq.Base, rq.Topic, policy, change)
	switch {
	case err != nil:
		return topicFault(rq, err, change)
	case change.DryRun && created:
		return wouldChange(rq, nil, t, 0)
	case change.DryRun:
		return wouldChange(rq, old, t, former)
	case created:
		return changedTopic(rq, 201, t, former)
	}
	return changedTopic(rq, 200, t, former)
}

// patchTries bounds how often a patch is applied again because the topic has changed meanwhile.
const patchTries = 8

// Patch changes the fields that are given, and nothing else of the policy.
func Patch(rq *web.Request) *web.Problem {
	if _, p := rq.MediaType(false); p != nil {
		return p
	}
	change, p := topicChange(rq)
	if p != nil {
		return p
	}
	return retried(rq, change, func(t *timer.Topic) (*web.Problem, error) {
		r := rq.ReaderOf(rq.Body)
		policy := readPatch(r, &t.Policy)
		if r.Err() != nil {
			return r.Problem(), nil
		}
		if policy.Callback.URL != t.Policy.Callback.URL {
			if p := rq.CheckURL(policy.Callback.URL); p != nil {
				return p, nil
			}
		}
		if p := findOutcomeTopics(rq, policy, &t.Policy); p != nil {
			return p, nil
		}
		var former int64
		as := change
		as.FormerIDs = &former
		if change.Version == 0 {
			as.ID, as.Version = t.ID, t.Version
		}
		next, _, err := rq.Core.Topics.Put(rq.Base, rq.Topic, policy, as)
		switch {
		case err != nil:
			return nil, err
		case change.DryRun:
			return wouldChange(rq, t, next, former), nil
		}
		return changedTopic(rq, 200, next, former), nil
	})
}

// retried makes a change of the topic as it stands, and once more where others have changed it
// meanwhile.
func retried(rq *web.Request, change timer.TopicChange, do func(t *timer.Topic) (answer *web.Problem, err error)) *web.Problem {
	for try := 0; ; try++ {
		t, err := rq.Core.Topics.Latest(rq.Base, rq.Topic)
		if err == nil {
			var answer *web.Problem
			if answer, err = do(t); err == nil {
				return answer
			}
		}
		if !errors.Is(err, timer.ErrTopicVersion) || change.Version != 0 || try == patchTries-1 || !rq.Sleep(2*time.Millisecond<<try) {
			return topicFault(rq, err, change)
		}
	}
}

// topicFault is engineFault for a change of a topic: where the client named no version, others have
// changed it again and again.
func topicFault(rq *web.Request, err error, change timer.TopicChange) *web.Problem {
	switch {
	case errors.Is(err, timer.ErrTopicVersion) && change.New:
		return presentVersion(rq, web.Fail(412, "version_mismatch", "the topic is there already"))
	case errors.Is(err, timer.ErrTopicVersion) && change.Version == 0:
		return web.Fail(503, "overloaded", "the topic keeps changing; nothing was changed")
	}
	return presentVersion(rq, web.Fault(err))
}

// presentVersion gives a 412 the ETag of the topic as it is now.
func presentVersion(rq *web.Request, p *web.Problem) *web.Problem {
	if p.Status == 412 {
		if t, err := rq.Core.Topics.Latest(rq.Base, rq.Topic); err == nil {
			p.ETag = web.AppendTopicETag(nil, t)
		}
	}
	return p
}

// topicChange is the version that a change of the topic is for, whether it is forced, and whether
// it is a dry run.
func topicChange(rq *web.Request) (c timer.TopicChange, p *web.Problem) {
	c.ID, c.Version, c.New = rq.TopicID, rq.IfMatch, rq.CreateOnly
	c.Force, c.DryRun = rq.Query.Boolean("force", false), rq.DryRun
	return c, rq.Query.Problem()
}

func setTopicETag(rq *web.Request, t *timer.Topic) {
	rq.Ctx.Response.Header.SetCanonical(web.ETagName, web.AppendTopicETag(nil, t))
}

// Pause and Resume stop and start what a topic's timers do when they are due.
func Pause(rq *web.Request) *web.Problem  { return setPaused(rq, true) }
func Resume(rq *web.Request) *web.Problem { return setPaused(rq, false) }

func setPaused(rq *web.Request, paused bool) *web.Problem {
	t, err := rq.Core.Topics.SetPaused(rq.Base, rq.Topic, paused)
	if err != nil {
		return web.Fault(err)
	}
	return changedTopic(rq, 200, t, 0)
}

// changedTopic answers a change that has been made: counts that cannot be had now are left out
// rather than make it look failed.
func changedTopic(rq *web.Request, status int, t *timer.Topic, formerIDs int64) *web.Problem {
	setTopicETag(rq, t)
	o := web.Object{B: rq.Out()}
	membersAfter(rq, &o, t, formerIDs)
	return rq.JSON(status, o.End())
}

func membersAfter(rq *web.Request, o *web.Object, t *timer.Topic, formerIDs int64) {
	if counts, err := rq.Core.Timers.Counts(rq.Base, []timer.TopicID{t.ID}); err != nil {
		members(o, t, nil)
	} else {
		members(o, t, &counts[0])
		if n := counts[0].NoURL; n > 0 && t.Policy.CallsNobody() {
			o.Integer("without_url", n)
		}
	}
	o.OptInteger("former_ids", formerIDs)
}

func Delete(rq *web.Request) *web.Problem {
	change, p := topicChange(rq)
	if p != nil {
		return p
	}
	n, err := rq.Core.Topics.Delete(rq.Base, rq.Topic, change)
	rq.Count = n
	if err != nil {
		return presentVersion(rq, cutOff(err, n))
	}
	return rq.Value(200, map[string]int{"cancelled": n})
}

// cutOff is the answer of a deletion that failed: with what it has done before, and what is to
// come.
func cutOff(err error, cancelled int) *web.Problem {
	deleting, begun := errors.AsType[timer.DeletingError](err)
	if begun {
		err = deleting.Cause
	}
	p := web.Fault(err)
	if cancelled > 0 {
		p.Detail = fmt.Sprintf("%s; %d timers have been cancelled so far", p.Detail, cancelled)
	}
	if begun {
		p.Detail += "; the topic is closed, and its deletion goes on by itself"
	}
	return p
}

func appendTopic(b []byte, t *timer.Topic, counts *timer.Counts) []byte {
	o := web.Object{B: b}
	members(&o, t, counts)
	return o.End()
}

func members(o *web.Object, t *timer.Topic, counts *timer.Counts) {
	o.Text("topic", t.Name)
	o.Name("policy")
	o.B = AppendPolicy(o.B, &t.Policy)
	o.Boolean("paused", t.Paused)
	if counts != nil {
		o.Nest("counts", func(o *web.Object) {
			o.Integer("scheduled", counts.Scheduled)
			o.Integer("ready", counts.Ready)
			o.Integer("leased", counts.Leased)
			o.Integer("done", counts.Done)
			o.Integer("dead", counts.Dead)
			if counts.Waiting != (timer.Waiting{}) {
				o.Nest("waiting", func(o *web.Object) {
					for _, cause := range timer.WaitCauses() {
						o.OptInteger(cause.String(), counts.Waiting[cause])
					}
				})
			}
		})
		o.Integer("oldest_overdue_ms", counts.OldestOverdueMs)
	}
	o.Boolean("auto_created", t.AutoCreated)
	if t.ID == 0 { // of a dry run: it is not there
		return
	}
	o.Name("version")
	o.B = web.AppendTopicETag(o.B, t)
}
