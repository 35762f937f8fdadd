package table

import (
	"testing"
	"time"

	"carillon/timer"
)

// TestClosedTopics: the sum follows each change, and topics open again in the order in which they
// were closed.
func TestClosedTopics(t *testing.T) {
	c := newClosedTopics()
	for i := range timer.TopicID(4) {
		c.add(tombstone{i, int64(i) * 100})
	}
	c.open(1)
	c.open(1)
	if c.Closed(1) || !c.Closed(2) || c.sum != c.count() {
		t.Errorf("topic 1 is closed: %v, 2: %v", c.Closed(1), c.Closed(2))
	}
	c.setBack(250)
	if c.tombs[2].atMs != 250 || c.sum != c.count() {
		t.Errorf("%+v, sum %x, want %x", c.tombs, c.sum, c.count())
	}
	var expired []timer.TopicID
	for topic, ok := c.takeExpired(250); ok; topic, ok = c.takeExpired(250) {
		expired = append(expired, topic)
	}
	if len(expired) != 2 || expired[0] != 0 || expired[1] != 2 || c.Closed(0) || !c.Closed(3) {
		t.Errorf("expired %v of %+v", expired, c)
	}
	c.open(3)
	if c.sum != 0 || len(c.tombOf) != 0 {
		t.Errorf("%+v are left", c)
	}
}

// TestDeliveries: a topic has the last delivery that was set, and nothing is left when all are
// forgotten.
func TestDeliveries(t *testing.T) {
	var d deliveries
	if !d.Delivers(7, true) || !d.Delivers(7, false) {
		t.Error("a topic without a delivery is refused")
	}
	d.set(9, delivery{turn: 1})
	d.set(7, delivery{turn: 1})
	d.set(7, delivery{turn: 2, pull: true})
	if !d.Delivers(7, true) || d.Delivers(7, false) || d.sum != d.count() || len(d.of) != 2 || d.of[0].topic != 7 {
		t.Errorf("%+v, sum %x, want %x", d.of, d.sum, d.count())
	}
	d.forget(7)
	d.forget(7)
	d.forget(9)
	if d.sum != 0 || len(d.of) != 0 {
		t.Errorf("%+v, sum %x are left", d.of, d.sum)
	}
}

// TestSnapshotOfManyDeliveries: a snapshot of a table in which 100,000 topics have changed their
// delivery begins within a turn. They were once sorted there, each time.
func TestSnapshotOfManyDeliveries(t *testing.T) {
	table := New(1, 0)
	for i := range timer.TopicID(timer.MaxTopics) {
		table.deliveries.set(7*i+1, delivery{turn: 1, pull: true})
	}
	least := time.Hour
	for range 10 {
		began := time.Now()
		table.BeginSnapshot().Abort()
		least = min(least, time.Since(began))
	}
	if least > 10*time.Millisecond {
		t.Errorf("it takes %v", least)
	}
}

// TestLeaderships: a lease belongs to the process that led when it was given, and to none if that
// is too long ago. A leadership without a lease takes no place.
func TestLeaderships(t *testing.T) {
	var l leaderships
	l.takeover(1)
	l.takeover(2)
	first := l.nextFence()
	l.takeover(2)
	l.takeover(3)
	second := l.nextFence()
	if l.LeaseOwner(first) != 2 || l.LeaseOwner(second) != 3 || l.LastFence() != second || len(l.terms) != 2 {
		t.Errorf("fences %d and %d of %+v", first, second, l.terms)
	}
	for owner := range uint64(maxLeaderships) {
		l.takeover(100 + owner)
		l.nextFence()
	}
	if l.LeaseOwner(second) != 0 || l.LeaseOwner(l.LastFence()) != 100+maxLeaderships-1 || len(l.terms) != maxLeaderships {
		t.Errorf("owners %d and %d, %d leaderships", l.LeaseOwner(second), l.LeaseOwner(l.LastFence()), len(l.terms))
	}
}

// TestSlowPartOfALeadership: a part without an owner makes its leases slow, and no others. It takes
// no leadership's place: not that of its own, which has given no lease yet, nor those of others,
// however often it begins.
func TestSlowPartOfALeadership(t *testing.T) {
	var l leaderships
	given := func() (uint64, bool) { fence := l.nextFence(); return fence, l.SlowStart(fence) }
	if _, slow := given(); !slow {
		t.Error("a lease of an unknown leadership is not slow")
	}
	l.takeover(0)
	l.takeover(1)
	if fast, slow := given(); slow || l.LeaseOwner(fast) != 1 || len(l.terms) != 1 {
		t.Errorf("%+v", l.terms)
	}
	l.takeover(2)
	l.takeover(0)
	l.takeover(0)
	first, slow := given()
	if !slow || !l.StartsSlowly() || l.LeaseOwner(first) != 2 || len(l.terms) != 3 {
		t.Errorf("slow %t: %+v", slow, l.terms)
	}
	for range 2 * maxLeaderships {
		l.takeover(2)
		if fence, slow := given(); slow || l.LeaseOwner(fence) != 2 {
			t.Fatalf("lease %d is slow %t, of %d", fence, slow, l.LeaseOwner(fence))
		}
		l.takeover(0)
		if fence, slow := given(); !slow || l.LeaseOwner(fence) != 2 {
			t.Fatalf("lease %d is slow %t, of %d", fence, slow, l.LeaseOwner(fence))
		}
	}
	if !l.SlowStart(first) || l.LeaseOwner(2) != 1 || l.SlowStart(2) || len(l.terms) != 3 {
		t.Errorf("%+v", l.terms)
	}
	l.takeover(2) // gives no lease
	l.takeover(0)
	l.takeover(3)
	if fence, slow := given(); slow || l.LeaseOwner(fence) != 3 || l.LeaseOwner(fence-1) != 2 || !l.SlowStart(fence-1) {
		t.Errorf("%+v", l.terms)
	}
}

// TestTopics: a row counts its topic's timers, and is another topic's after the last one.
func TestTopics(t *testing.T) {
	p := newTopics()
	row := p.retain(5)
	if again := p.retain(5); again != row {
		t.Fatalf("rows %d and %d of one topic", row, again)
	}
	p.count(row, timer.Scheduled, +2)
	if p.Counts(5).Scheduled != 2 || p.Totals().Scheduled != 2 || len(p.TopicRows().IDs()) != 1 {
		t.Errorf("%+v of %+v in %v", p.Counts(5), p.Totals(), p.TopicRows().IDs())
	}
	p.count(row, timer.Scheduled, -2)
	p.release(row)
	p.release(row)
	if other := p.retain(6); other != row || p.Counts(6) != (timer.Counts{}) || len(p.TopicRows().IDs()) != 1 || p.TopicRows().IDs()[0] != 6 {
		t.Errorf("row %d, then %d: %+v in %v", row, other, p.Counts(6), p.TopicRows().IDs())
	}
}
