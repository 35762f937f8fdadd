package table

import (
	"fmt"
	"reflect"
	"testing"

	"carillon/timer"
)

// TestWithout: a map that has become much smaller is another one with the same entries. A small one
// stays, and so does one whose copy would take long.
func TestWithout(t *testing.T) {
	for _, c := range []struct {
		n, left int
		again   bool
	}{{leastRoom, 0, false}, {8 * leastRoom, 2 * leastRoom, false}, {8 * leastRoom, 1, true}, {8 * leastRoom, 0, true}, {32 * mostCopied, mostCopied + 1, false}} {
		m, most := map[int]int{}, room(0)
		for i := range c.n {
			m[i] = -i
		}
		first := reflect.ValueOf(m).Pointer()
		for i := c.left; i < c.n; i++ {
			m = without(m, &most, i)
		}
		for i := range c.left {
			if m[i] != -i {
				t.Fatalf("%+v: %d is %d", c, i, m[i])
			}
		}
		if again := reflect.ValueOf(m).Pointer() != first; len(m) != c.left || again != c.again || again == (most.of(len(m)) == int64(c.n)) {
			t.Errorf("%+v: %d entries are left with room for %d, made again: %v", c, len(m), most.of(len(m)), again)
		}
	}
}

// TestTimersGiveRoomBack: arrays, their parts and places, and names of outcome topics take no more
// memory than few timers need, however many there were.
func TestTimersGiveRoomBack(t *testing.T) {
	d := newTableHarness(t)
	few := func() int64 {
		return d.table.MemoryBytes() - d.table.slots.Memory() - d.table.attempts.Memory() - d.table.content.Memory() - d.table.ids.Memory()
	}
	apply := func(n int, command func(i int) timer.Command) {
		t.Helper()
		var b Batch
		b.Reset(d.now, 1, 1)
		for i := range n {
			c := command(i)
			c.Topic = 1
			b.Command(&c)
		}
		if _, err := d.table.Apply(b.Bytes(), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	const n = 30_000
	apply(n, func(i int) timer.Command {
		return timer.Command{Kind: timer.Add, ID: fmt.Sprint(i / 2), Merge: timer.MergeCollect, Spec: &timer.Spec{DueMs: d.now + 60_000, PayloadKind: timer.JSONPayload,
			Payload: []byte("1"), Collect: &timer.Collect{Max: 1, Part: fmt.Sprint(i % 2)}, OnDone: &timer.OutcomeTopic{ID: 7, Name: "ends"}}}
	})
	most := few()
	for from := 0; from < n/2-1; from += 500 {
		apply(min(500, n/2-1-from), func(i int) timer.Command { return timer.Command{Kind: timer.Cancel, ID: fmt.Sprint(from + i)} })
	}
	d.now += finishedKeepMs + 1
	for range n / dropsPerEntry {
		apply(1, func(int) timer.Command { return timer.Command{Kind: timer.Cancel, ID: "none"} })
	}
	for i, r := range []room{d.table.arraysRoom, d.table.partsRoom, d.table.waitingRoom, d.table.chainRoom, d.table.naming.room} {
		if r > leastRoom {
			t.Errorf("map %d has room for %d", i, r)
		}
	}
	if few() > most/4 {
		t.Errorf("%d bytes, of %d with %d timers", few(), most, n)
	}
	if err := d.table.Audit(false); err != nil {
		t.Error(err)
	}
}
