package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"carillon/test/memfs"
)

// replayed is the result for each of frameOf's shards.
type replayed struct {
	mu     sync.Mutex
	shards [5][]string
}

func (rd *replayed) take(pos Position, r Record) error {
	line := fmt.Sprintf("%v %v %x", pos, r.Type, r.Data)
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.shards[r.Shard] = append(rd.shards[r.Shard], line)
	return nil
}

// wide is a record of more than a lane gets at a time.
func wide(shard uint32, size int) *Frame {
	f := NewFrame()
	f.Append(RecordEntries, shard, bytes.Repeat([]byte{byte(shard + 1)}, size))
	f.Append(RecordHardState, shard, nil)
	return f
}

// TestReplayersKeepEachShardsOrder: on however many goroutines, each shard gets the records that a
// replay on one gives it.
func TestReplayersKeepEachShardsOrder(t *testing.T) {
	fsys := memfs.New()
	opt := Options{GenBytes: 4 << 20, SegmentBytes: 1 << 20}
	s, err := Open(fsys, testDir, opt, nil)
	must(t, err)
	appendAll(t, s, 0, 300)
	for i, size := range []int{1, laneBytes - 1, laneBytes, laneBytes + 1, 3 * laneBytes, 10, laneBytes / 2, laneBytes / 2, 1} {
		must(t, s.Submit(wide(uint32(i%2), size), true, nil))
	}
	must(t, s.Close())
	var want replayed
	s, err = Open(fsys, testDir, opt, want.take)
	must(t, err)
	must(t, s.Close())
	for _, n := range []int{1, 2, 3, 5, 8} {
		var got replayed
		opt.Replayers = n
		s, err := Open(fsys, testDir, opt, got.take)
		must(t, err)
		must(t, s.Close())
		for shard := range want.shards {
			if !slices.Equal(got.shards[shard], want.shards[shard]) {
				t.Errorf("%d goroutines: shard %d had %d records, want %d in their order", n, shard, len(got.shards[shard]), len(want.shards[shard]))
			}
		}
	}
}

// TestReplayersFirstError: whichever records are refused, and with any damage behind them, the
// error is that of a replay on one goroutine, and nothing was changed.
func TestReplayersFirstError(t *testing.T) {
	const n = 60
	for bad := 1; bad < n; bad += 7 {
		for _, damaged := range []bool{false, true} {
			fsys := built(t, n, false)
			if damaged {
				list := segments(t, fsys)
				must(t, fsys.FlipBit(list[len(list)/2], 8*60))
			}
			open := func(replayers int) error {
				copied := copyFS(fsys)
				opt := small()
				opt.Replayers = replayers
				before := files(t, copied, testDir)
				_, err := Open(copied, testDir, opt, func(_ Position, r Record) error {
					if i := int(binary.LittleEndian.Uint32(r.Data)); i >= bad {
						return fmt.Errorf("record %d is refused", i)
					}
					return nil
				})
				if after := files(t, copied, testDir); err != nil && !slices.Equal(before, after) {
					t.Errorf("%d goroutines: files were %q, now %q", replayers, before, after)
				}
				return err
			}
			want := open(1)
			if want == nil {
				t.Fatal("no error")
			}
			for _, replayers := range []int{2, 3, 4} {
				if err := open(replayers); err == nil || err.Error() != want.Error() {
					t.Errorf("%d goroutines: %v, want %v", replayers, err, want)
				}
			}
		}
	}
}

// TestReplayersMeetDamage: damage is the error when no record before it was refused.
func TestReplayersMeetDamage(t *testing.T) {
	fsys := built(t, 60, false)
	list := segments(t, fsys)
	must(t, fsys.FlipBit(list[len(list)/2], 8*60))
	opt := small()
	opt.Replayers = 3
	var c *CorruptionError
	if _, err := Open(fsys, testDir, opt, func(Position, Record) error { return nil }); !errors.As(err, &c) || c.Segment == "" {
		t.Errorf("%v", err)
	}
}
