package node

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	mrand "math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/delivery"
	"carillon/internal/history"
	"carillon/internal/vfs"
	"carillon/node/member"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/test/sim/forged"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/wal"
)

const (
	memNodeDir    = "data"
	memNodeShards = 2
)

// memNodeClock is the time of a memNode.
type memNodeClock struct{ now time.Duration }

func (c *memNodeClock) Mono() time.Duration { return time.Hour + c.now }
func (c *memNodeClock) WallMs() int64       { return 1_800_000_000_000 + c.now.Milliseconds() }
func (c *memNodeClock) Boot() time.Duration { return c.Mono() }
func (c *memNodeClock) Read() clocks.Reading {
	return clocks.Reading{WallUs: c.WallMs() * 1000, Mono: c.Mono(), Boot: c.Mono()}
}

// obliging is a receiver that answers every call with 200 at once.
type obliging struct{ clock *memNodeClock }

func (o obliging) Route(*timer.Topic, *timer.Callback) (scheduler.Destination, error) {
	return "there", nil
}
func (obliging) Tenant(*timer.Topic) string { return "" }

func (o obliging) Acquire(scheduler.Destination, *timer.Topic, delivery.Ask) (delivery.Permit, delivery.Verdict) {
	return o, delivery.Verdict{}
}
func (o obliging) State(scheduler.Destination, *timer.Topic) delivery.State {
	return delivery.State{Name: "there"}
}
func (o obliging) Cancel() {}
func (o obliging) Start(_ delivery.Permit, _ *scheduler.Delivery, done func(delivery.Outcome)) {
	done(delivery.Outcome{Status: 200, StartedMs: o.clock.WallMs(), EndedMs: o.clock.WallMs()})
}
func (o obliging) StartBatch(delivery.Permit, *scheduler.BatchCall, func([]delivery.Outcome)) {
	panic("no topic has calls of many timers")
}

// unwatched counts nothing.
type unwatched struct{}

func (unwatched) Command(timer.Kind, timer.Code)        {}
func (unwatched) Outcome(timer.TopicID, *table.Outcome) {}
func (unwatched) Expired()                              {}
func (unwatched) Outcomes(int, int)                     {}
func (unwatched) Frame(int)                             {}
func (unwatched) Lateness(int64, bool, *[16]byte)       {}
func (unwatched) Elected()                              {}
func (unwatched) Snapshot(time.Duration)                {}
func (unwatched) SnapshotSent(int64)                    {}
func (unwatched) DeadReplaced(int)                      {}
func (unwatched) SnapshotReceived(int64)                {}

// memNode is a data directory in memory and, while it is open, the parts of a node on it: identity,
// log, snapshots, topics, history. It is driven by hand, in a bubble.
type memNode struct {
	fs    *memfs.FS
	clock *memNodeClock
	log   strings.Builder
	p     *process
	state *ring.State
	host  *shard.Host
	past  *historyAdapter
	// Shut while the host is driven: its background work is done in rest.
	gate memfs.Gate

	placed, topical bool
	hashes          map[truthKey]uint64 // of live states
}

type truthKey struct {
	group   timer.ShardID
	applied uint64
}

// openMemNode opens a directory as a node does. In it chance is a function of the seed: two
// openings of the same bytes do the same.
func openMemNode(fsys *memfs.FS, clock *memNodeClock) (*memNode, error) {
	e := &memNode{fs: fsys, clock: clock, hashes: map[truthKey]uint64{}}
	return e, e.open()
}

func (m *memNode) open() error {
	fsys, clock := m.fs, m.clock
	m.p = &process{cfg: Config{DataDir: memNodeDir}, log: slog.New(slog.NewTextHandler(&m.log, nil)), fsys: fsys, clock: clocks.NewKeeper(clocks.Config{Source: clock})}
	m.p.timers = m.p.clock
	if err := m.p.ownDirectory(); err != nil {
		return err
	}
	id := m.p.self.Identity()
	if id.ClusterID == "" {
		self := ring.Node{ID: id.NodeID, Name: "alone", Peer: "127.0.0.1:7701"}
		plan := &ring.FoundingPlan{ClusterID: "memory", Shards: memNodeShards, Replicas: 1, Nodes: []ring.Node{self}}
		// As one of several founders does, first.
		if err := m.p.self.Change(func(id *member.Identity) { id.AcceptedPlan = plan }); err != nil {
			return err
		}
		if err := m.p.self.Found(plan); err != nil {
			return err
		}
	}
	id = m.p.self.Identity()
	m.state = ring.NewState(func(...timer.TopicID) { m.topical = true }, func() { m.placed = true })
	m.state.SetCurrent() // there is no member to find that out
	m.past = newHistoryAdapter(m.p, m.state)
	meta := id.Meta
	if id.Founded {
		meta = nil
	}
	var err error
	m.host, err = shard.New(shard.Config{
		Shards: id.Shards, Workers: 1, Node: id.NodeID, Incarnation: table.NewIncarnation(id.NodeID, id.Starts), Seed: 1, Meta: meta, FS: fsys, Dir: memNodeDir,
		Log:   wal.Options{SegmentBytes: 4 << 10, GenBytes: 8 << 10, NowMs: clock.WallMs, Monotonic: clock.Mono},
		Clock: m.p.clock, Topics: m.state, Dispatcher: obliging{clock}, Observer: unwatched{}, Machine: m.state, History: m.past, Logger: m.p.log, SnapshotLogBytes: 6 << 10,
	})
	if err != nil {
		return err
	}
	err = m.host.Open()
	m.rest()
	return err
}

