package timer

// NewTimer is the timer that an Add or Put has just created: the client's values with those that
// the table assigned. It saves the worker a copy.
func NewTimer(c *Command, r *Result) *Timer {
	t := c.Into
	if t == nil {
		t = &Timer{}
	}
	due := Debounced(c.Merge, c.Spec.DueMs, r.AtMs, c.MaxWaitMs)
	*t = Timer{
		Topic: c.Topic, ID: c.ID, Spec: *c.Spec, Seq: r.Seq, Origin: r.Origin, Tag: c.Tag, Version: r.Version, State: Scheduled,
		NextMs: due, CreatedMs: r.AtMs, UpdatedMs: r.AtMs, LatenessMs: -1, Content: c.Content, FirstMs: r.AtMs,
	}
	t.DueMs = due
	if c.Kind == Add && c.Merge == MergeCollect {
		t.newCollecting(r.AtMs)
	}
	if t.Repeat != nil {
		t.Occurrence = 1
	}
	return t
}
