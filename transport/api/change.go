package api

import (
	"errors"
	"time"

	"carillon/internal/secret"
	"carillon/timer"
)

// Bounds of trying again.
const (
	topicTries  = 8 // waiting 2, 4, 8 … ms: half a second in all
	redactTries = 5 // reads of a timer that keeps changing

	lowDiskRetry = 30 // seconds: room does not come by itself within a moment
)

func noTopic() *problem { return fail(404, unknownTopic, "there is no such topic") }

// engineFault is the problem that an engine's error is to the client.
func engineFault(err error) *problem {
	if leased, ok := errors.AsType[timer.LeasedError](err); ok {
		return failf(409, "in_flight", "delivery: cannot change while timers are leased, and %d are; pause the topic and wait for them to end", leased.Leased)
	}
	if used, ok := errors.AsType[timer.InUseError](err); ok {
		return failf(409, "in_use", "%s; nothing was changed. PATCH changes the given fields only; ?force=true does it nevertheless", used.Error())
	}
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return noTopic()
	case errors.Is(err, timer.ErrNotEmpty):
		return fail(409, "not_empty", "the topic has timers or dead letters; ?force=true cancels and drops them")
	case errors.Is(err, timer.ErrTopicVersion):
		return fail(412, "version_mismatch", "the topic has changed since: it is not at that version")
	case errors.Is(err, timer.ErrTooManyTopics):
		return fail(429, "quota", err.Error())
	case errors.Is(err, timer.ErrFeatureLevel):
		return fail(409, "feature_level", err.Error())
	case errors.Is(err, timer.ErrNoLeader):
		// The new leader is a matter between nodes.
		return fail(503, "no_leader", timer.ErrNoLeader.Error())
	case errors.Is(err, timer.ErrOverloaded), errors.Is(err, timer.ErrMemory):
		return fail(503, "overloaded", err.Error())
	case errors.Is(err, timer.ErrLowDisk):
		p := fail(503, "low_disk", err.Error()+"; cancels and reads go on")
		p.retryAfter = lowDiskRetry
		return p
	case errors.Is(err, timer.ErrUnknown), errors.Is(err, timer.ErrRecovering), errors.Is(err, timer.ErrHistory):
		return fail(503, unavailable, err.Error())
	case errors.Is(err, secret.ErrNoKeys):
		return fail(503, unavailable, err.Error())
	case errors.Is(err, timer.ErrStopped):
		return fail(503, unavailable, "the node is stopping; the change may or may not have taken effect")
	}
	p := fail(503, unavailable, "no answer from the shard; the change may or may not have taken effect")
	p.cause = err
	return p
}

// findTopic looks the topic up, and makes it when create is set and it is not there.
func (rq *request) findTopic(create bool) (*timer.Topic, *problem) {
	if t, ok := rq.core.Topics.Here(rq.topic); ok {
		return t, nil
	}
	if create && !rq.s.cfg.KnownTopicsOnly {
		if rq.dryRun {
			return rq.topicToBe()
		}
		return rq.makeTopic()
	}
	return rq.lateTopic(noTopic())
}

// topicFor is findTopic for an operation. An add or a put that a new topic would refuse makes none.
func (rq *request) topicFor(in *timerRequest, v verb) (*timer.Topic, *problem) {
	if t, ok := rq.core.Topics.Here(rq.topic); ok {
		return t, nil
	}
	if p := rq.refusedByNew(in, v); p != nil {
		return rq.lateTopic(p) // others may have made it, with another policy
	}
	return rq.findTopic(v == vAdd || v == vPut)
}

// refusedByNew is why the topic that an add or a put would make would refuse it; nil also where it
// may make none.
func (rq *request) refusedByNew(in *timerRequest, v verb) *problem {
	if v != vAdd && v != vPut || rq.dryRun || rq.s.cfg.KnownTopicsOnly || rq.who != nil && !rq.who.may(scopeTopics) {
		return nil
	}
	if p := in.onto(rq.newTopic(), v); p != nil {
		return p
	}
	if _, p := unredact(in.spec.Callback.Headers, &timer.Callback{}, ""); p != nil {
		return p
	}
	res := timer.Preview(&in.cmd, nil, rq.s.nowMs())
	return refusal(res.Code)
}

