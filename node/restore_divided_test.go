package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"carillon/internal/backup"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/test/testkit"
	"carillon/timer"
)

// TestRestoreInTheMiddleOfADoubling: a backup has a shard that was divided, which still has all,
// some or nothing of the half that left, its child, and a shard that was not divided. What is
// restored of it has each timer once, ends its doubling, and doubles again.
func TestRestoreInTheMiddleOfADoubling(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	const many = 200
	n := start(t, t.TempDir(), func(c *Config) { c.Shards, c.FeatureLevel = 2, 1 }) // tests have a level more
	n.must(201, "PUT", "/v1/topics/kept", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	for k := range many {
		n.must(201, "PUT", fmt.Sprintf("/v1/topics/kept/timers/t%d", k), `{"delay":"1h","payload":1}`)
	}
	var made bytes.Buffer
	testkit.Must(t, n.node.run.Load().core.Load().Backup(t.Context(), &made))
	for _, swept := range []int{0, 20, math.MaxInt32} {
		file := filepath.Join(t.TempDir(), "backup")
		testkit.Must(t, os.WriteFile(file, divideBackup(t, made.Bytes(), swept), 0o600))
		dir := filepath.Join(t.TempDir(), "data")
		if _, err := Restore(RestoreConfig{From: file, DataDir: dir, Name: "again"}); err != nil {
			t.Fatal(err)
		}
		again := start(t, dir, func(c *Config) { c.Name = "again" })
		whole := func() {
			t.Helper()
			var list struct{ Timers []struct{ ID string } }
			testkit.Must(t, json.Unmarshal([]byte(again.must(200, "GET", "/v1/topics/kept/timers?limit=1000", "")), &list))
			seen := map[string]bool{}
			for _, x := range list.Timers {
				seen[x.ID] = true
			}
			if len(list.Timers) != many || len(seen) != many {
				t.Errorf("%d timers are listed, %d different ones, want %d", len(list.Timers), len(seen), many)
			}
		}
		again.awaitGrown(4)
		whole()
		again.insist("POST", "/v1/cluster/shards", `{"shards":8}`)
		again.awaitGrown(8)
		whole()
		if err := again.stop(); err != nil {
			t.Error(err)
		}
	}
}

// divideBackup makes of a backup of two shards one of the moment at which the first of them has
// been divided, and so many slots of the half that left are dropped.
func divideBackup(t *testing.T, made []byte, swept int) []byte {
	t.Helper()
	in, err := backup.NewReader(bytes.NewReader(made))
	testkit.Must(t, err)
	states := map[timer.ShardID][]byte{}
	for {
		s, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			states[s.Group], err = io.ReadAll(in)
		}
		testkit.Must(t, err)
	}
	meta := ring.NewState(nil, nil)
	saved, _, err := meta.Read(bytes.NewReader(states[shard.Meta]))
	testkit.Must(t, err)
	meta.Replace(saved)
	for _, c := range []ring.Command{{Verb: ring.SetShards, Shards: 4}, {Verb: ring.Divide, Group: 1, Epoch: 1}, {Verb: ring.Reconciled, Group: 3, Epoch: 1}} {
		if r, err := meta.Apply(1, c.Encode()); err != nil || r.(ring.Reply).Err != nil {
			t.Fatal(r, err)
		}
	}
	parent, err := table.Load(1, bytes.NewReader(states[1]))
	testkit.Must(t, err)
	half := make([]uint64, parent.LastHandle()>>6+1)
	left := 0
	parent.Newer(0, 0, math.MaxInt, func(h timer.Handle, topic timer.TopicID, id []byte) {
		if named, ok := meta.Topic(topic); ok && timer.ShardOf(named, string(id), 4) == 3 {
			half[h>>6] |= 1 << (h & 63)
			left++
		}
	})
	entry := func(put func(b *table.Batch) int) {
		var b table.Batch
		b.Reset(parent.ClockMs(), 0, 1)
		put(&b)
		if r, err := parent.Apply(b.Bytes(), nil, nil); err != nil || r[0].Code != timer.OK {
			t.Fatal(r, err)
		}
	}
	entry(func(b *table.Batch) int { return b.Divide(4, half) })
	child, err := table.LoadChild(1, 3, bytes.NewReader(savedWhole(parent.BeginChild())))
	if err != nil || left == 0 {
		t.Fatal(left, err)
	}
	if swept > 0 {
		entry(func(b *table.Batch) int { return b.Sweep(swept) })
	}
	var out bytes.Buffer
	w, err := backup.NewWriter(&out, in.Head(), nil, nil)
	testkit.Must(t, err)
	put := func(id timer.ShardID, hash uint64, state []byte) {
		testkit.Must(t, w.Begin(id, 0, uint64(len(state)), hash))
		_, _ = w.Write(state)
		testkit.Must(t, w.End())
	}
	other, err := table.Load(2, bytes.NewReader(states[2]))
	testkit.Must(t, err)
	put(2, other.Hash(), states[2])
	put(3, child.Hash(), savedWhole(child.BeginSnapshot()))
	put(1, parent.Hash(), savedWhole(parent.BeginSnapshot()))
	put(shard.Meta, meta.Hash(), savedWhole(meta.BeginSave()))
	testkit.Must(t, w.Close())
	return out.Bytes()
}

// savedWhole is a snapshot in one piece.
func savedWhole(s timer.Saving) (b []byte) {
	for done := false; !done; {
		b, done = s.Next(b, 1<<20)
	}
	return b
}
