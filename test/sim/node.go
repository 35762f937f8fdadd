package sim

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/feature"
	"carillon/node/member"
	"carillon/node/route"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/test/memfs"
	"carillon/timer"
	"carillon/timer/recurrence"
)

const dataDir = "data"

// node is a machine: a disk, clocks and, while it is up, one process with a host.
type node struct {
	w      *World
	id     uint64
	name   string
	clock  clock
	disk   *memfs.FS
	founds bool // it is one of the cluster's founders; otherwise it joins
	gone   bool // its disk was wiped, or it was removed: it never starts again

	keeper    *clocks.Keeper // of the running process
	decided   uint64         // the meta group's newest entry when the process began
	learned   bool           // it has had that; its replica may have been replaced since
	resumedAt time.Duration  // end of the last pause or sleep
	// when another clock last had the same error, and that error
	confirmedAt, confirmedOff time.Duration
	misledUntil               time.Duration // until then the process may trust a wrong clock
	// error of the wrong clock that the process last had to trust
	believedOff time.Duration
	trustedLead time.Duration // of the wall clock over the boot clock, when it was trusted last
	// when the process looked at its clock last, the clock's error, and its steadiness
	lookedAt, lookedOff time.Duration
	lookedSteady        steadiness
	bootedAt            time.Duration // boot time of the machine
	// clock state that the process leaves for the next one until the machine reboots
	saved *clocks.Saved

	// State of the current process.
	starts uint32        // number of its start, as counted on the disk
	began  time.Duration // on its monotonic clock
	// the error of the wall clock then
	beganOff time.Duration
	life     uint64 // grows at each start and stop; an event for another life is dropped
	// the process runs; it has no host until it has founded or joined a cluster
	up      bool
	tasks   *tasks
	self    *member.Self
	gossip  *gossip
	member  *member.Member
	router  *route.Router
	topics  *route.Topics
	host    *shard.Host
	state   *ring.State              // of the last process that had one
	met     map[uint64]process       // by node: the newest process that it has talked to
	heard   map[uint64]time.Duration // by node: when something of its process arrived last
	refused map[uint64]refused       // by node: what it was told of a process's end
	// by node: the highest durable log index that the node has reported …
	told    map[uint64]uint64
	toldBy  map[uint64]uint64 // … and the life that reported it
	calls   []*rpc            // calls that it is answering
	closed  bool              // it is stopping and takes no more requests
	wakeAt  time.Duration
	toil    toil
	awake   func() // see waker; nil: not created yet
	writing bool
	syncs   time.Duration            // when the running log step began
	turned  time.Duration            // time of the host's last turn, by its clock
	laden   time.Duration            // since when it exceeds its memory limit; 0: it does not
	low     map[uint64]time.Duration // by node: since when that node reports a low disk
	paused  bool
	backlog []delayed
	checked []checkedGroup
	sights  map[uint64]*visibility
	view    view // of its last heartbeat
	looked  time.Duration
	age     time.Duration // running time, as others learn it from heartbeats

	held      bool // it must not be started
	stoppedAt time.Duration

	// immediate restarts in a row, each after the process ended itself
	inARow   int
	eager    bool                   // the next start is immediate
	halted   bool                   // a process has halted on this disk
	outdated bool                   // the disk was replaced by an older copy of itself
	level    feature.Level          // of the release that it runs
	zones    *recurrence.Zones      // … and the time zones that it knows; nil: all
	struck   map[timer.ShardID]bool // groups with a bit flipped in memory
	agreed   agreed

	rotten    bool      // a file on its disk was damaged at rest, or is about to be
	lied      bool      // … by syncs that the disk did not perform
	successor *node     // the node that its directory becomes; see replaced
	reached   []reached // by group: progress that its disk must still hold
	restored  []restored
	votes     map[timer.ShardID]promised

	hungUntil time.Duration // until then its disk writes nothing

	gate  memfs.Gate // holds the host's background goroutines back during a turn
	crash crash
}

// crash plans the end of a process between two operations of its disk.
type crash struct {
	mu    sync.Mutex
	left  int  // changes of the disk before the crash; 0: none is planned
	says  int  // messages to others before the crash; 0: none is planned
	kills bool // only the process is killed; the machine and its page cache stay
	clone *memfs.FS
	dead  bool                     // the process was killed
	fail  [memfs.OpSyncDir + 1]int // by kind of operation: the n-th fails; 0: none

	starting bool // the log is not open yet
	blind    blindness
	deceit   *syncFault // the sync that the disk will lie about; nil: none
}

var errPowerCut = errors.New("the power is cut")

// struck reports whether the process has ended between two disk operations.
func (c *crash) struck() bool { return c.clone != nil || c.dead }

