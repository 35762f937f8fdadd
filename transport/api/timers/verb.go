package timers

import (
	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// verb is an action of a client on one timer, in a request of its own or in a batch.
type verb uint8

const (
	noVerb verb = iota
	vAdd
	vPut
	vPatch
	vCancel
	vFire
	vPause
	vResume
)

var verbs = [...]struct {
	name   string // in a batch
	kind   timer.Kind
	fields web.Fields
	scope  web.Scope
}{
	vAdd:    {"add", timer.Add, spec.SpecFields | spec.FID | spec.FKey | spec.FMerge | spec.FMaxWait | spec.FCollectMax | spec.FPart | spec.FIfLate, web.ScopeAdd},
	vPut:    {"put", timer.Put, spec.SpecFields | spec.FID | spec.FKey | spec.FMerge | spec.FMaxWait | spec.FIfLate, web.ScopeAdd},
	vPatch:  {"patch", timer.Modify, spec.SpecFields, web.ScopeAdd},
	vCancel: {"cancel", timer.Cancel, 0, web.ScopeCancel},
	vFire:   {"fire", timer.Fire, 0, web.ScopeAdd},
	vPause:  {"pause", timer.Pause, 0, web.ScopeAdd},
	vResume: {"resume", timer.Resume, 0, web.ScopeAdd},
}

func verbOf(op string) verb {
	for v := vAdd; v <= vFire; v++ {
		if verbs[v].name == op {
			return v
		}
	}
	return noVerb
}

// check refuses fields that do not go together, or with the verb. The values by themselves are
// good.
func (tr *timerRequest) check(v verb, inBatch bool) *web.Problem {
	allowed := verbs[v].fields
	if inBatch {
		allowed |= spec.FOp | spec.FID
		if v != vAdd {
			allowed |= spec.FIfMatch
		}
	}
	if extra := tr.given &^ allowed; extra != 0 {
		return web.Badf(web.UnknownField, "unknown field %q for %s", spec.NameOf(extra), verbs[v].name)
	}
	mayReset := web.Fields(0)
	if v == vPatch {
		mayReset = spec.Resettable
	}
	if null := tr.null &^ mayReset; null != 0 {
		return web.Badf(web.BadRequest, "%s: must not be null", spec.NameOf(null))
	}
	if p := tr.checkTime(v); p != nil {
		return p
	}
	if tr.given&spec.FPayload != 0 && tr.given&spec.FPayload64 != 0 {
		return web.Bad(web.BadRequest, "payload and payload_base64: give one")
	}
	if p := tr.checkID(v); p != nil {
		return p
	}
	if tr.given&spec.FMerge == 0 {
		return nil
	}
	return tr.checkRule(spec.MergeRule(tr.merge))
}

func (tr *timerRequest) checkTime(v verb) *web.Problem {
	if tr.given&spec.TimeFields == 0 && (v == vAdd || v == vPut) && !spec.HasCron(&tr.spec) {
		return web.Bad(web.BadTime, "a time is required: one of at, at_ms, at_local, delay, delay_ms; only repeat.cron makes its own")
	}
	if p := tr.when.Resolve(tr.given); p != nil {
		return p
	}
	if v == vPatch && (tr.given|tr.null)&spec.SpecFields&^(spec.FCallback|spec.FRetry) == 0 {
		return web.Bad(web.BadRequest, "nothing to change")
	}
	return nil
}

// IDRule is the form of an id, for faults.
const IDRule = "must be 1–128 of A-Z a-z 0-9 _ . : @ -, not . or .., optionally led by one {key} of 1–64"

func (tr *timerRequest) checkID(v verb) *web.Problem {
	if tr.given&spec.FKey != 0 && !web.ValidKey(tr.key) {
		return web.Bad(web.BadName, "key: must be 1–64 of A-Z a-z 0-9 _ . : @ -")
	}
	if tr.given&spec.FID == 0 {
		if v != vAdd && tr.id == "" {
			return web.Badf(web.BadRequest, "id: is required for %s", verbs[v].name)
		}
	} else if !web.ValidID(tr.id) {
		return web.Bad(web.BadName, "id: "+IDRule)
	}
	if tr.given&spec.FKey != 0 && tr.id != "" {
		if key, has := timer.KeyOf(tr.id); !has || key != tr.key {
			return web.Badf(web.BadName, "key: the id must start with {%s}", tr.key)
		}
	}
	return nil
}

// chargeVerb counts one change of a timer.
func chargeVerb(rq *web.Request, v verb) *web.Problem {
	if v == vAdd || v == vPut {
		return rq.Charge(web.QuotaAdds)
	}
	return rq.Charge(web.QuotaChanges)
}
