package shard

import (
	"testing"

	"carillon/timer"
)

func TestMailbox(t *testing.T) {
	m := newMailbox(2)
	for range 2 {
		if m.offer(topicsChanged{}) != nil {
			t.Error("refused below the bound")
		}
	}
	if err := m.offer(topicsChanged{}); err != timer.ErrOverloaded {
		t.Error(err)
	}
	m.post(topicsChanged{}) // the host's own events are never refused
	select {
	case <-m.wake:
	default:
		t.Error("nobody was woken")
	}
	if got := m.take(nil); len(got) != 3 {
		t.Errorf("took %d", len(got))
	}
	m.post(topicsChanged{})
	if left := m.close(); len(left) != 1 {
		t.Errorf("%d left", len(left))
	}
	if err := m.offer(topicsChanged{}); err != timer.ErrStopped {
		t.Error(err)
	}
}
