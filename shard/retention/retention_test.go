package retention

import (
	"testing"

	"carillon/shard/record"
)

// mark is that of a snapshot that can be read: it has a membership.
func mark(index uint64) *record.Mark {
	m, err := record.DecodeMark(record.AppendMark(nil, record.Mark{Index: index}))
	if err != nil {
		panic(err)
	}
	return &m
}

// TestUnreadableSnapshotIsNoOlderOne: a snapshot in the place of an unreadable one leaves the log
// from the older one on.
func TestUnreadableSnapshotIsNoOlderOne(t *testing.T) {
	var l Log
	for i := range uint64(4) {
		l.Reached(1+i, 10*(1+i))
		l.Hard(1 + i)
		if i%2 == 1 { // at 20 and 40
			l.Saved(mark(10 * (1 + i)))
		}
	}
	l.Newest.Conf = nil
	if l.Readable() {
		t.Error("it is readable")
	}
	l.Reached(5, 50)
	l.Saved(mark(50))
	if l.Older() != 20 || l.Needed() != 3 || !l.Readable() {
		t.Errorf("the older snapshot is that of entry %d, and the log is needed from generation %d on", l.Older(), l.Needed())
	}
}

// TestNeeded: a group needs its creation until it has a snapshot, then the log from the older of two
// snapshots on, its hard state always, and a tombstone until nothing is left of that replica.
func TestNeeded(t *testing.T) {
	var l Log
	want := func(gen uint64) {
		t.Helper()
		if got := l.Needed(); got != gen {
			t.Errorf("needs the log from generation %d on, want %d", got, gen)
		}
	}
	l.Created(2)
	l.Reached(3, 10)
	l.Hard(3)
	want(2)
	l.Saved(mark(10))
	want(3)
	l.Reached(5, 20)
	l.Reached(6, 30)
	l.Hard(6)
	l.Saved(mark(25))
	want(5)
	l.DropOlder()
	want(6)
	l.Buried(1)
	want(1)
	l.Forgotten()
	want(6)
	l.Reached(7, 40)
	l.Grew(make([]byte, 84))
	if l.Bytes() != 100 {
		t.Errorf("%d bytes", l.Bytes())
	}
	l.Hard(9)
	want(6)
	l.Restored(mark(50))
	if want(9); l.Bytes() != 0 || l.Older() != 50 {
		t.Errorf("%d bytes, older snapshot %d", l.Bytes(), l.Older())
	}
}

func TestPinnable(t *testing.T) {
	const gen = 64 << 20
	for _, c := range []struct {
		state, replicas int64
		want            uint64
	}{{0, 17, 1}, {gen - 1, 17, 1}, {gen, 17, 2}, {gen, 128, 4}, {388 << 20, 17, 7}, {100 << 30, 17, maxPinned}, {0, 16384, maxPinned}} {
		if got := Pinnable(c.state, c.replicas, gen); got != c.want {
			t.Errorf("%d B of state in %d replicas: %d generations, want %d", c.state, c.replicas, got, c.want)
		}
	}
}
