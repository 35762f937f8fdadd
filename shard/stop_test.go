package shard

import (
	"errors"
	"testing"

	"carillon/timer"
)

// TestStopAnswersAllThatWait: what a worker has not begun when its node stops is answered.
func TestStopAnswersAllThatWait(t *testing.T) {
	r := newHostHarness(t, nil)
	w := r.host.workers[0]
	listed := r.host.newRead(1, func(*timerShard, int) bool { return true })
	listed.wait = fakeWaiter()
	pulled := &pullRequest{shard: r.host.shard(1), topic: 1, most: 1, wait: fakeWaiter()}
	added := &op{shard: r.host.shard(1), cmd: &timer.Command{Kind: timer.Add, Topic: 1, ID: "a"}, wait: fakeWaiter()}
	for _, e := range []event{&partOf[*read]{listed}, &partOf[*pullRequest]{pulled}, &partOf[*op]{added}} {
		if err := w.box.offer(e); err != nil {
			t.Fatal(err)
		}
	}
	w.abandon()
	for name, err := range map[string]error{"listing": listed.err, "pull": pulled.err, "add": added.err} {
		if !errors.Is(err, timer.ErrStopped) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
