package sim

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/member"
	"carillon/ring"
	"carillon/shard"
	"carillon/test/memfs"
	"carillon/timer"
)

// ways are the treatments of unsynced data by a power cut.
var ways = []struct {
	name string
	opt  memfs.CrashOptions
}{
	{"kept", memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100}},
	{"lost", memfs.CrashOptions{}},
	{"torn at 512 B", memfs.CrashOptions{KeepData: 50, KeepSize: 50, KeepNames: 100}},
	{"torn at 4 KiB", memfs.CrashOptions{KeepData: 50, KeepSize: 50, KeepNames: 100, BlockBytes: 4096}},
	{"half the names", memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 50}},
	{"garbage", memfs.CrashOptions{KeepData: 70, KeepSize: 100, KeepNames: 100, Garbage: true}},
}

// matrix cuts the power before disk changes of a world.
type matrix struct {
	stride  int
	problem string // the first problem
	busy    bool
	effects map[string]int // by kind of file and operation
	tried   map[string]int // crashes, by kind and operation
	cuts    int
	opens   int
	compare int // states compared with the running replicas
	counted int // groups whose majority was counted
}

// had is the state of a group that a node's disk must still hold.
type had struct{ replica, last, applied uint64 }

// TestCrashMatrix: a cluster is founded, written to and grown; a replica moves and a machine is
// replaced; log segments roll, snapshots are written in slices and received, and generations are
// deleted. Before each change of a disk the power is cut in every way, for that machine, and each
// third time for all machines. Each disk must open, twice. No replica may lack entries that were on
// its disk, and its state must be one that the group was in. Every entry applied anywhere, which
// may have been acknowledged, must be on a majority of the disks (I1, I10, I11, I12).
func TestCrashMatrix(t *testing.T) {
	m := newMatrix(59)
	switch {
	case os.Getenv("CARILLON_SOAK") != "":
		m.stride = 1
	case testing.Short() || underRace:
		m.stride = 499
	}
	r := m.run(t)
	if r.Err != nil || m.problem != "" {
		t.Fatal(r.Err, m.problem)
	}
	t.Logf("the run: %+v", r.Counts)
	if r.Counts.Installed == 0 || r.Counts.Snapshots == 0 || r.Counts.Acked < 100 || r.Counts.Moves == 0 {
		t.Errorf("the run is not representative")
	}
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(m.effects)) {
		t.Logf("%6d effects, %6d crashes: %s", m.effects[kind], m.tried[kind], kind)
		total += m.effects[kind]
	}
	t.Logf("%d effects, %d crashes, %d disks opened, %d states compared, %d majorities counted", total, m.cuts, m.opens, m.compare, m.counted)
	for _, kind := range []string{
		"identity write", "identity sync", "identity rename", "segment write", "segment sync", "segment rename", "segment truncate", "segment remove", "spare create", "generation mkdir", "generation remove",
		"generation syncdir", "FIRST write", "FIRST sync", "FIRST rename", "snapshot write", "snapshot sync", "snapshot rename", "snapshot remove", "snapshots syncdir",
	} {
		if m.effects[kind] == 0 {
			t.Errorf("the run has no effect %q", kind)
		}
	}
}

func newMatrix(stride int) *matrix {
	return &matrix{stride: stride, effects: map[string]int{}, tried: map[string]int{}}
}

func (m *matrix) run(t *testing.T) (r Report) {
	synctest.Test(t, func(*testing.T) {
		r = Run(Config{Seed: 4, Settle: synctest.Wait, Change: representative, script: m.script})
	})
	return r
}

// fail keeps the first problem, because the others follow from it.
func (m *matrix) fail(format string, args ...any) {
	if m.problem == "" {
		m.problem = fmt.Sprintf(format, args...)
	}
}

// representative is a quiet run with a small log.
func representative(p *Plan) {
	drawn := *p
	p.calm()
	p.nodes, p.shards, p.replicas, p.clients, p.think = 3, 2, 3, 5, 50*time.Millisecond
	p.segmentBytes, p.genBytes, p.retainBytes, p.snapshotBytes = 4<<10, 8<<10, 512, 4<<10
	p.slots, p.diskLatency, p.delay, p.drift = 0, 500*time.Microsecond, 300*time.Microsecond, 0
	p.tear, p.receiverFails = drawn.tear, 0.1
}

