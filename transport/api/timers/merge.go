package timers

import (
	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

func (tr *timerRequest) checkRule(rule timer.Merge) *web.Problem {
	collects, own := rule == timer.MergeCollect, tr.given&(spec.FCollectMax|spec.FPart)
	switch {
	case tr.given&spec.FMaxWait != 0 && !collects && rule != timer.MergeDebounce:
		return web.Bad(web.BadRequest, `max_wait: goes with "merge": "debounce" or "collect" only`)
	case own != 0 && !collects:
		return web.Badf(web.BadRequest, `%s: goes with "merge": "collect" only`, spec.NameOf(own))
	case collects && tr.spec.Repeat != nil:
		return web.Bad(web.BadRequest, `repeat: does not go with "merge": "collect"`)
	}
	return nil
}

// checkCollected refuses a payload that cannot be an element of an array.
func (tr *timerRequest) checkCollected() *web.Problem {
	switch {
	case tr.spec.PayloadKind != timer.JSONPayload:
		return web.Fail(422, "not_json", "an add that collects needs a payload, as JSON: it becomes an element of an array")
	case !timer.NestsInArray(tr.spec.Payload):
		return web.Bad(web.BadJSON, "payload: nested deeper than 63, the array around it would be than 64")
	case !timer.FitsAlone(tr.spec.Payload):
		return web.Failf(413, web.TooLarge, "payload: over %d bytes, it does not fit into an array", timer.MaxCollected-len("[]"))
	}
	return nil
}

// mergeBy fills in the rule that the add goes by: its own, else the topic's.
func (tr *timerRequest) mergeBy(t *timer.Topic) *web.Problem {
	rule, wait := t.Policy.Merge, int64(0)
	if tr.given&spec.FMerge != 0 {
		rule = spec.MergeRule(tr.merge)
	}
	if p := tr.checkRule(rule); p != nil {
		return p
	}
	switch {
	case tr.given&spec.FMaxWait != 0:
		wait = tr.maxWaitMs
	case rule == timer.MergeDebounce || rule == timer.MergeCollect:
		wait = t.Policy.MaxWaitMs
	}
	if rule == timer.MergeCollect {
		if tr.given&spec.FCollectMax == 0 {
			tr.collecting().Max = t.Policy.CollectFor()
		}
		if p := tr.checkCollected(); p != nil {
			return p
		}
	} else {
		tr.spec.Collect = nil // the topic's rule may have changed meanwhile
	}
	tr.cmd.Merge, tr.cmd.MaxWaitMs = rule, wait
	return nil
}
