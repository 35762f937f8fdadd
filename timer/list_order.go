package timer

import (
	"cmp"
	"strings"
)

// SortKey is a place in the order of a Query.
type SortKey struct {
	SortMs int64
	ID     string
	Seq    uint64
	// Topic is 0 in a query of one topic. Of two, timers of one id may have the same number: from
	// different shards.
	Topic TopicID
}

// Compare orders two places by time, id, number and topic.
func (k SortKey) Compare(o SortKey) int {
	if k.SortMs != o.SortMs {
		return cmp.Compare(k.SortMs, o.SortMs)
	}
	return cmp.Or(strings.Compare(k.ID, o.ID), cmp.Compare(k.Seq, o.Seq), cmp.Compare(k.Topic, o.Topic))
}