func (m *matrix) script(w *World) {
	w.effect = func(n *node, op memfs.Op, name string) { m.effect(w, n, op, name) }
	w.lay()
	w.found()
	w.employ()
	w.pass(time.Second)
	fresh := w.newNode("n4")
	w.join(fresh)
	w.pass(4 * time.Second)
	w.nodes[0].stop(true) // the matrix covers its restart too
	w.pass(time.Second)
	w.nodes[1].replace()
	w.pass(16 * time.Second)
	for _, c := range w.clients {
		c.done = true
	}
	w.pass(time.Second)
	w.effect = nil
}

// kindOf names the kind of a file by its path.
func kindOf(path string) string {
	rest := strings.TrimPrefix(path, dataDir)
	base := filepath.Base(path)
	switch parts := strings.Split(strings.Trim(rest, "/"), "/"); {
	case strings.HasPrefix(rest, "/identity.json"):
		return "identity"
	case rest == "" || rest == "/wal" || path == ".":
		return "directory"
	case rest == "/wal/0" || rest == "/wal/0/LOCK":
		return "stream"
	case rest == "/snapshots":
		return "snapshots"
	case parts[0] == "snapshots":
		return "snapshot"
	case strings.HasPrefix(base, "FIRST"):
		return "FIRST"
	case strings.HasPrefix(base, "END"):
		return "END"
	case len(parts) > 2 && parts[2] == "spare":
		return "spare"
	case strings.HasSuffix(base, ".broken"):
		return "broken"
	case len(parts) == 3:
		return "generation"
	case len(parts) == 4:
		return "segment"
	}
	return "unknown " + path
}

// effect handles a disk change that is about to happen.
func (m *matrix) effect(w *World, n *node, op memfs.Op, name string) {
	if m.busy || m.problem != "" {
		return
	}
	m.busy = true
	defer func() { m.busy = false }()
	kind := kindOf(name) + " " + op.String()
	// its handle has the name that the file had before it was renamed
	if op == memfs.OpWrite || op == memfs.OpSync || op == memfs.OpTruncate {
		kind = strings.Replace(kind, "spare ", "segment ", 1)
	}
	m.effects[kind]++
	number := 0
	for _, count := range m.effects {
		number += count
	}
	reader := rand.Reader
	defer func() { rand.Reader = reader }()
	for k, way := range ways {
		// A partial matrix takes the first of each kind and one in stride of the rest.
		if at := number*len(ways) + k; at%m.stride != 0 && m.tried[kind] >= len(ways) {
			continue
		}
		m.tried[kind]++
		m.cuts++
		chance := newChance(uint64(number), uint64(k))
		rand.Reader = entropy{chance}
		all := (number+k)%3 == 0 || m.tried[kind] <= len(ways)
		m.cut(w, all, fmt.Sprintf("power cut before effect %d, %v %s of node %d, %s", number, op, name, n.id, way.name), n, chance, way.opt)
		if m.problem != "" {
			return
		}
	}
}

// cut cuts the power of the machine that makes the change, or of all machines, and opens the disks.
func (m *matrix) cut(w *World, all bool, what string, struck *node, chance chance, opt memfs.CrashOptions) {
	durable := make([]map[uint64]uint64, w.swarm.shards+1) // by group: replica → last entry
	applied := make([]uint64, len(durable))
	for i := range durable {
		durable[i] = map[uint64]uint64{}
	}
	for _, n := range w.nodes {
		if n.gone || !all && n != struck {
			continue
		}
		before := n.had()
		disk := n.disk.CrashClone(chance, opt)
		if !m.same(what, n, disk) {
			continue
		}
		host := m.open(what, n, disk, before)
		if host == nil {
			return
		}
		for i := range before {
			applied[i] = max(applied[i], before[i].applied)
			if p := host.Progress(timer.ShardID(i)); p.Replica != 0 {
				durable[i][p.Replica] = p.Last
			}
		}
		host.Abandon()
		if n != struck {
			continue
		}
		again := make([]had, len(before))
		for i := range again {
			p := host.Progress(timer.ShardID(i))
			again[i] = had{p.Replica, p.Last, p.Applied}
		}
		if second := m.open(what+", and again", n, disk.CrashClone(chance, memfs.CrashOptions{}), again); second != nil {
			second.Abandon()
		}
	}
	if all {
		m.majorities(w, what, durable, applied)
	}
}