// lateTopic finds a topic that this node's copy lacks. unknown is the answer where there is none.
func (rq *request) lateTopic(unknown *problem) (*timer.Topic, *problem) {
	t, err := rq.core.Topics.Named(rq.s.base, rq.topic)
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return nil, unknown
	case err != nil:
		return nil, engineFault(err)
	}
	return t, nil
}

// onTopic runs f on the topic of an operation, again as long as it finds the topic closing or of a
// former life, within bounds.
func (rq *request) onTopic(in *timerRequest, v verb, f func(*timer.Topic) (stale bool, p *problem)) *problem {
	for try := range topicTries {
		t, p := rq.topicFor(in, v)
		if p != nil {
			return p
		}
		if !t.Closing || v != vAdd && v != vPut {
			stale, p := f(t)
			if !stale {
				return p
			}
		}
		if !rq.s.sleep(2 * time.Millisecond << try) {
			break
		}
	}
	return fail(503, unavailable, "the topic is being deleted; nothing was changed")
}

// prepare fills in the command of a checked input: the part that does not depend on the topic.
func (rq *request) prepare(in *timerRequest, v verb, nowMs int64) *problem {
	due := int64(0)
	if in.when.delay || in.hasCron() {
		if p := rq.s.reckons(); p != nil {
			return p
		}
	}
	if in.given&timeFields != 0 {
		due = in.when.due(nowMs)
	}
	due, p := in.firstOf(due, nowMs)
	if p != nil {
		return p
	}
	if due > addMs(nowMs, rq.s.cfg.Limits.Horizon.Milliseconds()) {
		return failf(422, "beyond_horizon", "the time is more than %d years ahead", int(rq.s.cfg.Limits.Horizon/(365*day)))
	}
	in.spec.DueMs = due
	if p := rq.s.checkURL(in.spec.Callback.URL); p != nil {
		return p
	}
	in.cmd = timer.Command{Kind: verbs[v].kind, IfMatch: in.ifMatch, CreateOnly: in.cmd.CreateOnly, Into: in.created}
	switch v {
	case vAdd:
		in.nameIt(rq.s, nowMs)
		in.cmd.Once = in.repeated
		fallthrough
	case vPut:
		in.cmd.Absolute = in.absolute() || in.repeated
		in.cmd.NotLate = in.absolute() && in.rejectLate
		in.cmd.Tag = uint32(rq.s.cfg.Rand())
		var err error
		if in.cmd.Content, rq.scratch, err = in.content(rq.scratch, rq.s.cfg.Digest); err != nil {
			return engineFault(err)
		}
		in.spec.Trace = rq.trace
		in.cmd.Spec = &in.spec
	case vPatch:
		in.patch = in.asPatch()
		in.cmd.Patch = in.patch
	}
	in.plain = in.id
	if v == vAdd && anyRedacted(in.spec.Callback.Headers) {
		return badf(badHeader, "callback.headers: %s stands for a stored value, and a new timer has none", redacted)
	}
	return nil
}

// nameIt gives an add without an id one: with its key, or in the shard of the moment.
func (in *timerRequest) nameIt(s *Server, nowMs int64) {
	if in.id != "" {
		return
	}
	in.unnamed = true
	hi, lo := s.cfg.Rand(), s.cfg.Rand()
	if in.key != "" {
		in.id = timer.KeyedID(in.key, hi, lo)
	} else {
		in.id = timer.NewID(s.shardAt(nowMs), hi, lo)
	}
}

// address makes the id as it was given the one that the timer has in the topic.
func (in *timerRequest) address(t *timer.Topic) {
	if in.id, in.keyed = in.plain, false; !in.asGiven {
		in.id, in.keyed = t.Policy.FullID(in.plain)
	}
	in.cmd.ID = in.id
}

// again reports whether the timer is to be looked for once more, by the id as it was given: it may
// be of before the topic had a key.
func (in *timerRequest) again(code timer.Code) bool {
	in.asGiven = code == timer.NotFound && in.keyed
	return in.asGiven
}

