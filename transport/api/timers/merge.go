package timers

import (
	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

func needsDebounce() *web.Problem {
	return web.Bad(web.BadRequest, `max_wait: goes with "merge": "debounce" only`)
}

func (in *timerRequest) checkMerge() *web.Problem {
	if in.given&spec.FMaxWait != 0 && in.given&spec.FMerge != 0 && in.merge != "debounce" {
		return needsDebounce()
	}
	return nil
}

// mergeBy fills in the rule that the add goes by: its own, else the topic's.
func (in *timerRequest) mergeBy(t *timer.Topic) *web.Problem {
	rule, wait := t.Policy.Merge, int64(0)
	if in.given&spec.FMerge != 0 {
		rule = spec.MergeRule(in.merge)
	}
	switch {
	case in.given&spec.FMaxWait != 0 && rule != timer.MergeDebounce:
		return needsDebounce()
	case in.given&spec.FMaxWait != 0:
		wait = in.maxWaitMs
	case rule == timer.MergeDebounce:
		wait = t.Policy.MaxWaitMs
	}
	in.cmd.Merge, in.cmd.MaxWaitMs = rule, wait
	return nil
}

// nameByContent gives an add without an id the one that its content makes, where the topic says so:
// equal payloads to one URL are one timer. With a key the id starts with it.
func (in *timerRequest) nameByContent(t *timer.Topic) {
	if !in.unnamed || !t.Policy.ByContent {
		return
	}
	url := in.spec.Callback.URL
	if url == "" {
		url = t.Policy.Callback.URL
	}
	key := in.key
	if key == "" {
		key = t.Policy.Key
	}
	name := timer.ContentID(t.Name, in.spec.Payload, url, key)
	in.id, in.cmd.ID = name, name
}
