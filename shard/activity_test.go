package shard

import (
	"testing"

	"carillon/shard/table"
	"carillon/timer"
)

// TestActivityOfTopics: attempts are counted per topic until they are reported. Beyond
// maxFiredTopics topics they are counted under topic 0.
func TestActivityOfTopics(t *testing.T) {
	w := &worker{host: &Host{cfg: Config{Observer: &fakeObserver{}}}}
	for id := range timer.TopicID(maxFiredTopics + 10) {
		w.fired(1+id, &table.Outcome{Kind: table.Ack})
	}
	w.fired(1, &table.Outcome{Kind: table.RetryLater})
	w.fired(1, &table.Outcome{Kind: table.Kill})
	w.fired(1, &table.Outcome{Kind: table.Release})
	if got := *w.firedBy[1]; got != (Fired{1, 1, 1}) || *w.firedBy[0] != (Fired{10, 0, 0}) || len(w.firedBy) != maxFiredTopics+1 {
		t.Errorf("%v, others %v, of %d topics", got, *w.firedBy[0], len(w.firedBy))
	}
	o := &table.Outcome{Kind: table.Ack}
	if n := testing.AllocsPerRun(100, func() { w.fired(1, o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTakeActivity: each attempt is reported once. A due timer is counted as long as it is due.
func TestTakeActivity(t *testing.T) {
	r := newHostHarness(t, nil)
	r.calls.auto = 200
	r.add("a", 0)
	r.runIdle()
	r.topic(1, func(p *timer.Topic) { p.Paused = true })
	r.topicsChanged()
	r.add("b", 0)
	r.runIdle()
	r.host.cfg.Block = func(begin func(wake func())) { begin(func() {}); r.runIdle() }
	first, second := r.host.TakeActivity(), r.host.TakeActivity()
	if a := first.Topics[1]; a == nil || a.Fired != (Fired{1, 0, 0}) || a.Overdue != 1 || first.Totals.Scheduled != 1 || first.Totals.Done != 1 {
		t.Errorf("%+v %+v", a, first.Totals)
	}
	if a := second.Topics[1]; a == nil || a.Fired != (Fired{}) || a.Overdue != 1 {
		t.Errorf("%+v", a)
	}
}

func BenchmarkFired(b *testing.B) {
	w := &worker{host: &Host{cfg: Config{Observer: benchObserver{}}}}
	o := &table.Outcome{Kind: table.Ack}
	b.ReportAllocs()
	for b.Loop() {
		w.fired(1, o)
	}
}
