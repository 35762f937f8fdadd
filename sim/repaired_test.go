package sim

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/shard/repair"
	"carillon/timer"
	"carillon/vfs/memfs"
	"carillon/wal"
)

// mendedTally counts the results of damaging several disks of a cluster at once.
type mendedTally struct {
	damaged, untouched, refused, missing, wrong, mended, fetched int
	why                                                          map[string]int
}

// TestMendedIsAsItWas: in a cluster with all kinds of faults the disks are copied now and then.
// Several copies are damaged in random places and repaired from each other. A repaired disk opens
// and has the same replicas, votes, log ends and states as the undamaged disk. A repair is refused,
// and counted, if its log would read back differently; that is rare.
func TestMendedIsAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	runs := 12
	if underRace {
		runs = 4
	}
	if v, err := strconv.Atoi(os.Getenv("CARILLON_MENDS")); err == nil {
		runs = v
	}
	sum := mendedTally{why: map[string]int{}}
	for seed := uint64(1); seed <= uint64(runs); seed++ {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 31))
			r := Run(Config{Seed: seed, Settle: synctest.Wait, Change: func(p *Plan) {
				p.nodes, p.replicas, p.wipes, p.rots, p.full, p.early = 3+int(seed%2), 3, 0, 0, 0, false
				p.segmentBytes, p.genBytes = 4<<10, 16<<10<<random.IntN(4)
				p.crashes, p.powerCuts = 0.2, 0.05
			}, script: func(w *World) {
				w.lay()
				w.found()
				w.employ()
				w.nemesis()
				for range 6 {
					w.pass(4 * time.Second)
					for range 4 {
						w.mendCopies(t, random, &sum)
					}
				}
			}})
			if r.Err != nil {
				t.Fatalf("seed %d: %v", seed, r.Err)
			}
		})
	}
	t.Logf("%d damaged: %d as before, %d refused at once, %d with entries that nobody has, %d that would read otherwise, %d repaired with %d entries",
		sum.damaged, sum.untouched, sum.refused, sum.missing, sum.wrong, sum.mended, sum.fetched)
	for _, why := range slices.Sorted(func(yield func(string) bool) {
		for k := range sum.why {
			if !yield(k) {
				return
			}
		}
	}) {
		t.Logf("%5d %s", sum.why[why], why)
	}
	if sum.mended < sum.damaged/4 || sum.wrong > sum.mended/20 {
		t.Errorf("too few are repaired")
	}
}

