package api

import (
	"slices"

	"carillon/timer"
)

var (
	mergeRules = []string{"reject", "keep", "replace", "debounce"} // in the order of timer.Merge
	dedups     = []string{"id", "content"}
)

func mergeRule(name string) timer.Merge { return timer.Merge(max(0, slices.Index(mergeRules, name))) }

// maxWait reads the longest wait of a debounced timer.
func (r *reader) maxWait() int64 {
	ms := r.span("max_wait")
	if ms == 0 && r.Err() == nil {
		r.fail(r.refuse("max_wait: must be longer than 0s"))
	}
	return ms
}

func needsDebounce() *problem {
	return bad(badRequest, `max_wait: goes with "merge": "debounce" only`)
}

func (in *timerRequest) checkMerge() *problem {
	if in.given&fMaxWait != 0 && in.given&fMerge != 0 && in.merge != "debounce" {
		return needsDebounce()
	}
	return nil
}

// mergeBy fills in the rule that the add goes by: its own, else the topic's.
func (in *timerRequest) mergeBy(t *timer.Topic) *problem {
	rule, wait := t.Policy.Merge, int64(0)
	if in.given&fMerge != 0 {
		rule = mergeRule(in.merge)
	}
	switch {
	case in.given&fMaxWait != 0 && rule != timer.MergeDebounce:
		return needsDebounce()
	case in.given&fMaxWait != 0:
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
