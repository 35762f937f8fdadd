package sim

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"carillon/clocks"
	"carillon/node/member"
	"carillon/node/route"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/feature"
	"carillon/shard/repair"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/vfs/memfs"
)

const dataDir = "data"

// node is a machine with a disk and, while it is up, a process with a host.
type node struct {
	w      *World
	id     uint64
	name   string
	clock  clock
	disk   *memfs.FS
	founds bool // it founds the cluster with others; else it joins
	gone   bool // its disk was wiped, or it left: it never comes back

	keeper                    *clocks.Keeper // its process's
	resumedAt                 time.Duration  // after a pause or a sleep
	confirmedAt, confirmedOff time.Duration  // when another's clock was last as wrong, and how wrong
	misledUntil               time.Duration  // it may not have found out sooner that its clock is wrong
	believedOff               time.Duration  // by how much the clock was off that it had to believe last
	bootedAt                  time.Duration  // the machine
	saved                     *clocks.Saved  // what the process left to the next one of this boot of the machine

	// Of the process.
	starts  uint32        // the so-many-th on the disk
	began   time.Duration // on its monotonic clock
	life    uint64        // grows with each start and each end: what was meant for another life is void
	up      bool          // it has begun; it may have to found a cluster, or join one, before it has a host
	tasks   *tasks
	self    *member.Self
	gossip  *gossip
	member  *member.Member
	router  *route.Router
	topics  *route.Topics
	host    *shard.Host
	state   *ring.State        // of the last process that had one
	met     map[uint64]process // the newest process that it has spoken with, by node
	told    map[uint64]uint64  // by node: how many frames of its log it has said to be on disk …
	toldBy  map[uint64]uint64  // … and by which life
	calls   []*rpc             // that it is answering
	closed  bool               // it takes no requests any more: it stops
	wakeAt  time.Duration
	awake   func() // see waker; nil: none was needed yet
	writing bool
	syncs   time.Duration            // when the step of the log that is under way began
	turned  time.Duration            // when the host's last turn was; on its clock
	laden   time.Duration            // since when it holds more memory than it may; 0: it does not
	low     map[uint64]time.Duration // since when it has heard that another's disk is low
	paused  bool
	backlog []delayed
	checked []checkedGroup
	sights  map[uint64]*visibility
	view    view // of its last heartbeat
	looked  time.Duration
	age     time.Duration // as others come to know it, while it ran

	held      bool // it stays down
	stoppedAt time.Duration

	inARow   int                    // starts at once, one after the other, of processes that had ended themselves
	eager    bool                   // … is about to be started at once
	halted   bool                   // a process has halted on this disk
	outdated bool                   // the disk is an older copy of what it was
	level    feature.Level          // of the release that it runs
	struck   map[timer.ShardID]bool // groups of whose state memory has changed a bit
	agreed   agreed

	rotten    bool             // something on its disk was damaged at rest, or is to be
	lied      bool             // … by syncs that did not do what they said
	repairer  *repair.Repairer // while its log is being restored
	mendUntil time.Duration
	reached   []reached // by group: what its disk must still have
	votes     map[timer.ShardID]promised

	hungUntil time.Duration // the disk writes nothing

	gate  memfs.Gate // for the host's background goroutines, while a turn runs
	crash crash
}

// crash is the end of a process in the middle of what its disk does.
type crash struct {
	mu    sync.Mutex
	left  int  // changes of the disk until it strikes; 0: not planned
	says  int  // … things that are said to others
	kills bool // then the process is killed, and the machine goes on
	clone *memfs.FS
	dead  bool                     // the process was killed
	fail  [memfs.OpSyncDir + 1]int // the so-many-th operation of a kind fails; 0: none

	starting bool // the log is not open yet
	blind    blindness
	deceit   *syncFault // what the disk will lie about; nil: nothing
}

var errPowerCut = errors.New("the power is cut")

// struck says whether the process has ended in the middle of what its disk does.
func (c *crash) struck() bool { return c.clone != nil || c.dead }

// newNode makes a machine with an empty disk.
func (w *World) newNode(name string) *node {
	n := &node{w: w, id: uint64(2*len(w.nodes) + 1), name: name, clock: clock{world: w}, disk: memfs.New(), votes: map[timer.ShardID]promised{},
		level: feature.LevelOfBuild, struck: map[timer.ShardID]bool{}}
	n.clock.drift = (2*w.chance.Float64() - 1) * w.swarm.drift
	w.nodes = append(w.nodes, n)
	return n
}

// address is where the machine listens for others.
func (n *node) address() string { return n.name + ":7701" }

