package table

import (
	"testing"

	"carillon/timer"
)

// TestSnapshotOfDamagedMemory: a snapshot of a table in which a bit of a slot, of a timer's content, of
// the index or of a sum has changed by itself is unsound.
func TestSnapshotOfDamagedMemory(t *testing.T) {
	for name, damage := range map[string]func(t *Table, h timer.Handle){
		"nothing": func(*Table, timer.Handle) {},
		"slot":    func(t *Table, h timer.Handle) { s := t.slots.At(h); s.SetWhen(s.When() ^ 1<<5) },
		"content": func(t *Table, h timer.Handle) { v := t.content.View(t.slots.At(h).Ref); v.Rest[len(v.Rest)-1] ^= 4 },
		"index": func(t *Table, h timer.Handle) {
			t.ids.Remove(t.idHash(1, t.content.View(t.slots.At(h).Ref).ID), uint32(h))
		},
		"sum": func(t *Table, _ timer.Handle) { t.slotSum ^= 1 << 9 },
	} {
		d := newTableHarness(t)
		d.command(timer.Command{Kind: timer.Put, Spec: &timer.Spec{DueMs: applyNow + 1000, Payload: []byte("1"), PayloadKind: timer.JSONPayload}})
		h, _ := d.table.Lookup(1, "a")
		damage(d.table, h)
		s := d.table.BeginSnapshot()
		for done := false; !done; {
			_, done = s.Next(nil, 1000)
		}
		if s.Sound() != (name == "nothing") {
			t.Errorf("%s: sound %v", name, s.Sound())
		}
	}
}
