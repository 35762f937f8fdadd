package shard

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/wal"
)

// anyTopic is a registry that has every topic.
type anyTopic struct{}

func (anyTopic) Topic(id timer.TopicID) (*timer.Topic, bool) {
	return &timer.Topic{ID: id, Policy: timer.DefaultPolicy()}, true
}

func (anyTopic) Named(string) (*timer.Topic, bool) { return nil, false }
func (anyTopic) Given(timer.TopicID) bool          { return true }
func (anyTopic) Current() bool                     { return true }

// fewTimers is a table with 20 timers that are due in the future.
func fewTimers(t *testing.T) *table.Table {
	t.Helper()
	tbl := table.New(7, fakeEpochMs)
	var b table.Batch
	b.Reset(fakeEpochMs, 1, 1)
	for i := range 20 {
		b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: fmt.Sprint(i), Spec: &timer.Spec{DueMs: fakeEpochMs + int64(i+1)*60_000, Payload: []byte("{}"), PayloadKind: timer.JSONPayload}})
	}
	if _, err := tbl.Apply(b.Bytes(), nil, nil); err != nil {
		t.Fatal(err)
	}
	return tbl
}

// image returns a table's snapshot.
func image(t *table.Table) []byte {
	b, _ := t.BeginSnapshot().Next(nil, 1<<30)
	return b
}

// TestWriteRestored: WriteRestored verifies a restored table and writes it as the only snapshot,
// for its own shard.
func TestWriteRestored(t *testing.T) {
	fsys := memfs.New()
	if err := wal.PrepareSnapshotDir(fsys, SnapshotsDir("/data")); err != nil {
		t.Fatal(err)
	}
	o := table.Restore{Owner: 77 << 24, NowMs: fakeEpochMs, Topics: anyTopic{}}
	tbl, err := o.Table(7, bytes.NewReader(image(fewTimers(t))))
	if err != nil {
		t.Fatal(err)
	}
	row := Assignment{Group: 7, Epoch: 1, Settled: true, Members: []Member{{Node: 77, Replica: ReplicaID(77, 1)}}}
	if n := tbl.Totals().Scheduled; n != 20 {
		t.Fatalf("%d timers are scheduled", n)
	}
	hash := tbl.Hash()
	err = WriteRestored(fsys, "/data", row, tbl.BeginSnapshot(), func(r io.Reader) error {
		got, err := table.Load(7, r)
		if err == nil && got.Hash() != hash {
			err = fmt.Errorf("hash %x, want %x", got.Hash(), hash)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := wal.Snapshots(fsys, SnapshotsDir("/data"))
	if err != nil || len(list) != 1 || list[0].Shard != 7 || list[0].Index != restoredIndex {
		t.Errorf("%+v, %v", list, err)
	}
}