// zone reads a time zone for the host, between two turns of it.
func (n *node) zone(name string) (*time.Location, error) {
	n.gate.Pass()
	return time.LoadLocation(name)
}

// every runs something again and again while this process lives.
func (n *node) every(d time.Duration, run func()) {
	life := n.life
	var again func()
	again = func() {
		if n.life != life {
			return
		}
		if !n.paused {
			run()
		}
		n.w.after(d, again)
	}
	n.w.after(d/2, again)
}

// wake has a turn taken so long from now, unless one is taken sooner.
func (n *node) wake(d time.Duration) {
	at := n.w.now + max(d, 0)
	if n.host == nil || n.wakeAt >= n.w.now && n.wakeAt <= at && n.wakeAt != 0 {
		return
	}
	n.wakeAt = at
	if n.awake == nil {
		n.awake = n.waker()
	}
	n.w.after(d, n.awake)
}

// waker is what happens when this process was to wake: nothing, if it has done so sooner.
func (n *node) waker() func() {
	life := n.life
	return func() {
		if n.life == life && n.wakeAt == n.w.now && !n.paused {
			n.wakeAt = 0
			n.turn()
		}
	}
}

// turn is one turn of the host's workers.
func (n *node) turn() {
	w := n.w
	n.gate.Shut()
	err := n.host.Work()
	n.gate.Open()
	if n.host == nil {
		return
	}
	n.turned = n.clock.Mono()
	n.settle()
	if n.died(err) {
		return
	}
	n.check()
	n.unsynced()
	n.weigh()
	if n.host.Writing() && !n.writing {
		n.writing = true
		latency := w.swarm.diskLatency
		if w.chance.hit(w.swarm.slowSync) {
			latency = w.chance.between(latency, w.swarm.slowestSync)
		}
		full := n.host.Full()
		if full {
			w.counts.Full++
			latency = 100 * time.Millisecond
		}
		n.self.Health.Waits(full)
		life := n.life
		n.syncs = n.clock.Mono()
		n.self.Health.SyncBegins(n.syncs)
		w.after(latency, func() { n.write(life) })
	}
	n.wake(max(n.host.UntilWork(), 50*time.Microsecond))
}

// settle waits until the host's background goroutines have done what they can.
func (n *node) settle() {
	if n.host.Background() {
		n.w.cfg.Settle()
	}
}

// write is one step of the host's log.
func (n *node) write(life uint64) {
	if n.life != life {
		return
	}
	if n.paused {
		n.backlog = append(n.backlog, delayed{run: func() { n.write(life) }})
		return
	}
	if n.w.now < n.hungUntil {
		n.w.after(20*time.Millisecond, func() { n.write(life) })
		return
	}
	n.writing = false
	err := n.host.Write()
	n.settle()
	now := n.clock.Mono()
	n.self.Health.Synced(now, now-n.syncs)
	if !n.died(err) {
		n.wake(0)
	}
}

// died ends the process if its host has failed, or its power was cut.
func (n *node) died(err error) bool {
	if n.crash.struck() {
		n.stop(false)
		return true
	}
	if err != nil {
		n.w.note(n, "failed", 0, 0, err.Error())
		switch {
		case n.couldNotRead(err):
			n.blinded(err)
			return true
		case n.faultOfMemory(err):
			n.stop(false)
			return true
		case n.toldByLeader(err):
			n.halts(err)
			return true
		}
		if !n.ofItsDisk(err) {
			n.w.violate("I20", "node %d stops for no reason of its disk: %v", n.id, err)
		}
		n.ended(err)
		return true
	}
	return false
}

// stop ends the process as kill -9 or a power cut does. What the disk had not been told to keep is lost, by chance or wholly.
func (n *node) stop(cut bool) {
	if !n.up {
		return
	}
	w := n.w
	owner := table.NewIncarnation(n.id, n.starts)
	n.life++
	n.stoppedAt = w.now
	n.wakeClocks()
	n.awake, n.repairer = nil, nil
	if !n.eager {
		n.inARow = 0
	}
	n.breakCalls()
	n.tasks.end()
	n.self, n.gossip, n.member, n.router, n.topics = nil, nil, nil, nil, nil
	n.up, n.paused, n.writing, n.wakeAt, n.backlog = false, false, false, 0, nil
	w.counts.Crashes++
	clone := n.crash.clone
	if clone == nil && cut {
		clone = n.disk.CrashClone(w.chance, n.crashOptions())
	}
	w.note(n, "stop", uint64(n.starts), b2u(clone != nil), "")
	if n.host != nil {
		host := n.host
		n.host = nil
		host.Abandon()
		n.gate.Open()
		w.cfg.Settle()
	}
	n.disk.Kill()
	if clone != nil {
		n.disk, n.saved, n.bootedAt = clone, nil, w.now // another boot of the machine
	}
	n.crash.clone, n.crash.left, n.crash.says, n.crash.dead, n.crash.kills = nil, 0, 0, false, false
	w.calls.died(n)
	n.crash.fail = [memfs.OpSyncDir + 1]int{}
	if !n.gone {
		n.comeBack()
	}
	for _, other := range w.nodes { // some hear at once that its connections are reset: by its kernel, so only when it is up
		if other != n && other.up && w.chance.hit(0.5) {
			w.hearEnd(other, owner)
		}
	}
}

