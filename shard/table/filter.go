package table

import (
	"bytes"
	"slices"

	"carillon/shard/table/slab"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Hides reports whether a leased timer counts as scheduled. A nil Hides hides none.
type Hides func(h timer.Handle) bool

// listed reports whether a topic is of a query of many: O(log of the topics that it names).
func listed(q *timer.Query, topic timer.TopicID) bool {
	if q.AllTopics {
		return topic != CanaryTopic
	}
	_, found := slices.BinarySearch(q.Topics, topic)
	return found
}

// wants reports whether a timer is in one of the query's states.
func wants(q *timer.Query, hides Hides, h timer.Handle, s *slab.Slot) bool {
	state := s.State()
	if state == timer.Leased && hides != nil && hides(h) {
		state = timer.Scheduled
	}
	return q.States&(1<<state) != 0
}

// selection is what a query selects of a table.
type selection struct {
	t *timers
	q *timer.Query
}

// has reports whether the query selects a timer of the right topic and state. It also returns the
// timer's time in the query's order.
func (sel selection) has(s *slab.Slot) (sortMs int64, ok bool) {
	sortMs, ok = sel.timeOf(s)
	return sortMs, ok && sel.matches(s)
}

// timeOf is a timer's time in the query's order; ok: it is one that the query selects, as the
// reason is.
func (sel selection) timeOf(s *slab.Slot) (sortMs int64, ok bool) {
	t, q := sel.t, sel.q
	if q.ByEnd {
		if !s.State().Over() {
			return 0, false
		}
		sortMs = t.attempts.At(s.Attempt).EndedMs()
	} else {
		sortMs = t.dueMs(s)
	}
	if sortMs < q.FromMs || q.ToMs != 0 && sortMs >= q.ToMs || q.After != nil && sortMs < q.After.SortMs {
		return 0, false
	}
	return sortMs, q.Reason == timer.NoReason || s.Reason() == q.Reason
}

// matches reports whether the query selects a timer's id and labels.
func (sel selection) matches(s *slab.Slot) bool {
	t, q := sel.t, sel.q
	if q.IDPrefix == "" && len(q.Labels) == 0 && q.Only == nil {
		return true
	}
	v := t.content.View(s.Ref)
	if !bytes.HasPrefix(v.ID, []byte(q.IDPrefix)) || q.WholeID && len(v.ID) != len(q.IDPrefix) ||
		q.Only != nil && !q.Only(t.topics.rows[s.Topic].id, v.ID) {
		return false
	}
	return hasLabels(v.Rest, q.Labels)
}

// hasLabels reports whether a spec has all of the labels.
func hasLabels(rest []byte, want []string) bool {
	if len(want) == 0 {
		return true
	}
	have := encoding.DecodeLabels(encoding.RestBytes(rest, encoding.FieldLabels))
	return !slices.ContainsFunc(want, func(label string) bool { return !slices.Contains(have, label) })
}