// newNode makes a machine with an empty disk.
func (w *World) newNode(name string) *node {
	n := &node{w: w, id: uint64(2*len(w.nodes) + 1), name: name, clock: clock{world: w}, disk: memfs.New(), votes: map[timer.ShardID]promised{},
		level: feature.LevelOfBuild, struck: map[timer.ShardID]bool{}}
	n.clock.drift = (2*w.chance.Float64() - 1) * w.swarm.drift
	n.clock.rebase()
	w.nodes = append(w.nodes, n)
	return n
}

// address is where the machine listens for peers.
func (n *node) address() string { return n.name + ":7701" }

// every calls run at intervals of d while this process lives.
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

// wake schedules a turn of the host in d, unless an earlier one is scheduled.
func (n *node) wake(d time.Duration) {
	at := max(n.w.now+max(d, 0), n.toil.until)
	if n.host == nil || n.wakeAt >= n.w.now && n.wakeAt <= at && n.wakeAt != 0 {
		return
	}
	n.wakeAt = at
	if n.awake == nil {
		n.awake = n.waker()
	}
	n.w.after(at-n.w.now, n.awake)
}

// waker returns the event of a wake-up. The event does nothing if the process has been woken since.
func (n *node) waker() func() {
	life := n.life
	return func() {
		if n.life == life && n.wakeAt == n.w.now && !n.paused {
			n.wakeAt = 0
			n.turn()
		}
	}
}

// turn runs one turn of the host's workers.
func (n *node) turn() {
	w := n.w
	n.gate.Shut()
	took, err := n.work()
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
		lack := ""
		if n.host.Full() {
			w.counts.Full++
			latency, lack = 100*time.Millisecond, "the disk is full"
		}
		n.self.Health.Waits(lack)
		life := n.life
		n.syncs = n.clock.Mono() + took
		n.self.Health.SyncBegins(n.syncs)
		w.after(took+latency, func() { n.write(life) })
	}
	n.wake(max(n.host.UntilWork(), 50*time.Microsecond))
}

// settle waits until the host's background goroutines are blocked.
func (n *node) settle() {
	if n.host.Background() {
		n.w.cfg.Settle()
	}
}

// write runs one step of the host's log.
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

// died ends the process if its host has failed or its power was cut. It reports whether it did.
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
			n.w.foundAt = n.w.now
			n.stop(false)
			return true
		case n.toldByLeader(err):
			n.halts(err)
			return true
		}
		if !n.ofItsDisk(err) {
			n.w.violate("I20", "node %d ends itself although its disk has not failed: %v", n.id, err)
		}
		n.ended(err)
		return true
	}
	return false
}

// stop ends the process. With cut the machine loses its power, and some or all data that the disk
// had not synced; without it the process ends as by kill -9.
func (n *node) stop(cut bool) {
	if !n.up {
		return
	}
	w := n.w
	owner := table.NewIncarnation(n.id, n.starts)
	n.life++
	n.stoppedAt = w.now
	n.wakeClocks()
	n.awake = nil
	if !n.eager {
		n.inARow = 0
	}
	n.breakCalls()
	n.tasks.end()
	n.self, n.gossip, n.member, n.router, n.topics = nil, nil, nil, nil, nil
	n.up, n.paused, n.writing, n.wakeAt, n.backlog = false, false, false, 0, nil
	w.counts.Crashes++
	clone := n.crash.clone
	if clone == nil && cut && !n.crash.hasLied() {
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
		n.disk, n.saved, n.bootedAt = clone, nil, w.now // the machine boots again
	}
	n.crash.clone, n.crash.left, n.crash.says, n.crash.dead, n.crash.kills = nil, 0, 0, false, false
	w.calls.died(n)
	n.crash.fail = [memfs.OpSyncDir + 1]int{}
	if !n.gone {
		n.comeBack()
	}
	// Some peers notice at once. The machine's kernel resets the connections, so it must be up.
	for _, other := range w.nodes {
		if other != n && other.up && w.chance.hit(0.5) {
			w.hearEnd(other, owner)
		}
	}
}

func (n *node) crashOptions() memfs.CrashOptions {
	s := &n.w.swarm
	return memfs.CrashOptions{KeepData: s.keepData, KeepSize: s.keepNames, KeepNames: s.keepNames, BlockBytes: s.tear, Garbage: s.garbage}
}

// hook installs the disk's faults: delays, errors and crashes before an operation.
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
		if n.crampedTurn(op, name) {
			return syscall.ENOSPC
		}
		if c.left > 0 {
			if c.left--; c.left == 0 && (c.kills || c.deceit.hasLied()) {
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

// pause stops the process for a while, as SIGSTOP does: its clocks and its peers go on.
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

// delayed is an event that waits in the buffers of a paused process. Events of one source keep
// their order, because one goroutine reads each source.
type delayed struct {
	source uint64
	run    func()
}

// do runs an event of the process itself: now, or when its pause ends.
func (n *node) do(run func()) { n.doFrom(n.id, run) }

// doFrom is do for an event from another source.
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

// housekeep does the work that a host's Run does once a second.
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