func (n *node) crashOptions() memfs.CrashOptions {
	s := &n.w.swarm
	return memfs.CrashOptions{KeepData: s.keepData, KeepSize: s.keepNames, KeepNames: s.keepNames, BlockBytes: s.tear, Garbage: s.garbage}
}

// hook lets the disk's operations be held back, and the power be cut among them.
func (n *node) hook() {
	ails := &n.w.swarm.ailments
	if ails.lies > 0 {
		n.disk.SetSyncLies(n.crash.lies)
	}
	n.crash.opens(true)
	n.disk.SetHook(func(_ int, op memfs.Op, name string) error {
		if !op.Changes() {
			if ails.blinds > 0 {
				return n.crash.unreadable(op, name)
			}
			return nil
		}
		if ails.blinds > 0 {
			n.crash.changes(name)
		}
		if inSnapshots(name) {
			n.gate.Pass()
		}
		if n.w.effect != nil {
			n.w.effect(n, op, name)
		}
		c := &n.crash
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case c.clone != nil:
			return errPowerCut
		case c.dead:
			return memfs.ErrKilled
		}
		if c.fail[op] > 0 {
			if c.fail[op]--; c.fail[op] == 0 {
				return syscall.EIO
			}
		}
		if c.left > 0 {
			if c.left--; c.left == 0 && c.kills {
				c.dead = true
				return memfs.ErrKilled
			}
			if c.left == 0 {
				c.clone = n.disk.CrashClone(n.w.chance, n.crashOptions())
				return errPowerCut
			}
		}
		return nil
	})
}

func inSnapshots(name string) bool {
	return len(name) > len(dataDir)+10 && name[len(dataDir)+1:len(dataDir)+10] == "snapshots"
}

// pause stops the process for a while: nothing of it runs, but its clocks and its peers go on.
func (n *node) pause(d time.Duration) bool {
	if n.paused || !n.up {
		return false
	}
	n.paused = true
	n.w.counts.Pauses++
	n.w.note(n, "pause", uint64(d.Milliseconds()), 0, "")
	life := n.life
	n.w.after(d, func() {
		if n.life == life {
			n.resume()
		}
	})
	return true
}

func (n *node) resume() {
	if !n.paused {
		return
	}
	n.w.note(n, "resume", 0, 0, "")
	n.paused, n.resumedAt = false, n.w.now
	n.wakeClocks()
	list := n.backlog
	n.backlog = nil
	n.wakeAt = 0
	life := n.life
	delays := map[uint64]time.Duration{}
	for _, d := range list {
		if _, known := delays[d.source]; !known {
			delays[d.source] = n.w.chance.between(0, 20*time.Millisecond)
		}
		n.w.after(delays[d.source], func() {
			if n.life == life {
				n.doFrom(d.source, d.run)
			}
		})
	}
	n.wake(0)
}

// delayed is what waits in a paused process's buffers. Those of one source keep their order, each source is read by a goroutine of its own.
type delayed struct {
	source uint64
	run    func()
}

// do runs something on the process: now, or when its pause is over.
func (n *node) do(run func()) { n.doFrom(n.id, run) }

// doFrom is do for what came from somewhere else.
func (n *node) doFrom(source uint64, run func()) {
	life := n.life
	switch {
	case !n.up:
	case n.paused:
		if len(n.backlog) < 5000 || source == n.id {
			n.backlog = append(n.backlog, delayed{source, func() {
				if n.life == life {
					run()
				}
			}})
		}
	default:
		run()
	}
}

// housekeep is what a host's Run does once a second.
func (n *node) housekeep() {
	if n.host == nil {
		return
	}
	if err := n.host.Housekeep(); err != nil && !n.crash.struck() {
		n.w.note(n, "housekeep", 0, 0, err.Error())
	}
	if n.died(nil) {
		return
	}
	n.w.checker.bounded(n)
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
