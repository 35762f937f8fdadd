package shard

import (
	"slices"
	"testing"
	"time"

	"carillon/timer"
)

// wantLateness checks the first attempts in start order: want says for each whether a gate held its
// timer back.
func (h *hostHarness) wantLateness(want ...bool) {
	h.t.Helper()
	if !slices.Equal(h.observer.held, want) {
		h.t.Errorf("held %v, late by %v ms; want %v", h.observer.held, h.observer.latenessMs, want)
	}
	h.audit()
}

func TestLatenessBehindBreaker(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.add("before", 100*time.Millisecond)
	r.pass(time.Second)
	to := r.calls.dest("http://receiver-1/")
	to.retryIn = 3 * time.Second
	r.add("opens", 0)
	r.add("meanwhile", time.Second)
	r.add("after", 5*time.Second)
	r.pass(2 * time.Second)
	to.retryIn = 0
	r.pass(10 * time.Second)
	r.wantLateness(false, true, true, false)
}

func TestLatenessBehindSlots(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.dest("http://receiver-1/").slots = 1
	r.add("a", 0)
	first := r.one()
	r.add("b", 0)
	r.pass(time.Second)
	first.answer(200)
	r.runIdle()
	r.one().answer(200)
	r.runIdle()
	r.add("c", time.Second)
	r.pass(2 * time.Second)
	r.one().answer(200)
	r.runIdle()
	r.wantLateness(false, true, false)
}

func TestLatenessBehindPause(t *testing.T) {
	r := newHostHarness(t, func(*Config) {})
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.calls.auto = 200
	r.add("a", 0)
	r.pass(time.Minute)
	r.topic(1, nil)
	r.topicsChanged()
	r.add("b", time.Second)
	r.pass(2 * time.Second)
	r.wantLateness(true, false)
}

func TestLatenessBehindKey(t *testing.T) {
	r := newSerialHarness(t, nil)
	r.add("{k}1", 0)
	first := r.one()
	r.add("{k}2", 0)
	r.add("{other}", 0)
	other := r.one()
	r.pass(time.Second)
	first.answer(200)
	other.answer(200)
	r.runIdle()
	r.one().answer(200)
	r.runIdle()
	r.add("{k}3", time.Second)
	r.pass(2 * time.Second)
	r.one().answer(200)
	r.runIdle()
	r.wantLateness(false, false, true, false)
}

func TestLatenessBehindLimits(t *testing.T) {
	r := limitHarness(t, func(p *timer.Topic) { p.Policy.Concurrency = 1 })
	r.addTo4(1, 0)
	first := r.one()
	p, err := r.submit(2, timer.Command{Kind: timer.Add, Topic: 1, ID: "waits", Spec: &timer.Spec{DueMs: r.clock.wallMs}})
	if err != nil {
		t.Fatal(err)
	}
	r.pass(time.Second)
	if !p.answered() {
		t.Fatal("no answer")
	}
	first.answer(200)
	r.pass(time.Second)
	r.one().answer(200)
	r.pass(time.Second)
	r.wantLateness(false, true)
}

func TestLatenessOfSpread(t *testing.T) {
	r := newHostHarness(t, nil)
	r.topic(1, func(p *timer.Topic) { p.Policy.SpreadMs = 60_000 })
	r.topicsChanged()
	r.calls.auto = 200
	r.add("a", time.Second)
	r.pass(2 * time.Minute)
	r.wantLateness(true)
}

// TestLatenessIsThatOfTheCall: a call may begin later than it was handed to the dispatcher, which has
// a pace for each receiver.
func TestLatenessIsThatOfTheCall(t *testing.T) {
	r := newHostHarness(t, nil)
	r.add("a", 0)
	call := r.one()
	r.pass(50 * time.Millisecond)
	call.wallMs = r.clock.wallMs
	call.answer(200)
	r.runIdle()
	if late := r.observer.latenessMs; len(late) != 1 || late[0] != 50 {
		t.Errorf("late by %v ms, want 50", late)
	}
	r.audit()
}
