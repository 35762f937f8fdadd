package timers

import (
	"cmp"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

func (in *timerRequest) checkRule(rule timer.Merge) *web.Problem {
	collects, own := rule == timer.MergeCollect, in.given&(spec.FCollectMax|spec.FPart)
	switch {
	case in.given&spec.FMaxWait != 0 && !collects && rule != timer.MergeDebounce:
		return web.Bad(web.BadRequest, `max_wait: goes with "merge": "debounce" or "collect" only`)
	case own != 0 && !collects:
		return web.Badf(web.BadRequest, `%s: goes with "merge": "collect" only`, spec.NameOf(own))
	case collects && in.spec.Repeat != nil:
		return web.Bad(web.BadRequest, `repeat: does not go with "merge": "collect"`)
	}
	return nil
}

// checkCollected refuses a payload that cannot be an element of an array.
func (in *timerRequest) checkCollected() *web.Problem {
	switch {
	case in.spec.PayloadKind != timer.JSONPayload:
		return web.Fail(422, "not_json", "an add that collects needs a payload, as JSON: it becomes an element of an array")
	case !timer.NestsInArray(in.spec.Payload):
		return web.Bad(web.BadJSON, "payload: nested deeper than 63, the array around it would be than 64")
	case !timer.FitsAlone(in.spec.Payload):
		return web.Failf(413, web.TooLarge, "payload: over %d bytes, it does not fit into an array", timer.MaxCollected-len("[]"))
	}
	return nil
}

// mergeBy fills in the rule that the add goes by: its own, else the topic's.
func (in *timerRequest) mergeBy(t *timer.Topic) *web.Problem {
	rule, wait := t.Policy.Merge, int64(0)
	if in.given&spec.FMerge != 0 {
		rule = spec.MergeRule(in.merge)
	}
	if p := in.checkRule(rule); p != nil {
		return p
	}
	switch {
	case in.given&spec.FMaxWait != 0:
		wait = in.maxWaitMs
	case rule == timer.MergeDebounce || rule == timer.MergeCollect:
		wait = t.Policy.MaxWaitMs
	}
	if rule == timer.MergeCollect {
		if in.given&spec.FCollectMax == 0 {
			in.collecting().Max = t.Policy.CollectFor()
		}
		if p := in.checkCollected(); p != nil {
			return p
		}
	} else {
		in.spec.Collect = nil // the topic's rule may have changed meanwhile
	}
	in.cmd.Merge, in.cmd.MaxWaitMs = rule, wait
	return nil
}

// nameByContent gives an add without an id the one that its content makes, where the topic asks for
// it: equal payloads to one URL are one timer. With a key the id starts with it.
func (in *timerRequest) nameByContent(t *timer.Topic) {
	if !in.unnamed || !t.Policy.ByContent {
		return
	}
	url := cmp.Or(in.spec.Callback.URL, t.Policy.Callback.URL)
	key := cmp.Or(in.key, t.Policy.Key)
	name := timer.ContentID(t.Name, in.spec.Payload, url, key)
	in.id, in.cmd.ID = name, name
}