// shardAt is where adds without a name go at a moment: adds that arrive within the same two
// milliseconds go to one shard, where they share a raft entry, and a batch is one entry instead of
// many. The next shard is as good as random, and another on each node, so that over any longer time
// all are used alike.
func (s *Server) shardAt(nowMs int64) timer.ShardID {
	x := (uint64(nowMs)/2 + s.salt) * 0x9E3779B97F4A7C15
	return timer.ShardID(1 + (x>>32)%uint64(s.cfg.Engine.Shards()))
}

// asPatch turns the named fields into the flags of a patch; a field given as null is set to its
// zero value.
func (in *timerRequest) asPatch() *timer.Patch {
	g := in.given | in.null
	has := func(f field) bool { return g&f != 0 }
	return &timer.Patch{
		Spec: in.spec, Due: has(timeFields) || in.hasCron(), Payload: has(fPayload | fPayload64), ContentType: has(fContentType),
		Priority: has(fPriority), Labels: has(fLabels), Expiry: has(fExpires), Repeat: has(fRepeat),
		URL: has(fURL), Method: has(fMethod), Headers: has(fHeaders), Timeout: has(fTimeout),
		MaxAttempts: has(fMaxAttempts), MinBackoff: has(fMinBackoff), MaxBackoff: has(fMaxBackoff),
		Multiplier: has(fMultiplier), Jitter: has(fJitter),
	}
}

// onto binds a prepared command to the topic as it stands and checks the rules of the topic.
func (in *timerRequest) onto(t *timer.Topic, v verb) *problem {
	in.cmd.Topic = t.ID
	in.address(t)
	if (v == vAdd || v == vPut) && in.given&fIfLate == 0 {
		in.cmd.NotLate = t.Policy.RejectLate && in.absolute()
	}
	if v == vAdd {
		if p := in.mergeBy(t); p != nil {
			return p
		}
		in.nameByContent(t)
	}
	cb := &t.Policy.Callback
	if v == vPatch {
		in.patch.BindTo(cb.URL)
	} else {
		in.spec.Callback.BindTo(cb.URL)
	}
	if t.Policy.Pull && in.given&^in.null&(fCallback|callbackFields) != 0 {
		return fail(422, badPolicy, "callback: the topic is pulled, it calls nobody")
	}
	needsURL := (v == vAdd || v == vPut || v == vPatch && in.null&fURL != 0) && !t.Policy.Pull
	if needsURL && in.spec.Callback.URL == "" && cb.URL == "" {
		return fail(422, "no_callback", "give a callback.url, here or in the topic's policy")
	}
	if r := &in.spec.Retry; v == vAdd || v == vPut {
		low, high := r.MinBackoffMs, r.MaxBackoffMs
		if low == 0 {
			low = t.Policy.MinBackoffMs
		}
		if high == 0 {
			high = t.Policy.MaxBackoffMs
		}
		if low > high && !r.Empty() {
			return bad(badRequest, "retry: min_backoff is longer than max_backoff, the topic's default included")
		}
	}
	return nil
}

// change has one checked input decided.
func (rq *request) change(in *timerRequest, v verb, brief bool) (res timer.Result, t *timer.Topic, p *problem) {
	if p = rq.prepare(in, v, rq.s.nowMs()); p != nil {
		return res, nil, p
	}
	p = rq.onTopic(in, v, func(topic *timer.Topic) (bool, *problem) {
		t = topic
		if p := in.onto(t, v); p != nil {
			return false, p
		}
		var err error
		if rq.maybeMade(in, t, v) {
			if res.Timer, err = rq.madeBefore(in, t); err != nil {
				return false, engineFault(err)
			}
			if res.Timer != nil {
				res.Code = timer.Same
				return false, nil
			}
		}
		if anyRedacted(in.spec.Callback.Headers) {
			var p *problem
			if res, p = rq.changeKeeping(in, t, v, brief); p != nil {
				return false, p
			}
		} else if res, err = rq.decide(in.shard(rq, t), &in.cmd, brief); err != nil {
			return false, engineFault(err)
		}
		return res.Code == timer.TopicClosed || in.again(res.Code), nil
	})
	return res, t, p
}

