package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"carillon/vfs"
	"carillon/vfs/memfs"
)

// salvaged is the result of a read through damage: records by frame, and the lost ones.
type salvaged struct {
	damaged *DamagedStream
	records map[uint64]string
	seqs    []uint64
}

func salvageAll(fsys vfs.FS) (*salvaged, error) {
	s := &salvaged{records: map[uint64]string{}}
	var err error
	s.damaged, err = ScanDamaged(fsys, testDir, func(pos Position, r Record) error {
		s.records[pos.Seq] += string(r.Data)
		s.seqs = append(s.seqs, pos.Seq)
		return nil
	}, func(*Damage) error { return nil })
	return s, err
}

func (s *salvaged) lost(seq uint64) bool {
	for _, d := range s.damaged.Damages {
		if d.First <= seq && seq <= d.Last {
			return true
		}
	}
	return false
}

// patches are records for the lost frames, as these held them.
func (s *salvaged) patches(was *salvaged) [][]Record {
	list := make([][]Record, len(s.damaged.Damages))
	for k, d := range s.damaged.Damages {
		for seq := d.First; seq <= d.Last; seq++ {
			list[k] = append(list[k], Record{Type: RecordEntries, Shard: 1, Data: []byte(was.records[seq])})
		}
	}
	return list
}

