package timers

import (
	"cmp"
	"fmt"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// redactTries bounds how often a timer is read that keeps changing.
const redactTries = 5

// prepare fills in the command of a checked input: the part that does not depend on the topic.
func prepare(rq *web.Request, in *timerRequest, v verb, nowMs int64) *web.Problem {
	due := int64(0)
	if in.when.Delay || spec.HasCron(&in.spec) {
		if p := rq.KnowsNow(); p != nil {
			return p
		}
	}
	if in.given&spec.TimeFields != 0 {
		due = in.when.Due(nowMs)
	}
	due, p := in.firstOf(due, nowMs)
	if p != nil {
		return p
	}
	if due > web.AddMs(nowMs, rq.Limits.Horizon.Milliseconds()) {
		return rq.Limits.TooFar()
	}
	in.spec.DueMs = due
	if p := rq.CheckURL(in.spec.Callback.URL); p != nil {
		return p
	}
	if p := in.findOutcomeTopics(rq); p != nil {
		return p
	}
	in.cmd = timer.Command{Kind: verbs[v].kind, IfMatch: in.ifMatch, CreateOnly: in.cmd.CreateOnly, Into: in.created}
	switch v {
	case vAdd:
		in.assignID(rq.Node, nowMs)
		in.cmd.Once = in.repeated
		fallthrough
	case vPut:
		in.cmd.Absolute = in.absolute() || in.repeated
		in.cmd.NotLate = in.absolute() && in.rejectLate
		in.cmd.Tag = uint32(rq.Rand())
		var err error
		if in.cmd.Content, rq.Scratch, err = in.content(rq.Scratch, rq.Digest); err != nil {
			return web.Fault(err)
		}
		in.spec.Trace = rq.Trace
		in.cmd.Spec = &in.spec
	case vPatch:
		in.patch = spec.PatchOf(in.spec, in.given|in.null)
		in.cmd.Patch = in.patch
	}
	in.plain = in.id
	if v == vAdd && spec.AnyRedacted(in.spec.Callback.Headers) {
		return web.Badf(web.BadHeader, "callback.headers: %s stands for a stored value, and a new timer has none", spec.Redacted)
	}
	return nil
}

func (tr *timerRequest) findOutcomeTopics(rq *web.Request) *web.Problem {
	for i, o := range [...]*timer.OutcomeTopic{tr.spec.OnDone, tr.spec.OnDead} {
		if o == nil || o.Name == "" {
			continue
		}
		t, p := rq.OutcomeTopic([...]string{"on_done", "on_dead"}[i], o.Name)
		if p != nil {
			return p
		}
		o.ID = t.ID
	}
	return nil
}

// assignID gives an add without an id one: with its key, or in the shard of the moment.
func (tr *timerRequest) assignID(n *web.Node, nowMs int64) {
	if tr.id != "" {
		return
	}
	tr.unnamed = true
	hi, lo := n.Rand(), n.Rand()
	if tr.key != "" {
		tr.id = timer.KeyedID(tr.key, hi, lo)
	} else {
		shards := n.Engine.Shards()
		tr.id = timer.SpreadID(shardAt(n, shards, nowMs), shards, hi, lo)
	}
}

// address makes the id as it was given the one that the timer has in the topic.
func (tr *timerRequest) address(t *timer.Topic) {
	if tr.id, tr.keyed = tr.plain, false; !tr.asGiven {
		tr.id, tr.keyed = t.Policy.FullID(tr.plain)
	}
	tr.cmd.ID = tr.id
}

// retryAsGiven reports whether the timer is to be looked for once more, by the id as it was given:
// it may be of before the topic had a key.
func (tr *timerRequest) retryAsGiven(code timer.Code) bool {
	tr.asGiven = code == timer.NotFound && tr.keyed
	return tr.asGiven
}

// shardAt is where adds without a name go at a moment: adds that arrive within the same two
// milliseconds go to one shard, where they share a raft entry, and a batch is one entry instead of
// many. The next shard is as good as random, and another on each node, so that over any longer time
// all are used alike.
func shardAt(n *web.Node, shards int, nowMs int64) timer.ShardID {
	x := (uint64(nowMs)/2 + n.Salt) * 0x9E3779B97F4A7C15
	return timer.ShardID(1 + (x>>32)%uint64(shards))
}

// topicFor is web.Request.FindTopic for an operation. An add or a put that a new topic would refuse
// makes none.
func topicFor(rq *web.Request, in *timerRequest, v verb) (*timer.Topic, *web.Problem) {
	if t, ok := rq.Core.Topics.Here(rq.Topic); ok && !t.Closing {
		return t, nil
	}
	if p := refusedByNew(rq, in, v); p != nil {
		return rq.LateTopic(p) // others may have made it, with another policy
	}
	return rq.FindTopic(v == vAdd || v == vPut)
}

// refusedByNew is why the topic that an add or a put would make would refuse it; nil also where it
// may make none.
func refusedByNew(rq *web.Request, in *timerRequest, v verb) *web.Problem {
	if v != vAdd && v != vPut || rq.DryRun || rq.KnownTopicsOnly || rq.Who != nil && !rq.Who.May(web.ScopeTopics) {
		return nil
	}
	if p := in.bindTopic(rq.NewTopic(), v); p != nil {
		return p
	}
	if _, p := spec.Unredact(in.spec.Callback.Headers, &timer.Callback{}, ""); p != nil {
		return p
	}
	return refusal(timer.Preview(&in.cmd, nil, rq.NowMs()).Code)
}

// bindTopic binds a prepared command to the topic as it stands and checks the rules of the topic.
func (tr *timerRequest) bindTopic(t *timer.Topic, v verb) *web.Problem {
	tr.cmd.Topic = t.ID
	tr.address(t)
	if (v == vAdd || v == vPut) && tr.given&spec.FIfLate == 0 {
		tr.cmd.NotLate = t.Policy.RejectLate && tr.absolute()
	}
	if v == vAdd {
		if p := tr.mergeBy(t); p != nil {
			return p
		}
		tr.nameByContent(t)
	}
	cb := &t.Policy.Callback
	if v == vPatch {
		tr.patch.BindTo(cb.URL)
	} else {
		tr.spec.Callback.BindTo(cb.URL)
	}
	if t.Policy.Pull && tr.given&^tr.null&(spec.FCallback|spec.CallbackFields) != 0 {
		return web.Fail(422, web.BadPolicy, "callback: the topic is pulled, it calls nobody")
	}
	if tr.given&^tr.null&spec.FWeight != 0 && t.Policy.PerKey == nil {
		return web.Fail(422, web.BadPolicy, "weight: the topic has no per_key")
	}
	if t.Policy.Batch != nil && !tr.spec.Callback.SendsBody() {
		return web.Failf(422, web.BadPolicy, "callback.method: %s sends no body, and the topic calls many timers at once", tr.spec.Callback.Method)
	}
	needsURL := (v == vAdd || v == vPut || v == vPatch && tr.null&spec.FURL != 0) && !t.Policy.Pull
	if needsURL && tr.spec.Callback.URL == "" && cb.URL == "" {
		return web.Fail(422, "no_callback", "give a callback.url, here or in the topic's policy")
	}
	if v == vAdd || v == vPut {
		return backoffFault(&tr.spec.Retry, t)
	}
	return nil
}

func backoffFault(r *timer.Retry, t *timer.Topic) *web.Problem {
	if low, high := cmp.Or(r.MinBackoffMs, t.Policy.MinBackoffMs), cmp.Or(r.MaxBackoffMs, t.Policy.MaxBackoffMs); low > high && !r.Empty() {
		return web.Bad(web.BadRequest, "retry: min_backoff is longer than max_backoff, the topic's default included")
	}
	return nil
}

// needsStored reports whether a patch must be held against what stays of the timer: it sets bounds
// of the backoff, of which the other may be the timer's, or a series' end without a time.
func (tr *timerRequest) needsStored(v verb) bool {
	return v == vPatch && (tr.given&(spec.FMinBackoff|spec.FMaxBackoff) != 0 || tr.endsPending())
}

// endsPending reports whether a patch gives the pending occurrence a series with an end.
func (tr *timerRequest) endsPending() bool {
	return tr.spec.Repeat != nil && tr.spec.Repeat.UntilMs != 0 && tr.given&spec.TimeFields == 0
}

// checkStored holds a patch against what stays of the timer. Whether there is such a timer, and it
// can be changed, is for the change to find out.
func (tr *timerRequest) checkStored(rq *web.Request, t *timer.Topic) *web.Problem {
	cur, err := rq.Core.Timers.Timer(rq.Base, tr.shard(rq, t), t.ID, tr.id)
	if err != nil {
		return web.Fault(err)
	}
	if cur == nil || cur.State != timer.Scheduled {
		return nil
	}
	if tr.endsPending() && tr.spec.Repeat.UntilMs < cur.DueMs {
		return beforeFirst()
	}
	if tr.given&(spec.FMinBackoff|spec.FMaxBackoff) == 0 {
		return nil
	}
	next := cur.Retry
	if tr.given&spec.FMinBackoff != 0 {
		next.MinBackoffMs = tr.spec.Retry.MinBackoffMs
	}
	if tr.given&spec.FMaxBackoff != 0 {
		next.MaxBackoffMs = tr.spec.Retry.MaxBackoffMs
	}
	return backoffFault(&next, t)
}

// change has one checked input decided by the shard of its timer, in the topic as it stands. Where
// headers hold REDACTED the version that the stored values were read from guards the change, which
// is tried again when the timer has changed meanwhile.
func change(rq *web.Request, in *timerRequest, v verb, brief bool) (res timer.Result, t *timer.Topic, p *web.Problem) {
	nowMs := rq.NowMs()
	if p = prepare(rq, in, v, nowMs); p != nil {
		return res, nil, p
	}
	p = rq.OnTopic(v == vAdd || v == vPut, func() (*timer.Topic, *web.Problem) { return topicFor(rq, in, v) }, func(topic *timer.Topic) (bool, *web.Problem) {
		t = topic
		if p := in.bindTopic(t, v); p != nil {
			return false, p
		}
		var err error
		if maybeMade(in, t, v, nowMs) {
			if res.Timer, err = madeBefore(rq, in, t); err != nil {
				return false, web.Fault(err)
			}
			if res.Timer != nil {
				res.Code = timer.Same
				return false, nil
			}
		}
		if in.needsStored(v) {
			if p := in.checkStored(rq, t); p != nil {
				return false, p
			}
		}
		redacted := spec.AnyRedacted(in.spec.Callback.Headers)
		for range redactTries {
			cmd := &in.cmd
			if redacted {
				var p *web.Problem
				if cmd, p = withStored(rq, in, t, v); p != nil {
					return false, p
				}
				if cmd == nil {
					res = timer.Result{Code: timer.NotFound}
					return in.retryAsGiven(res.Code), nil
				}
			}
			if res, err = decide(rq, in.shard(rq, t), cmd, brief); err != nil {
				return false, web.Fault(err)
			}
			if !redacted || res.Code != timer.VersionMismatch || in.cmd.IfMatch != 0 {
				return res.Code == timer.TopicClosed || in.retryAsGiven(res.Code), nil
			}
		}
		return false, web.Fail(503, "overloaded", "the timer keeps changing; nothing was changed")
	})
	return res, t, p
}

// decide has one command decided, and names the shard's leader where that is another node. A dry
// run changes nothing.
func decide(rq *web.Request, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	if rq.DryRun {
		return preview(rq, id, cmd)
	}
	res, err := rq.Core.Timers.Do(rq.Base, id, cmd, brief)
	nameLeader(rq, id)
	return res, err
}

// withStored is the command of a put or patch with the values that the timer has now in the place
// of REDACTED; nil where a patch has no timer. It is a copy: the next try begins with the one that
// came.
func withStored(rq *web.Request, in *timerRequest, t *timer.Topic, v verb) (*timer.Command, *web.Problem) {
	cur, err := rq.Core.Timers.Timer(rq.Base, in.shard(rq, t), t.ID, in.id)
	if err != nil {
		return nil, web.Fault(err)
	}
	if cur == nil && v == vPatch {
		return nil, nil
	}
	if cur == nil {
		cur = &timer.Timer{}
	}
	cmd, whole := in.cmd, in.spec
	var p *web.Problem
	if whole.Callback.Headers, p = spec.Unredact(in.spec.Callback.Headers, &cur.Callback, in.effectiveURL(t, v, cur)); p != nil {
		return nil, p
	}
	cmd.IfMatch = cmp.Or(cmd.IfMatch, cur.Version)
	if v == vPatch {
		patch := *in.patch
		patch.Spec = whole
		patch.BindTo(t.Policy.Callback.URL)
		cmd.Patch = &patch
	} else {
		cmd.Spec = &whole
	}
	return &cmd, nil
}

// effectiveURL is the URL that a timer has after a put or patch of its present state.
func (tr *timerRequest) effectiveURL(t *timer.Topic, v verb, cur *timer.Timer) string {
	url := tr.spec.Callback.URL
	if v == vPatch && !tr.patch.URL {
		url = cur.Callback.URL
	}
	return cmp.Or(url, t.Policy.Callback.URL)
}

// shard is where the input's timer lives, as the topic stands.
func (tr *timerRequest) shard(rq *web.Request, t *timer.Topic) timer.ShardID {
	return timer.ShardOf(t, tr.id, rq.Engine.Shards())
}

// refusal is the problem that a result's code stands for, nil when the command took effect.
func refusal(code timer.Code) *web.Problem {
	switch code {
	case timer.Exists:
		return web.Fail(409, "exists", "the id is in use with other content")
	case timer.InUse:
		return web.Fail(409, "in_use", "arrays that the id has collected wait behind this timer, so it cannot repeat")
	case timer.InFlight:
		return web.Fail(409, "in_flight", "an attempt of this timer is running; try again when it has ended")
	case timer.OverFired:
		return &web.Problem{Status: 410, Code: "over", Detail: "the timer has been delivered", Outcome: "already_fired"}
	case timer.OverDead:
		return &web.Problem{Status: 410, Code: "over", Detail: "the timer is a dead letter", Outcome: "dead"}
	case timer.OverCancelled:
		return &web.Problem{Status: 410, Code: "over", Detail: "the timer has been cancelled", Outcome: "cancelled"}
	case timer.TooLate:
		return web.Fail(410, "over", "the time is more than a minute past, and if_late is reject; nothing was changed")
	case timer.NotFound:
		return web.Fail(404, web.UnknownTimer, "there is no such timer")
	case timer.VersionMismatch:
		return web.Fail(412, "version_mismatch", "the timer is not at that version, or there is none of this id; read it again")
	case timer.TopicClosed:
		return web.Fail(503, web.Unavailable, "the topic is being deleted; nothing was changed")
	}
	return nil
}

// refusalOf is refusal of a command, with the timer that is in the way.
func refusalOf(c *timer.Command, r *timer.Result) *web.Problem {
	p := refusal(r.Code)
	if r.Code == timer.Exists && c.Merge == timer.MergeCollect {
		p.Detail = "nothing can be appended to the timer of this id: it, or its successor, repeats, or its payload cannot be an element of an array: it is not JSON, or nests 64 deep"
	}
	if r.Code == timer.VersionMismatch && c.CreateOnly {
		p.Detail = "the id is in use"
	} else if r.Code == timer.VersionMismatch && r.Timer != nil {
		p.Detail = fmt.Sprintf("the timer is not at that version, but at %d; read it again", r.Timer.Version)
	}
	if p != nil && (p.Status == 409 || p.Status == 412) && r.Timer != nil {
		p.Existing = r.Timer
		if p.Status == 412 {
			p.ETag = web.AppendETag(nil, r.Timer.Version)
		}
	}
	return p
}

// unchanged reports whether a command was answered that changed nothing. The audit log has none of
// these: repeating a change costs a client nothing, and would push out what others have changed.
func unchanged(r *timer.Result) bool { return r.Unchanged || r.Code == timer.Same }

// status is the HTTP status of a change that was made.
func status(code timer.Code) int {
	switch code {
	case timer.Created:
		return 201
	case timer.CancelInFlight:
		return 202
	}
	return 200
}

// cancelOutcome names the result of a cancel.
func cancelOutcome(code timer.Code) string {
	if code == timer.CancelInFlight {
		return "in_flight"
	}
	return "prevented"
}

// lateMs is how far past a change is due that was given an instant: more than a minute, which may
// be a mistake of the client's. 0: it is not late, or the change has not taken the instant.
func (tr *timerRequest) lateMs(r *timer.Result, nowMs int64) int64 {
	late := nowMs - tr.spec.DueMs
	ignored := r.Code == timer.Merged && (tr.cmd.Merge == timer.MergeKeep || tr.cmd.Merge == timer.MergeCollect && tr.cmd.MaxWaitMs == 0)
	if late <= timer.LateMs || !tr.absolute() || r.Code == timer.Same || ignored {
		return 0
	}
	return late
}
