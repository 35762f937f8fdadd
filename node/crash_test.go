package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	mrand "math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/member"
	"carillon/shard"
	"carillon/test/memfs"
	"carillon/timer"
)

// cuts are the ways in which a power cut treats writes that were not synced.
var cuts = []memfs.CrashOptions{
	{KeepData: 100, KeepSize: 100, KeepNames: 100},
	{},
	{KeepData: 50, KeepSize: 50, KeepNames: 100},
	{KeepData: 50, KeepSize: 50, KeepNames: 100, BlockBytes: 4096},
	{KeepData: 100, KeepSize: 100, KeepNames: 50},
	{KeepData: 70, KeepSize: 100, KeepNames: 100, Garbage: true},
}

// powerCuts cuts the power before effects on a node's disk.
type powerCuts struct {
	stride  int
	busy    bool
	live    *memNode
	problem string
	effects map[string]int
	tried   map[string]int
	opened  int
	last    []shard.Progress // before the process that is at it
	known   member.Identity  // … and which node it was
	told    map[string]bool  // events that any history told
	states  map[truthKey]uint64
}

// TestCrashMatrixOfOneNode: the power is cut before each change of a node's directory, in six ways:
// its identity and founding promise, its log and snapshots, its history. The directory opens, and
// again after another cut; the node has its identity and keeps its promises; no shard lacks an
// entry that was on disk, each is in a state that it was in; and the history is true.
func TestCrashMatrixOfOneNode(t *testing.T) {
	b := &powerCuts{stride: 37, effects: map[string]int{}, tried: map[string]int{}, told: map[string]bool{}, states: map[truthKey]uint64{}}
	switch {
	case os.Getenv("CARILLON_SOAK") != "":
		b.stride = 1
	case testing.Short():
		b.stride = 997
	}
	again := seedChance(t)
	synctest.Test(t, func(t *testing.T) {
		again()
		past, err := b.run()
		if err != nil || b.problem != "" {
			t.Fatal(err, b.problem)
		}
		for event := range b.told {
			if !past[event] {
				t.Errorf("a history tells what never was: %s", event)
			}
		}
	})
	effects, crashes := 0, 0
	for _, kind := range slices.Sorted(maps.Keys(b.effects)) {
		t.Logf("%6d effects, %6d crashes: %s", b.effects[kind], b.tried[kind], kind)
		effects, crashes = effects+b.effects[kind], crashes+b.tried[kind]
	}
	t.Logf("%d effects, %d crashes, %d directories opened, %d events of history told, %d states known", effects, crashes, b.opened, len(b.told), len(b.states))
	for _, kind := range []string{"identity write", "identity sync", "identity rename", "history write", "history sync", "segment write", "snapshot write", "snapshot of meta write"} {
		if b.effects[kind] == 0 {
			t.Errorf("the run has no effect %q", kind)
		}
	}
}

// run is a node's first life and the begin of its second.
func (pc *powerCuts) run() (past map[string]bool, err error) {
	fsys := memfs.New()
	if err := fsys.MkdirAll(memNodeDir); err != nil {
		return nil, err
	}
	if err := fsys.SyncDir("."); err != nil {
		return nil, err
	}
	clock := &memNodeClock{}
	fsys.SetHook(func(_ int, op memfs.Op, name string) error {
		if !op.Changes() {
			return nil
		}
		if strings.HasPrefix(name, memNodeDir+"/snapshots/") {
			pc.live.gate.Pass() // a snapshot is written in the background
		}
		pc.effect(op, name)
		return nil
	})
	for life := range 2 {
		pc.live = &memNode{fs: fsys, clock: clock, hashes: pc.states}
		if err = pc.live.open(); err != nil {
			return nil, err
		}
		if life == 0 {
			err = pc.live.live(mrand.New(mrand.NewPCG(5, 5)))
		} else {
			err = pc.live.pass(2*time.Second, 100*time.Millisecond)
		}
		if err != nil {
			return nil, err
		}
		if life == 0 {
			pc.last, pc.known = pc.live.progress(), pc.live.p.self.Identity()
			pc.live.end()
			fsys.Kill()
		}
	}
	fsys.SetHook(nil)
	past, err = pc.live.remembered()
	pc.live.end()
	return past, err
}