// mendCopies damages copies of the disks and repairs them.
func (w *World) mendCopies(t *testing.T, random *rand.Rand, sum *mendedTally) {
	disks := map[*node]*memfs.FS{}
	var broken []*node
	for _, n := range w.nodes {
		if id, _ := identityOn(n.disk); n.gone || !id.Founded {
			continue
		}
		disks[n] = n.disk.CrashClone(random, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
		if random.IntN(3) > 0 {
			broken = append(broken, n)
		}
	}
	whole := map[*node]*memfs.FS{}
	broken = slices.DeleteFunc(broken, func(n *node) bool {
		whole[n] = disks[n].CrashClone(random, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
		segments := n.segmentsOn(disks[n])
		for range 1 + random.IntN(2) {
			if len(segments) < 2 {
				return true
			}
			path := segments[random.IntN(len(segments)-1)]
			if err := disks[n].Damage(path, func(b []byte) []byte { return wreck(random, b) }); err != nil {
				t.Fatal(err)
			}
		}
		return false
	})
	menders := map[*node]*repair.Repairer{}
	for _, n := range broken {
		sum.damaged++
		if _, err := n.openOn(disks[n].CrashClone(random, memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})); err == nil {
			sum.untouched++
			continue
		}
		m, err := repair.New(disks[n], dataDir, w.swarm.shards)
		if err != nil {
			sum.refused++
			sum.why[blur(err)]++
			continue
		}
		menders[n] = m
	}
	for _, n := range broken {
		if m := menders[n]; m != nil {
			w.mendCopy(t, n, m, disks, whole[n], sum)
		}
	}
}

func (w *World) mendCopy(t *testing.T, n *node, m *repair.Repairer, disks map[*node]*memfs.FS, was *memfs.FS, sum *mendedTally) {
	asked := []*node{n}
	for _, other := range w.nodes {
		if other != n && disks[other] != nil {
			asked = append(asked, other)
		}
	}
	fetched := m.Missing()
	for _, other := range asked {
		answer, err := repair.Answer(disks[other], dataDir, w.swarm.shards, m.Questions())
		if err != nil {
			continue // damaged where nothing more can be told
		}
		if _, err := m.Take(answer); err != nil {
			t.Fatal(err)
		}
	}
	if m.Missing() > 0 {
		sum.missing++
		return
	}
	if err := m.Write(w.now.Milliseconds()); err != nil {
		sum.wrong++
		sum.why[blur(err)]++
		return
	}
	sum.mended++
	sum.fetched += fetched
	before, err := n.openOn(was)
	if err != nil {
		t.Fatalf("seed %d: the undamaged disk does not open: %v", w.cfg.Seed, err)
	}
	after, err := n.openOn(disks[n])
	if err != nil {
		t.Fatalf("seed %d at %s: a repaired disk does not open: %v\n%v", w.cfg.Seed, w.now, err, m.Damages())
	}
	for id := timer.ShardID(0); int(id) <= w.swarm.shards; id++ {
		a, b := before.Progress(id), after.Progress(id)
		if a.Replica != b.Replica || a.HardTerm != b.HardTerm || a.Vote != b.Vote || a.Last != b.Last || b.Applied > a.Applied {
			t.Fatalf("seed %d at %s, group %d: %+v before, %+v after\n%v", w.cfg.Seed, w.now, id, a, b, m.Damages())
		}
		if id == shard.Meta || a.Applied != b.Applied || a.Replica == 0 {
			continue
		}
		one, _ := before.Inspect(id)
		two, _ := after.Inspect(id)
		if one.Hash() != two.Hash() {
			t.Fatalf("seed %d at %s, group %d: another state at entry %d\n%v", w.cfg.Seed, w.now, id, a.Applied, m.Damages())
		}
	}
}

// openOn opens a disk as a machine's next process would.
func (n *node) openOn(disk *memfs.FS) (*shard.Host, error) {
	host, err := shard.New(n.hostConfig(disk, whoseDisk(disk), ring.NewState(func() {}, func() {})))
	if err == nil {
		err = host.Open()
	}
	if err != nil {
		return nil, err
	}
	host.Abandon()
	return host, nil
}

// segmentsOn are the segments on a disk that hold frames.
func (n *node) segmentsOn(disk *memfs.FS) (list []string) {
	had := n.disk
	n.disk = disk
	defer func() { n.disk = had }()
	for _, path := range n.files(filepath.Join(dataDir, "wal", "0"), true) {
		if n.content(path) > 0 && len(filepath.Base(path)) == 20 {
			list = append(list, path)
		}
	}
	return list
}

// wreck damages a file as bit rot does: a flip, a cut, zeros, garbage, or two swapped sectors.
func wreck(r *rand.Rand, b []byte) []byte {
	if len(b) < 2 {
		return nil
	}
	at := r.IntN(len(b))
	end := min(len(b), at+1+r.IntN(600))
	switch r.IntN(6) {
	case 0, 1:
		b[at] ^= 1 << r.IntN(8)
	case 2:
		return b[:at]
	case 3:
		clear(b[at:end])
	case 4:
		for ; at < end; at++ {
			b[at] = byte(r.Uint32())
		}
	default:
		const sector = 512
		if one, two := at/sector*sector, r.IntN(len(b))/sector*sector; max(one, two)+sector <= len(b) {
			kept := slices.Clone(b[one : one+sector])
			copy(b[one:one+sector], b[two:two+sector])
			copy(b[two:two+sector], kept)
		}
	}
	return b
}

// blur removes the numbers from an error, so that errors of one kind can be counted.
func blur(err error) string {
	var damage *wal.CorruptionError
	if errors.As(err, &damage) {
		return "damage: " + damage.Err.Error()
	}
	text := []byte(err.Error())
	for i, c := range text {
		if c >= '0' && c <= '9' {
			text[i] = '#'
		}
	}
	return string(slices.CompactFunc(text, func(a, b byte) bool { return a == '#' && b == '#' }))
}
