package shard

import "testing"

// TestI7TheLeadersWord: a replica whose state after an entry was not the leader's stops; one that agrees, or that does not remember the
// entry, goes on.
func TestI7TheLeadersWord(t *testing.T) {
	table := smallTable(t)
	table.Note(500)
	say := func(index, hash uint64) error {
		t.Helper()
		var b Batch
		b.Reset(table.ClockMs(), 1, 1)
		b.Hash(index, hash)
		if _, err := table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
		return table.diverged
	}
	was := table.Hash()
	if err := say(500, was); err != nil {
		t.Errorf("the same state: %v", err)
	}
	if err := say(500+hashesKept, was^1); err != nil {
		t.Errorf("an entry that is not remembered: %v", err)
	}
	if err := say(500, was^1); err == nil {
		t.Error("another state is not noticed")
	}
}
