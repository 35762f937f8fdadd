package shard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// recordedHistory is a History that records its events.
type recordedHistory struct{ lines []string }

func (r *recordedHistory) Record(id timer.ShardID, index uint64, events []table.HistoryEvent) {
	for _, e := range events {
		r.lines = append(r.lines, fmt.Sprintf("%d/%d/%d %s %d %x", id, index, e.Item, e.ID, e.State, e.Body))
	}
}

// TestHistoryIsToldAgain: a restart emits the events that are still in the log once more, with the
// same content and the same IDs.
func TestHistoryIsToldAgain(t *testing.T) {
	told := &recordedHistory{}
	r := newHostHarness(t, func(c *Config) { c.History = told })
	r.add("a", 0)
	r.one().answer(500)
	r.pass(3 * time.Second)
	r.one().answer(200)
	r.add("b", time.Hour)
	r.do(timer.Command{Kind: timer.Cancel, Topic: 1, ID: "b"})
	r.wantState("a", "done 2")
	first := told.lines
	if len(first) != 3 {
		t.Fatalf("told: %q", first)
	}
	told.lines = nil
	r.restart()
	if !slices.Equal(told.lines, first) {
		t.Errorf("told again: %q\nwant %q", told.lines, first)
	}
}