// rest lets the host's background goroutines go on as far as they can, while nothing else runs.
func (m *memNode) rest() {
	m.gate.Open()
	if m.host.Background() {
		synctest.Wait()
	}
	m.gate.Shut()
}

// turn does all that there is to do now.
func (m *memNode) turn() error {
	for n := 0; n < 10_000; n++ {
		if m.placed {
			m.placed = false
			rows := m.state.Rows()
			list := make([]shard.Assignment, len(rows))
			for i := range rows {
				list[i] = rows[i].ForHost()
			}
			m.host.Place(list)
		}
		if m.topical {
			m.topical = false
			m.host.TopicsChanged()
		}
		err := m.host.Work()
		m.rest()
		if err == nil {
			err = m.host.Write()
			m.rest()
		}
		if err != nil {
			return err
		}
		for id := timer.ShardID(1); id <= memNodeShards; id++ {
			if p := m.host.Progress(id); p.Replica != 0 {
				tbl, _ := m.host.Inspect(id)
				m.hashes[truthKey{id, p.Applied}] = tbl.Hash()
			}
		}
		if !m.host.Busy() && !m.placed && !m.topical {
			return nil
		}
	}
	return fmt.Errorf("it does not come to rest")
}

// pass lets time go by.
func (m *memNode) pass(d, step time.Duration) error {
	for end := m.clock.now + d; m.clock.now < end; m.clock.now += step {
		if err := m.turn(); err != nil {
			return err
		}
	}
	return m.turn()
}

// command has the meta group take a command.
func (m *memNode) command(c ring.Command) error {
	var got error = fmt.Errorf("no answer")
	m.host.SubmitMeta(c.Encode(), func(_ any, err error) { got = err })
	if err := m.turn(); err != nil {
		return err
	}
	return got
}

// live fills the directory: topics, timers that fire, change, are cancelled and wait; turns of the
// log, snapshots, a history of two files.
func (m *memNode) live(random *mrand.Rand) error {
	if err := m.pass(3*time.Second, 50*time.Millisecond); err != nil {
		return err
	}
	found := ring.FoundCommand("memory", memNodeShards, 1, m.p.self.Identity().AcceptedPlan.Nodes)
	if err := m.command(found); err != nil {
		return err
	}
	if err := m.pass(3*time.Second, 50*time.Millisecond); err != nil {
		return err
	}
	if err := m.p.self.Change(func(id *member.Identity) { id.Founded = true }); err != nil {
		return err
	}
	policy := timer.DefaultPolicy()
	policy.Callback.URL = "http://there/"
	for round := range 2 {
		for i := range 6 {
			if err := m.command(ring.Command{Verb: ring.Put, Name: fmt.Sprint("topic-", round, i), Policy: &policy}); err != nil {
				return err
			}
		}
		for i := range 60 {
			if err := m.change(random, round, i); err != nil {
				return err
			}
		}
		if err := m.pass(45*time.Second, 250*time.Millisecond); err != nil {
			return err
		}
		if err := m.host.Housekeep(); err != nil {
			return err
		}
		m.past.store.Maintain()
		if round == 0 {
			m.clock.now += 2 * time.Hour // the history turns its file
		}
	}
	return nil
}

// change makes one change of a timer.
func (m *memNode) change(random *mrand.Rand, round, i int) error {
	id := fmt.Sprintf("t%d-%d", round, random.IntN(i+1))
	payload := []byte(strings.Repeat("x", random.IntN(300)))
	if i%2 == 0 { // what a reader looks for that looks for something
		payload = append(payload, forged.Payload(random.Uint64())...)
	}
	cmd := &timer.Command{Kind: timer.Put, Topic: timer.TopicID(1 + random.IntN(3)), ID: id, Content: random.Uint64(),
		Spec: &timer.Spec{DueMs: m.clock.WallMs() + random.Int64N(100_000), Payload: payload}}
	if random.IntN(6) == 0 {
		cmd.Kind, cmd.Spec, cmd.Content = timer.Cancel, nil, 0
	}
	var failed error
	m.host.Submit(timer.ShardID(1+random.IntN(memNodeShards)), cmd, false, func(_ timer.Result, err error) { failed = err })
	if err := m.turn(); err != nil {
		return err
	}
	m.clock.now += time.Duration(random.IntN(400)) * time.Millisecond
	return failed
}

