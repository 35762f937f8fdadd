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

// TestMailboxWakes: while the consumer is patient, posted events alone do not wake it. What is
// there when it is patient no more does, and what is taken does not.
func TestMailboxWakes(t *testing.T) {
	m, end := newMailbox(10), posted(func(bool) {})
	woken := func(want bool) {
		t.Helper()
		got := len(m.wake) > 0
		if got {
			<-m.wake
		}
		if got != want {
			t.Errorf("woken: %v, want %v", got, want)
		}
	}
	m.post(end)
	woken(true)
	m.take(nil)
	m.rest(true)
	m.post(end)
	woken(false)
	m.post(topicsChanged{}) // as the end of a frame
	woken(true)
	m.post(end)
	woken(false)
	if got := m.take(nil); len(got) != 3 {
		t.Errorf("took %d", len(got))
	}
	m.post(end) // within the turn
	woken(false)
	m.rest(true)
	woken(false)
	m.rest(false)
	woken(true)
	m.post(topicsChanged{})
	m.rest(true)
	woken(true)
	m.take(nil)
	m.post(topicsChanged{})
	m.take(nil)
	m.rest(false)
	woken(false)
}