// changeKeeping does a put or patch whose headers hold REDACTED: the stored values go in their
// place, and the version they were read from guards the change.
func (rq *request) changeKeeping(in *timerRequest, t *timer.Topic, v verb, brief bool) (res timer.Result, p *problem) {
	headers := in.spec.Callback.Headers
	for range redactTries {
		cur, err := rq.core.Timers.Timer(rq.s.base, in.shard(rq, t), t.ID, in.id)
		if err != nil {
			return res, engineFault(err)
		}
		if cur == nil {
			if v == vPatch {
				return timer.Result{Code: timer.NotFound}, nil
			}
			cur = &timer.Timer{}
		}
		// Fresh copies: an earlier try's command may still be on its way.
		cmd, spec := in.cmd, in.spec
		if spec.Callback.Headers, p = unredact(headers, &cur.Callback, in.goesTo(t, v, cur)); p != nil {
			return res, p
		}
		if cmd.IfMatch == 0 {
			cmd.IfMatch = cur.Version
		}
		if v == vPatch {
			patch := *in.patch
			patch.Spec = spec
			patch.BindTo(t.Policy.Callback.URL)
			cmd.Patch = &patch
		} else {
			cmd.Spec = &spec
		}
		if res, err = rq.decide(in.shard(rq, t), &cmd, brief); err != nil {
			return res, engineFault(err)
		}
		if res.Code != timer.VersionMismatch || in.cmd.IfMatch != 0 {
			return res, nil
		}
	}
	return res, fail(503, "overloaded", "the timer keeps changing; nothing was changed")
}

// goesTo is the URL that a timer has after a put or patch of its present state.
func (in *timerRequest) goesTo(t *timer.Topic, v verb, cur *timer.Timer) string {
	url := in.spec.Callback.URL
	if v == vPatch && !in.patch.URL {
		url = cur.Callback.URL
	}
	if url == "" {
		url = t.Policy.Callback.URL
	}
	return url
}

// shard is where the input's timer lives, as the topic stands.
func (in *timerRequest) shard(rq *request, t *timer.Topic) timer.ShardID {
	return timer.ShardOf(t, in.id, rq.s.cfg.Engine.Shards())
}

// refusal is the problem that a result's code stands for, nil when the command took effect.
func refusal(code timer.Code) *problem {
	switch code {
	case timer.Exists:
		return fail(409, "exists", "the id is in use with other content")
	case timer.InFlight:
		return fail(409, "in_flight", "a call of this timer is running; try again when it has ended")
	case timer.OverFired:
		return &problem{status: 410, code: "over", detail: "the timer has been delivered", outcome: "already_fired"}
	case timer.OverDead:
		return &problem{status: 410, code: "over", detail: "the timer is a dead letter", outcome: "dead"}
	case timer.OverCancelled:
		return &problem{status: 410, code: "over", detail: "the timer has been cancelled", outcome: "cancelled"}
	case timer.TooLate:
		return fail(410, "over", "the time is more than a minute past, and if_late is reject; nothing was changed")
	case timer.NotFound:
		return fail(404, unknownTimer, "there is no such timer")
	case timer.VersionMismatch:
		return fail(412, "version_mismatch", "the timer is not at that version, or (with If-None-Match) the id is in use")
	case timer.TopicClosed:
		return fail(503, unavailable, "the topic is being deleted; nothing was changed")
	}
	return nil
}

// refusalOf is refusal, with the timer that is in the way.
func refusalOf(r *timer.Result) *problem {
	p := refusal(r.Code)
	if p != nil && (p.status == 409 || p.status == 412) && r.Timer != nil && !r.Timer.Short {
		p.existing = r.Timer
	}
	return p
}

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

// outcome names the result of a cancel.
func outcome(code timer.Code) string {
	if code == timer.CancelInFlight {
		return "in_flight"
	}
	return "prevented"
}
