package sim

import (
	"math"
	"strings"
	"testing"
	"time"

	"carillon/timer"
)

// TestUndecidedIsAViolation: a history without a known order proves nothing, so the search that
// runs out of time counts as a violation. Here each of many writes may have happened at any time,
// or never, and a read has seen more versions than there were writes.
func TestUndecidedIsAViolation(t *testing.T) {
	id := idKey{1, "a"}
	h := History{ids: []idKey{id}, byID: map[idKey][]*historyEntry{}}
	const writes = 40
	for i := range int64(writes) {
		h.byID[id] = append(h.byID[id], &historyEntry{id: id, in: asked{op: uint64(i + 1), kind: timer.Put}, called: i, ended: math.MaxInt64})
	}
	read := &historyEntry{id: id, called: writes, ended: writes + 1}
	read.out = heard{known: true, there: true, version: writes + 1, writer: 1, state: timer.Scheduled}
	h.byID[id] = append(h.byID[id], read)
	if err := h.Check(20 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "undecided after 20ms") {
		t.Errorf("%.200v", err)
	}
	bulk := &bulkChecker{looked: true, ids: map[string]*bulkID{"a": {id: "a"}}, names: []string{"a"}}
	for i := range int64(writes) {
		bulk.ids["a"].ops = append(bulk.ids["a"].ops, &bulkOp{kind: timer.Modify, dueMs: i, number: uint64(i), called: i, ended: math.MaxInt64})
	}
	add := &bulkOp{kind: timer.Add, called: 0, ended: math.MaxInt64}
	look := &bulkOp{called: writes, ended: writes + 1, outMs: 1, out: heard{known: true, there: true, version: writes + 5, state: timer.Scheduled}}
	bulk.ids["a"].ops = append(bulk.ids["a"].ops, add, look)
	if err := (History{bulks: bulk}).Check(20 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "undecided after 20ms") {
		t.Errorf("%.200v", err)
	}
}
