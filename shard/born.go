package shard

import "carillon/timer"

// born is the timer that an Add or Put has just created: what the client sent and what the table gave. It spares the worker a copy.
func born(c *timer.Command, r *timer.Result) *timer.Timer {
	t := c.Into
	if t == nil {
		t = &timer.Timer{}
	}
	due := debounced(c.Merge, c.Spec.DueMs, r.AtMs, c.MaxWaitMs)
	*t = timer.Timer{
		Topic: c.Topic, ID: c.ID, Spec: *c.Spec, Seq: r.Seq, Tag: c.Tag, Version: r.Version, State: timer.Scheduled,
		NextMs: due, CreatedMs: r.AtMs, UpdatedMs: r.AtMs, LatenessMs: -1,
	}
	t.DueMs = due
	return t
}

// debounced is the due time of an add whose scope began with an add at firstMs.
func debounced(rule timer.Merge, dueMs, firstMs, maxWaitMs int64) int64 {
	if rule != timer.MergeDebounce || maxWaitMs == 0 {
		return dueMs
	}
	return min(dueMs, timer.ClampMs(firstMs+timer.ClampMs(maxWaitMs)))
}