// same checks that a disk belongs to the cluster, if the node's process says so.
func (m *matrix) same(what string, n *node, disk *memfs.FS) bool {
	id, ok := identityOn(disk)
	if n.self != nil {
		if was := n.self.Identity(); !ok || id.NodeID != was.NodeID || id.Starts < was.Starts || id.ClusterID != was.ClusterID && was.ClusterID != "" || was.Founded && !id.Founded {
			m.fail("%s: node %d was %+v, its disk says %+v", what, n.id, was, id)
		}
	}
	return id.ClusterID != ""
}

// whoseDisk is the identity on a disk; the zero identity on an empty one.
func whoseDisk(disk *memfs.FS) member.Identity {
	id, _ := identityOn(disk)
	return id
}

// had returns the groups' states on a node's disk as its process has them, or as its previous
// process had them during a start.
func (n *node) had() []had {
	list := make([]had, n.w.swarm.shards+1)
	for i := range list {
		switch {
		case n.host != nil:
			p := n.host.Progress(timer.ShardID(i))
			list[i] = had{p.Replica, p.Last, p.Applied}
		case n.reached != nil:
			list[i] = had{n.reached[i].replica, n.reached[i].applied, n.reached[i].applied}
		}
	}
	return list
}

// open opens a disk as the node's next process does, and compares it with the states before.
func (m *matrix) open(what string, n *node, disk *memfs.FS, before []had) *shard.Host {
	m.opens++
	state := ring.NewState(nil, nil)
	calls := n.w.calls.all[n.id]
	cfg := n.hostConfig(disk, whoseDisk(disk), state)
	n.w.calls.all[n.id] = calls
	host, err := shard.New(cfg)
	if err == nil {
		err = host.Open()
	}
	if err != nil {
		m.fail("%s: node %d does not open: %v", what, n.id, err)
		return nil
	}
	for i, h := range before {
		id := timer.ShardID(i)
		p := host.Progress(id)
		switch {
		// its creation was on its way to the disk
		case h.replica == 0, p.Replica == 0 && h.last <= 1:
			continue
		case p.Replica != h.replica || p.Last < h.last:
			m.fail("%s: node %d, group %d: replica %x had entries up to %d, there is %x with %d", what, n.id, i, h.replica, h.last, p.Replica, p.Last)
			continue
		}
		hash := uint64(0)
		if id == shard.Meta {
			hash = state.Hash()
		} else {
			table := host.Table(id)
			hash = table.Hash()
		}
		if known := n.w.checker.replicas.at(place{id, p.Applied}); known.hashed {
			m.compare++
			if known.hash != hash {
				m.fail("%s: node %d, group %d: state %016x after entry %d, it was %016x", what, n.id, i, hash, p.Applied, known.hash)
			}
		}
	}
	return host
}

// majorities checks that each entry applied anywhere is on a majority of its voters' disks.
func (m *matrix) majorities(w *World, what string, durable []map[uint64]uint64, applied []uint64) {
	for i := range durable {
		leader := w.leader(timer.ShardID(i))
		if leader == nil {
			continue
		}
		_, s := leader.host.Inspect(timer.ShardID(i))
		if s.Joint || len(s.Voters) == 0 {
			continue
		}
		have, sum := 0, 0
		for _, v := range s.Voters {
			if n := w.node(v >> 24); n == nil || n.gone {
				continue // its disk is lost, as one of the minority
			}
			sum++
			if durable[i][v] >= applied[i] {
				have++
			}
		}
		m.counted++
		if lost := len(s.Voters) - sum; have+lost <= len(s.Voters)/2 {
			m.fail("%s: group %d: entry %d was applied, but of %d voters only %d have it: %v",
				what, i, applied[i], len(s.Voters), have, durable[i])
		}
	}
}
