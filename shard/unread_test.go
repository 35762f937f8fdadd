package shard

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/test/memfs"
)

// idleShard makes a harness with an idle shard 1 that has a timer called "kept" and the given
// number of snapshots. The log has only the location of the newest snapshot.
func idleShard(t *testing.T, snapshots int, run func(r *hostHarness, files []string)) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		g := r.host.group(1)
		for i := range snapshots - 1 {
			r.add(fmt.Sprint("old", i), time.Hour)
			r.take(g)
		}
		r.add("kept", time.Hour)
		r.take(g)
		shardOf(g).canary.next = 1 << 62
		r.fillMeta(8)
		r.snapshots()
		var files []string
		for _, s := range r.snapshotFiles(1) {
			files = append(files, r.host.snapshotDir()+"/"+s.Name)
		}
		if g.files.Older() != g.files.Newest.Index || r.oldest() == 1 || len(files) != snapshots {
			t.Fatalf("older %d, newest %d, log from generation %d, %d snapshots", g.files.Older(), g.files.Newest.Index, r.oldest(), len(files))
		}
		r.kill()
		run(r, files)
	})
}

// TestReadErrorOfASnapshotIsNoDamage: a host that cannot read a snapshot it needs stops with that
// error. It does not report damage, which would mean discarding the data. Once the disk is readable
// again, nothing is lost.
func TestReadErrorOfASnapshotIsNoDamage(t *testing.T) {
	for snapshots := 1; snapshots <= 2; snapshots++ {
		for after := range 4 { // its opening and its first reads
			t.Run(fmt.Sprint(snapshots, " snapshots, read ", after), func(t *testing.T) {
				idleShard(t, snapshots, func(r *hostHarness, files []string) {
					reads := 0
					r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
						if op.Changes() || name != files[0] {
							return nil
						}
						if reads++; reads <= after {
							return nil
						}
						return syscall.EIO
					})
					err := r.open()
					if reads <= after {
						t.Fatalf("%d reads", reads)
					}
					if !errors.Is(err, syscall.EIO) || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "empty") {
						t.Errorf("it ends with: %v", err)
					}
					if err == nil {
						r.kill()
					}
					r.fs.SetHook(nil)
					r.mustOpen()
					r.wantState("kept", "scheduled 0")
					r.audit()
				})
			})
		}
	}
}

// TestReadErrorOfANeedlessSnapshot: an unreadable snapshot does not matter if the one before it and
// the log have everything.
func TestReadErrorOfANeedlessSnapshot(t *testing.T) {
	bubbleHarness(t, smallLog, func(r *hostHarness) {
		r.add("first", time.Hour)
		r.take(r.host.group(1))
		r.add("last", time.Hour)
		r.take(r.host.group(1))
		newest := r.host.snapshotDir() + "/" + r.snapshotFiles(1)[0].Name
		r.kill()
		r.fs.SetHook(func(_ int, op memfs.Op, name string) error {
			if op == memfs.OpRead && name == newest {
				return syscall.EIO
			}
			return nil
		})
		r.mustOpen()
		r.wantState("first", "scheduled 0")
		r.wantState("last", "scheduled 0")
		r.audit()
	})
}

// TestDamagedOnlySnapshotOfIdleShard: a shard with only the location of its snapshot in the log is
// not started empty if that snapshot is damaged.
func TestDamagedOnlySnapshotOfIdleShard(t *testing.T) {
	idleShard(t, 1, func(r *hostHarness, files []string) {
		if err := r.fs.Damage(files[0], func(b []byte) []byte { b[len(b)/2] ^= 1; return b }); err != nil {
			t.Fatal(err)
		}
		if err := r.open(); err == nil {
			t.Errorf("it starts; the timer is %s", r.state("kept"))
		}
	})
}
