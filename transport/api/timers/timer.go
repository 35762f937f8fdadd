// Package timers answers for the timers of a topic: one, a batch, all that a filter selects, pages
// of them, and those that have ended.
package timers

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// readInput reads and checks the body of a change to one timer, into an empty input.
func readInput(rq *web.Request, in *timerRequest, v verb) *web.Problem {
	in.id, in.created = rq.ID, &rq.Created
	if verbs[v].fields != 0 {
		r := rq.Reader()
		readFields(r, in)
		r.End()
		if r.Err() != nil {
			return r.Problem()
		}
	}
	if rq.ID != "" && in.id != rq.ID {
		return web.Bad(web.BadName, "id: is not the one in the path")
	}
	if p := in.check(v, false); p != nil {
		return p
	}
	if rq.OnceKey != "" {
		if p := in.nameByRequest(rq.OnceKey); p != nil {
			return p
		}
	}
	in.ifMatch, in.cmd.CreateOnly = rq.IfMatch, rq.CreateOnly
	return nil
}

// Add, Put, Patch, Fire, Cancel, Pause and Resume change one timer.
func Add(rq *web.Request) *web.Problem    { return changeTimer(rq, vAdd) }
func Put(rq *web.Request) *web.Problem    { return changeTimer(rq, vPut) }
func Patch(rq *web.Request) *web.Problem  { return changeTimer(rq, vPatch) }
func Fire(rq *web.Request) *web.Problem   { return changeTimer(rq, vFire) }
func Cancel(rq *web.Request) *web.Problem { return changeTimer(rq, vCancel) }
func Pause(rq *web.Request) *web.Problem  { return changeTimer(rq, vPause) }
func Resume(rq *web.Request) *web.Problem { return changeTimer(rq, vResume) }

// changeTimer reads a change of one timer, has it made, and answers with the timer, or with what a
// cancel did.
func changeTimer(rq *web.Request, v verb) *web.Problem {
	in := inputs.Get().(*timerRequest)
	p := in.change(rq, v)
	*in = timerRequest{} // after a panic it is left to the collector
	inputs.Put(in)
	return p
}

func (tr *timerRequest) change(rq *web.Request, v verb) (p *web.Problem) {
	if p = readInput(rq, tr, v); p == nil && !rq.DryRun {
		p = chargeVerb(rq, v)
	}
	if p != nil {
		return p
	}
	res, t, p := change(rq, tr, v, v == vCancel && tr.ifMatch == 0)
	if p == nil {
		if err := tr.endedLongAgo(rq, t, &res, v); err != nil {
			p = web.Fault(err)
		}
	}
	rq.Unlogged = rq.Unlogged || unchanged(&res)
	if v != vCancel {
		rq.ID = tr.id // of an add it may be new
	}
	if p == nil {
		p = refusalOf(&tr.cmd, &res)
		if res.Code == timer.Exists && tr.repeated {
			keyInUse(p)
		}
	}
	switch {
	case p != nil:
		return p
	case v == vCancel:
		return rq.JSON(status(res.Code), append(append(append(rq.Out(), `{"outcome":"`...), cancelOutcome(res.Code)...), `"}`...))
	case res.Timer == nil:
		return web.Fail(500, web.InternalError, "the change was made, but the shard gave no timer back")
	case rq.DryRun:
		return answerPreview(rq, tr, t, &res)
	case minimal(rq):
		answerMinimal(rq, status(res.Code), res.Timer.Version)
		return nil
	}
	setETag(rq, res.Timer)
	w := NewWriter(t)
	w.merged, w.lateMs = res.Code == timer.Merged, tr.lateMs(&res, rq.NowMs())
	return rq.JSON(status(res.Code), appendWait(w.Append(rq.Out(), res.Timer), heldWait(res.Timer)))
}

// Read answers with one timer, from the history where it has ended long ago.
func Read(rq *web.Request) *web.Problem {
	next := rq.Query.Integer("next", maxNext, 0)
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	t, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	full, keyed := t.Policy.FullID(rq.ID)
	id := timer.ShardOf(t, full, rq.Engine.Shards())
	found, err := rq.Core.Timers.Timer(rq.Base, id, t.ID, full)
	if err == nil && found == nil && keyed { // it may be of before the topic had a key
		id = timer.ShardOf(t, rq.ID, rq.Engine.Shards())
		found, err = rq.Core.Timers.Timer(rq.Base, id, t.ID, rq.ID)
	}
	nameLeader(rq, id)
	if err != nil {
		return web.Fault(err)
	}
	var pr timer.Progress
	if found != nil {
		pr = progress(rq, id, found)
	}
	switch e, err := recall(rq, t, rq.ID, found); {
	case err != nil:
		return web.Fault(err)
	case e != nil:
		found, pr = e.Timer, timer.Progress{Attempts: e.Attempts[max(0, len(e.Attempts)-timer.AttemptLog):]}
	case found == nil:
		return web.Fail(404, web.UnknownTimer, "there is no such timer")
	}
	setETag(rq, found)
	w := NewWriter(t)
	b := appendWait(w.Append(rq.Out(), found), pr.Wait)
	if len(pr.Attempts) > 0 {
		b = appendAttemptLog(b, found, pr.Attempts)
	}
	return rq.JSON(200, appendNext(rq, b, found, pr.Wait.For, next))
}

func setETag(rq *web.Request, t *timer.Timer) {
	var etag [16]byte
	rq.Ctx.Response.Header.SetCanonical(web.ETagName, web.AppendETag(etag[:0], t.Version))
}