// serve lets the directory's groups take over, and gives all that a client could get, and breaches
// of the promise.
func (m *memNode) serve() (state string, past map[string]bool, err error) {
	if err := m.pass(time.Second, 100*time.Millisecond); err != nil {
		return "", nil, err
	}
	var b strings.Builder
	id := m.p.self.Identity()
	saved, _ := m.state.BeginSave().Next(nil, 1<<30)
	fmt.Fprintf(&b, "%d %d %s %v\n%s\n", id.NodeID, id.Shards, id.ClusterID, id.Meta, saved)
	for i := timer.ShardID(0); i <= memNodeShards; i++ {
		p := m.host.Progress(i)
		fmt.Fprintf(&b, "%d: %+v\n", i, p)
		if tbl, _ := m.host.Inspect(i); tbl != nil {
			whole, _ := tbl.BeginSnapshot().Next(nil, 1<<30)
			fmt.Fprintf(&b, "%x\n", whole)
		}
	}
	past, err = m.remembered()
	return b.String(), past, err
}

// remembered is all of the history, asked for in every way.
func (m *memNode) remembered() (map[string]bool, error) {
	all := map[string]bool{}
	if m.past.store == nil {
		return all, nil
	}
	add := func(events []history.Event) {
		for i := range events {
			all[inWords(events[i])] = true
		}
	}
	for topic := range uint32(3) {
		q := history.Query{Topic: topic + 1, States: 0xff, Limit: 1 << 20}
		list, _, err := m.past.store.List(&q)
		if err != nil {
			return nil, err
		}
		add(list)
		for i := range list {
			q.ID = list[i].ID
			same, _, err := m.past.store.List(&q)
			if err != nil {
				return nil, err
			}
			add(same)
			tried, err := m.past.store.Attempts(list[i].Shard, list[i].Seq, list[i].Index, list[i].Item)
			if err != nil {
				return nil, err
			}
			add(tried)
		}
	}
	return all, nil
}

// inWords is all of an event. Its bytes printed as lists of numbers would take most of the time of
// the matrix and the damages.
func inWords(e history.Event) string {
	id, body := e.ID, e.Body
	e.ID, e.Body = nil, nil
	return fmt.Sprintf("%+v %q %x", e, id, body)
}

// end lets it go without a word.
func (m *memNode) end() {
	if m.host != nil {
		m.host.Abandon()
		m.gate.Open()
		synctest.Wait()
	}
}

// copyMemNode is an independent copy, all of it on disk.
func copyMemNode(fsys *memfs.FS) *memfs.FS {
	return fsys.CrashClone(mrand.New(mrand.NewPCG(1, 1)), memfs.CrashOptions{KeepData: 100, KeepSize: 100, KeepNames: 100})
}

// paths lists all files below a directory.
func paths(t testing.TB, fsys vfs.FS, dir string) (list []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	testkit.Must(t, err)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name)
		if e.Dir {
			list = append(list, paths(t, fsys, path)...)
		} else {
			list = append(list, path)
		}
	}
	return list
}

func contentOf(t testing.TB, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path)
	testkit.Must(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	testkit.Must(t, err)
	return b
}

func putFile(t testing.TB, fsys vfs.FS, path string, b []byte) {
	t.Helper()
	testkit.Must(t, fsys.MkdirAll(filepath.Dir(path)))
	testkit.Must(t, vfs.WriteFileAtomic(fsys, path, b))
}

// seedChance makes raft's random numbers a function of a seed, until the test ends.
func seedChance(t testing.TB) (again func()) {
	before := rand.Reader
	t.Cleanup(func() { rand.Reader = before })
	return func() { rand.Reader = mrand.NewChaCha8([32]byte{7}) }
}

// makeMemNode gives a directory with every kind of file: of a process that was killed, or that
// stopped cleanly.
func makeMemNode(t testing.TB, clean bool) (*memfs.FS, *memNode) {
	t.Helper()
	fsys := memfs.New()
	testkit.Must(t, fsys.MkdirAll(memNodeDir))
	e, err := openMemNode(fsys, &memNodeClock{})
	if err == nil {
		err = e.live(mrand.New(mrand.NewPCG(5, 5)))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, e.log.String())
	}
	e.end()
	fsys.Kill()
	fsys = copyMemNode(fsys)
	stream := filepath.Join(memNodeDir, "wal", "0")
	if clean {
		s, err := wal.Open(fsys, stream, wal.Options{SegmentBytes: 4 << 10, GenBytes: 8 << 10}, nil)
		if err == nil {
			err = s.Close()
		}
		testkit.Must(t, err)
	}
	// More that a crash can leave behind, which the file system in memory does not make.
	all := paths(t, fsys, memNodeDir)
	snapshot := all[slices.IndexFunc(all, func(p string) bool { return strings.HasSuffix(p, ".snap") })]
	for path, b := range map[string][]byte{
		memNodeDir + "/LOCK": nil, stream + "/LOCK": nil, stream + "/spare/00000000000000000001": make([]byte, 4<<10),
		memNodeDir + "/identity.json.tmp": contentOf(t, fsys, memNodeDir+"/identity.json")[:100], stream + "/FIRST.tmp": nil,
		snapshot + ".tmp": contentOf(t, fsys, snapshot)[:60],
	} {
		putFile(t, fsys, path, b)
	}
	return copyMemNode(fsys), e
}