// TestSalvage damages closed segments at random, in one or two places: the records that are read
// are those that were written, all others are told to be lost, and once it is repaired the stream
// opens, with the records that were put in the place of the lost.
func TestSalvage(t *testing.T) {
	const n = 60
	rounds := 4000
	if testing.Short() {
		rounds = 500
	}
	r := rand.New(rand.NewPCG(3, 9))
	mended := 0
	for i := range rounds {
		clean := i%2 == 0
		whole := built(t, n, clean)
		was, err := salvageAll(whole)
		must(t, err)
		if len(was.damaged.Damages) != 0 || len(was.seqs) != n {
			t.Fatalf("%d records, %v", len(was.seqs), was.damaged.Damages)
		}
		fsys := copyFS(whole)
		list := segments(t, whole)
		for range 1 + r.IntN(2) {
			path := list[r.IntN(len(list)-1)]
			must(t, fsys.Damage(path, func(b []byte) []byte {
				kind := []string{"flip", "zeros", "misplaced", "garbage", "cut"}[r.IntN(5)]
				if kind == "cut" {
					return b[:r.IntN(len(b)+1)]
				}
				if len(b) > 0 {
					damage(r, kind, b)
				}
				return b
			}))
		}
		got, err := salvageAll(fsys)
		must(t, err)
		for seq := uint64(1); seq <= n; seq++ {
			if text, read := got.records[seq]; read == got.lost(seq) || read && text != was.records[seq] {
				t.Fatalf("round %d, frame %d: read %v, lost %v", i, seq, read, got.lost(seq))
			}
		}
		if len(got.damaged.Damages) == 0 {
			continue
		}
		mended++
		must(t, got.damaged.Repair(5, got.patches(was)))
		back := &strings.Builder{}
		s, err := Open(fsys, testDir, small(), func(_ Position, r Record) error { back.Write(r.Data); return nil })
		if err != nil {
			t.Fatalf("round %d: %v\n%v", i, err, got.damaged.Damages)
		}
		if want := was.text(n); back.String() != want {
			t.Fatalf("round %d: %d bytes came back, want %d", i, back.Len(), len(want))
		}
		must(t, s.Close())
		if _, err := Verify(fsys, testDir); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if mended < rounds/2 {
		t.Errorf("only %d of %d were damaged", mended, rounds)
	}
}

func (s *salvaged) text(n uint64) string {
	var b strings.Builder
	for seq := uint64(1); seq <= n; seq++ {
		b.WriteString(s.records[seq])
	}
	return b.String()
}

// TestSalvageRefuses damage that can only be the end of the log, and frames that nothing confirms.
func TestSalvageRefuses(t *testing.T) {
	refused := func(what string, clean bool, change func(fsys *memfs.FS, list []string)) {
		t.Helper()
		fsys := built(t, 126, clean)
		change(fsys, segments(t, fsys))
		var c *CorruptionError
		if _, err := salvageAll(fsys); !errors.As(err, &c) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("damage before synced frames, after a power cut", false, func(fsys *memfs.FS, list []string) {
		must(t, fsys.FlipBit(list[len(list)-1], 8*45))
	})
	refused("no FIRST", true, func(fsys *memfs.FS, _ []string) { must(t, fsys.Remove(testDir+"/"+firstName)) })
	refused("END is damaged", true, func(fsys *memfs.FS, _ []string) { must(t, fsys.FlipBit(testDir+"/"+endName, 99)) })
	refused("a generation is gone", true, func(fsys *memfs.FS, list []string) {
		dir := genPath(testDir, 2)
		must(t, vfs.RemoveTree(fsys, dir))
	})
}

// TestSalvageIsNotFooled: a client's bytes may look like frames. Where the frame around them is
// damaged they are not taken for any.
func TestSalvageIsNotFooled(t *testing.T) {
	fsys := memfs.New()
	s, err := Open(fsys, testDir, Options{GenBytes: 6000, SegmentBytes: 2000, Salt: small().Salt}, nil)
	must(t, err)
	for seq := uint64(1); seq <= 30; seq++ {
		f := NewFrame()
		f.Append(RecordEntries, 1, forge(bytes.Repeat([]byte{'x'}, 50), seq+1, 4))
		must(t, s.Submit(f, true, nil))
		_, err := s.Step()
		must(t, err)
	}
	must(t, s.Close())
	list := segments(t, fsys)
	for _, path := range list {
		for at := int64(1); at < 60; at += 7 {
			broken := copyFS(fsys)
			must(t, broken.FlipBit(path, 8*at))
			got, err := salvageAll(broken)
			must(t, err)
			for seq, text := range got.records {
				if text == "forged" {
					t.Fatalf("%s at %d: frame %d is a client's", path, at, seq)
				}
			}
			if len(got.damaged.Damages) != 1 || got.damaged.Damages[0].Lost() != 1 {
				t.Fatalf("%s at %d: lost %v", path, at, got.damaged.Damages)
			}
		}
	}
}

// TestMendSurvivesCrashes: at each effect of a repair the power is cut; then the stream is damaged
// as before, or repaired, or in part, and repair it again has the same end.
func TestMendSurvivesCrashes(t *testing.T) {
	whole := built(t, 60, true)
	was, err := salvageAll(whole)
	must(t, err)
	damaged := copyFS(whole)
	list := segments(t, damaged)
	for _, k := range []int{1, 3, 4} {
		must(t, damaged.FlipBit(list[k], 8*45))
	}
	must(t, damaged.Damage(list[2], func(b []byte) []byte { return b[:len(b)/2] }))
	crashed := errors.New("crash")
	points := 0
	for at := 1; ; at++ {
		random := rand.New(rand.NewPCG(uint64(at), 4))
		for _, keep := range []int{0, 50, 100} {
			fsys := copyFS(damaged)
			got, err := salvageAll(fsys)
			must(t, err)
			var clone *memfs.FS
			left := at
			fsys.SetHook(func(_ int, op memfs.Op, _ string) error {
				if !op.Changes() {
					return nil
				}
				if left--; left == 0 {
					clone = fsys.CrashClone(random, memfs.CrashOptions{KeepData: keep, KeepSize: keep, KeepNames: keep})
				}
				if left <= 0 {
					return crashed
				}
				return nil
			})
			err = got.damaged.Repair(5, got.patches(was))
			if clone == nil {
				must(t, err)
				if points < 10 {
					t.Errorf("only %d effects", points)
				}
				return
			}
			points++
			again, err := salvageAll(clone)
			if err != nil {
				t.Fatalf("effect %d: %v", at, err)
			}
			must(t, again.damaged.Repair(6, again.patches(was)))
			back := &strings.Builder{}
			s, err := Open(clone, testDir, small(), func(_ Position, r Record) error { back.Write(r.Data); return nil })
			if err != nil {
				t.Fatalf("effect %d: %v", at, err)
			}
			if back.String() != was.text(60) {
				t.Fatalf("effect %d: other records", at)
			}
			must(t, s.Close())
		}
	}
}

// TestMendedFrames: as many as were lost, of which the last has the chain value of the next one;
// more than one of them where there is much.
func TestMendedFrames(t *testing.T) {
	d := &Damage{First: 4, Last: 6, after: 9, bounded: true}
	big := Record{Type: RecordEntries, Shard: 1, Data: make([]byte, mendedFrameBytes)}
	b, prev, err := d.frames(testSalt, 1, 3, []Record{big, big, big})
	must(t, err)
	c := chain{next: 4, prevHash: 3, salt: testSalt}
	var sizes []int
	end, bad, err := c.scan(b, func(_ int, h header, records []byte) error {
		sizes = append(sizes, len(records))
		return nil
	})
	must(t, err)
	if bad != nil || end != len(b) || c.next != 7 || c.prevHash != 9 || prev != 9 || fmt.Sprint(sizes) != fmt.Sprint([]int{len(big.Data) + 9, len(big.Data) + 9, len(big.Data) + 9}) {
		t.Fatalf("%v at %d, then frame %d behind %d (%d), %v", bad, end, c.next, c.prevHash, prev, sizes)
	}
	if _, _, err := d.frames(testSalt, 1, 3, []Record{{Data: make([]byte, MaxFrameBytes)}}); !errors.Is(err, ErrFrameTooLarge) {
		t.Errorf("%v", err)
	}
	short := NewFrame()
	testSalt.seal(short.buf, header{seq: 4, splice: true})
	if _, _, err := testSalt.open(short.buf); !errors.Is(err, errRecords) {
		t.Errorf("a bridge without its value: %v", err)
	}
}
