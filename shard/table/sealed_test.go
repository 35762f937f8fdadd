package table

import (
	"bytes"
	"maps"
	"testing"

	"carillon/internal/secret"
	"carillon/timer"
)

// TestSealedValuesAreCounted: sealed header values are counted once for each override in use,
// through changes, merges, ends and a snapshot.
func TestSealedValuesAreCounted(t *testing.T) {
	seal := func(c byte, text string) string {
		keys, err := secret.New([][]byte{bytes.Repeat([]byte{c}, secret.KeyBytes)})
		if err != nil {
			t.Fatal(err)
		}
		return keys.Seal(secret.OfTimer(1, "X-Key"), text)
	}
	id := func(c byte) string { return secret.KeyOf(seal(c, "x")) }
	spec := func(values ...string) *timer.Spec {
		s := &timer.Spec{DueMs: 5_000, Callback: timer.Callback{URL: "http://h/", Method: "PUT", HasHeaders: true, TimeoutMs: 5}}
		for i, v := range values {
			s.Callback.Headers = append(s.Callback.Headers, timer.Header{Name: "X-Key-" + string(rune('a'+i)), Value: v})
		}
		return s
	}
	d := newTableHarness(t)
	steps := []struct {
		cmd  timer.Command
		want map[string]int64
	}{
		{timer.Command{Kind: timer.Add, Topic: 1, ID: "clear", Spec: spec("clear", "\x02", "")}, nil},
		{timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: spec(seal('a', "1"), "clear", seal('b', "2"))}, map[string]int64{id('a'): 1, id('b'): 1}},
		{timer.Command{Kind: timer.Add, Topic: 1, ID: "a2", Spec: spec(seal('a', "1"), "clear", seal('b', "2"))}, map[string]int64{id('a'): 1, id('b'): 1}},
		{timer.Command{Kind: timer.Add, Topic: 1, ID: "a3", Spec: spec(seal('a', "3"))}, map[string]int64{id('a'): 2, id('b'): 1}},
		{timer.Command{Kind: timer.Put, Topic: 1, ID: "a", Spec: spec(seal('b', "1"))}, map[string]int64{id('a'): 2, id('b'): 2}},
		{timer.Command{Kind: timer.Put, Topic: 1, ID: "a2", Spec: spec()}, map[string]int64{id('a'): 1, id('b'): 1}},
		// This is then the override that "a" already has.
		{timer.Command{Kind: timer.Modify, Topic: 1, ID: "a3", Patch: &timer.Patch{Headers: true, Spec: *spec(seal('b', "1"))}}, map[string]int64{id('b'): 1}},
		{timer.Command{Kind: timer.Modify, Topic: 1, ID: "a3", Patch: &timer.Patch{Headers: true, Method: true, Timeout: true, Spec: *spec("clear")}}, map[string]int64{id('b'): 1}},
		{timer.Command{Kind: timer.CloseTopic, Topic: 1, Force: true}, nil},
	}
	for i, s := range steps {
		d.command(s.cmd)
		loaded, err := Load(1, bytes.NewReader(image(d.table)))
		if err != nil {
			t.Fatal(err)
		}
		for name, table := range map[string]*Table{"live": d.table, "loaded": loaded} {
			if got := table.SealedBy(nil); !maps.Equal(got, s.want) {
				t.Errorf("step %d, %s: %v, want %v", i, name, got, s.want)
			}
		}
	}
}
