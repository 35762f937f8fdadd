package shard

import (
	"errors"
	"testing"
	"time"

	"carillon/timer"
)

// asked is a submitted command and, once done, its error.
type asked struct {
	done bool
	err  error
}

func (h *hostHarness) offer(id string) *asked {
	a := &asked{}
	h.host.Submit(1, &timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: h.clock.wallMs + 3_600_000}}, true, func(_ timer.Result, err error) { a.done, a.err = true, err })
	h.pass(time.Millisecond)
	return a
}

// TestCommandsWaitForALeader: a command that arrives while there is no leader is redirected as soon
// as there is one. If there is none for a while, it fails.
func TestCommandsWaitForALeader(t *testing.T) {
	r, c := withFakePeers(t, true, nil)
	early := r.offer("early")
	if early.done || !r.host.Takes(1) {
		t.Fatalf("it does not wait: %+v", early)
	}
	c.send(1, heartbeat(3))
	r.pass(time.Millisecond)
	moved := timer.NotLeaderError{}
	if !early.done || !errors.As(early.err, &moved) || moved.Leader != 8 {
		t.Fatalf("somebody leads: %+v", early)
	}
	if follower := r.offer("follower"); !follower.done || !errors.As(follower.err, &moved) || moved.Leader != 8 || r.host.Takes(1) {
		t.Errorf("a follower: %+v", follower)
	}
	for n := 0; !r.host.group(1).election.leaderless; n++ {
		if n > 200 {
			t.Fatal("the leader is silent, and is still believed in")
		}
		r.pass(tickInterval)
	}
	late := r.offer("late")
	if late.done {
		t.Fatalf("it does not wait: %+v", late)
	}
	r.pass(awaitLimit + tickInterval)
	if !late.done || !errors.As(late.err, &moved) || moved.Leader != 0 || r.host.Takes(1) {
		t.Errorf("nobody comes: %+v", late)
	}
	if later := r.offer("later"); !later.done || !errors.As(later.err, &moved) {
		t.Errorf("it is known that nobody comes: %+v", later)
	}
}

// TestCommandsWaitForAReign: a command that arrives before a newly elected leader serves waits, and
// that leader decides it.
func TestCommandsWaitForAReign(t *testing.T) {
	r, c := withFakePeers(t, false, nil)
	a := r.offer("a")
	if a.done {
		t.Fatalf("it does not wait: %+v", a)
	}
	c.r.pass(tickInterval)
	c.leads()
	b := r.offer("b")
	r.pass(2 * tickInterval)
	if !b.done || b.err != nil {
		t.Errorf("the leader: %+v", b)
	}
}