func (m *memNode) progress() (list []shard.Progress) {
	for id := timer.ShardID(0); id <= memNodeShards; id++ {
		list = append(list, m.host.Progress(id))
	}
	return list
}

// temporary is the end of the names of files that are being written.
var temporary = regexp.MustCompile(`(\.[0-9]+)?\.tmp$`)

// effect is told of a change of the disk that is about to be made.
func (pc *powerCuts) effect(op memfs.Op, name string) {
	if pc.busy || pc.problem != "" {
		return
	}
	pc.busy = true
	reader := rand.Reader
	defer func() { pc.busy, rand.Reader = false, reader }()
	kind, _ := kindOfFile(strings.TrimPrefix(temporary.ReplaceAllString(name, ""), memNodeDir+"/"))
	switch {
	case kind == "spare segment" && (op == memfs.OpWrite || op == memfs.OpSync || op == memfs.OpTruncate):
		kind = "segment" // its handle has the name that the file had before its turn came
	case kind == "":
		kind = "directory"
	}
	kind += " " + op.String()
	pc.effects[kind]++
	number := 0
	for _, n := range pc.effects {
		number += n
	}
	for way, opt := range cuts {
		if (number*len(cuts)+way)%pc.stride != 0 && pc.tried[kind] >= len(cuts) {
			continue
		}
		pc.tried[kind]++
		rand.Reader = mrand.NewChaCha8([32]byte{byte(way)})
		pc.cut(fmt.Sprintf("power cut before effect %d, %v %s, way %d", number, op, name, way), mrand.New(mrand.NewPCG(uint64(number), uint64(way))), opt)
	}
}

// cut opens the directory that a power cut now leaves, and the one that another right after that
// leaves.
func (pc *powerCuts) cut(what string, random *mrand.Rand, opt memfs.CrashOptions) {
	before, known := pc.last, pc.known
	if pc.live.host != nil {
		before = pc.live.progress()
	}
	if p := pc.live.p; p != nil && p.self != nil {
		known = p.self.Identity()
	}
	disk := pc.live.fs.CrashClone(random, opt)
	for round := range 2 {
		pc.opened++
		if err := pc.check(disk, known, before); err != nil && pc.problem == "" {
			pc.problem = fmt.Sprintf("%s, opened %d times: %v", what, round+1, err)
		}
		disk = disk.CrashClone(random, memfs.CrashOptions{})
	}
}

func (pc *powerCuts) check(disk *memfs.FS, known member.Identity, before []shard.Progress) error {
	id, err := member.ReadIdentity(disk, memNodeDir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && known.NodeID == 0:
	case err != nil:
		return err
	case known.NodeID != 0 && id.NodeID != known.NodeID, id.Starts < known.Starts, known.Founded && !id.Founded:
		return fmt.Errorf("it was %+v, it is %+v", known, id)
	case known.AcceptedPlan != nil && (id.AcceptedPlan == nil || id.AcceptedPlan.ClusterID != known.AcceptedPlan.ClusterID), known.ClusterID != "" && id.Meta == nil:
		return fmt.Errorf("it promised %+v, it knows %+v", known, id)
	}
	e, err := openMemNode(disk, &memNodeClock{now: pc.live.clock.now})
	if err != nil {
		return err
	}
	for i, had := range before {
		id := timer.ShardID(i)
		p := e.host.Progress(id)
		// Its creation was on its way to the disk.
		if had.Replica == 0 || p.Replica == 0 && had.Last <= 1 {
			continue
		}
		if p.Replica != had.Replica || p.Last < had.Last {
			return fmt.Errorf("group %d had %+v, there is %+v", i, had, p)
		}
		if table, _ := e.host.Inspect(id); table != nil {
			if hash, ok := pc.states[truthKey{id, p.Applied}]; ok && hash != table.Hash() {
				return fmt.Errorf("group %d: state %016x after entry %d, it was %016x", i, table.Hash(), p.Applied, hash)
			}
		}
	}
	told, err := e.remembered()
	maps.Copy(pc.told, told)
	e.host.Abandon()
	return err
}
