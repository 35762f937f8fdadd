package api

import (
	"carillon/timer"
)

// readInput reads and checks the body of a change to one timer.
func (rq *request) readInput(v verb) (*timerRequest, *problem) {
	in := &timerRequest{id: rq.id, created: &rq.created}
	if rq.route.body == jsonBody {
		if _, p := rq.mediaType(); p != nil {
			return nil, p
		}
		r := &rq.one
		rq.readInto(r, rq.body)
		r.input(in)
		r.End()
		if r.Err() != nil {
			return nil, r.problem()
		}
	}
	if rq.id != "" && in.id != rq.id {
		return nil, bad(badName, "id: is not the one in the path")
	}
	if p := in.check(v, false); p != nil {
		return nil, p
	}
	if rq.named != "" {
		if p := in.nameByRequest(rq.named); p != nil {
			return nil, p
		}
	}
	in.ifMatch, in.cmd.CreateOnly = rq.ifMatch, rq.createOnly
	return in, nil
}

func (rq *request) addTimer() *problem   { return rq.changeTimer(vAdd) }
func (rq *request) putTimer() *problem   { return rq.changeTimer(vPut) }
func (rq *request) patchTimer() *problem { return rq.changeTimer(vPatch) }
func (rq *request) fireTimer() *problem  { return rq.changeTimer(vFire) }

// changeTimer does a change that answers with the timer.
func (rq *request) changeTimer(v verb) *problem {
	var in *timerRequest
	var p *problem
	if rq.dryRun, p = rq.dry(); p == nil {
		in, p = rq.readInput(v)
	}
	if p == nil && !rq.dryRun {
		p = rq.chargeVerb(v)
	}
	if p != nil {
		return p
	}
	res, t, p := rq.changeOne(in, v, false)
	rq.id = in.id // of an add it may be new
	if p == nil {
		p = refusalOf(&res)
		if res.Code == timer.Exists && in.repeated {
			keyInUse(p)
		}
	}
	if p != nil {
		return p
	}
	if res.Timer == nil {
		return fail(500, internalError, "the change was made, but the shard gave no timer back")
	}
	if rq.dryRun {
		rq.answerPreview(in, t, &res)
		return nil
	}
	if rq.minimal() {
		rq.answerMinimal(status(res.Code), res.Timer.Version)
		return nil
	}
	rq.answerTimer(status(res.Code), t, res.Timer, res.Code == timer.Merged)
	return nil
}

// changeOne is change for one timer alone: of one that ended long ago it says so.
func (rq *request) changeOne(in *timerRequest, v verb, brief bool) (res timer.Result, t *timer.Topic, p *problem) {
	res, t, p = rq.change(in, v, brief)
	if p == nil && res.Code == timer.NotFound {
		var err error
		if res.Code, err = rq.tooLate(t, in.plain, v); err != nil {
			return res, t, engineFault(err)
		}
	}
	return res, t, p
}

func (rq *request) cancelTimer() *problem {
	in, p := rq.readInput(vCancel)
	if p == nil {
		p = rq.chargeVerb(vCancel)
	}
	if p != nil {
		return p
	}
	res, _, p := rq.changeOne(in, vCancel, true)
	if p == nil {
		p = refusal(res.Code)
	}
	if p != nil {
		return p
	}
	b := append(rq.out(), `{"outcome":"`...)
	b = append(b, outcome(res.Code)...)
	rq.json(status(res.Code), append(b, `"}`...))
	return nil
}

func (rq *request) readTimer() *problem {
	next, p := rq.query.next()
	if p != nil {
		return p
	}
	t, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	full, keyed := t.Policy.FullID(rq.id)
	id := timer.ShardOf(t, full, rq.s.cfg.Engine.Shards())
	found, err := rq.core.Timers.Timer(rq.s.base, id, t.ID, full)
	if err == nil && found == nil && keyed { // it may be of before the topic had a key
		id = timer.ShardOf(t, rq.id, rq.s.cfg.Engine.Shards())
		found, err = rq.core.Timers.Timer(rq.s.base, id, t.ID, rq.id)
	}
	rq.nameLeader(id)
	if err != nil {
		return engineFault(err)
	}
	var pr timer.Progress
	if found != nil {
		pr = rq.progress(id, found)
	} else {
		e, err := rq.recall(t, rq.id)
		switch {
		case err != nil:
			return engineFault(err)
		case e == nil:
			return fail(404, unknownTimer, "there is no such timer")
		}
		found = e.Timer
		pr.Attempts = e.Attempts[max(0, len(e.Attempts)-timer.AttemptLog):]
	}
	rq.setETag(found)
	w := rq.timerWriter(t)
	b := appendWait(w.append(rq.out(), found), pr.Wait)
	if len(pr.Attempts) > 0 {
		b = appendAttemptLog(b, found, pr.Attempts)
	}
	rq.json(200, rq.appendNext(b, found, next))
	return nil
}

var etagName = []byte("ETag")

func (rq *request) setETag(t *timer.Timer) {
	var etag [16]byte
	rq.ctx.Response.Header.SetCanonical(etagName, appendETag(etag[:0], t.Version))
}

func (rq *request) answerTimer(status int, topic *timer.Topic, t *timer.Timer, merged bool) {
	rq.setETag(t)
	w := rq.timerWriter(topic)
	w.merged = merged
	rq.json(status, w.append(rq.out(), t))
}
