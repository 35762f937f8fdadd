package shard

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/placement"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// A shard doubles (docs/adr/0067-shards-double.md). The meta group gives the child a row that names
// the shard from which it is divided. The parent's leader looks at its timers, in slices, and finds
// those that will belong to the child; then one entry divides the table. division_child.go has the
// rest: how each replica makes the child's of the half that has left.

// groupTable has the groups of a host, and knows which of them are yet to be divided from others.
// To find one is O(1).
type groupTable struct {
	h       *Host
	groups  atomic.Pointer[[]*replica] // by ID
	known   atomic.Int32               // timer shards, as the node has stored; more have no replica here
	founded atomic.Int32               // groups above it are divided from others; 0: none is
	growing sync.Mutex                 // held by Grow
}

func (t *groupTable) all() []*replica { return *t.groups.Load() }

func (t *groupTable) group(id timer.ShardID) *replica { return t.all()[id] }

// Grow makes room for more groups, up to so many timer shards. Those above founded are divided from
// the shard with their number less founded; until one exists here, that shard answers for it.
// founded = shards: none is. It may be called from any goroutine once Started is closed,
// repeatedly, and before rows of the new groups are placed.
func (t *groupTable) Grow(shards, founded int) {
	t.makeRoom(shards)
	t.known.Store(int32(shards))
	t.founded.Store(int32(founded))
}

// makeRoom makes more groups, without a replica here.
func (t *groupTable) makeRoom(shards int) {
	t.growing.Lock()
	defer t.growing.Unlock()
	groups := t.all()
	if more := groups[:len(groups):len(groups)]; len(more) <= shards {
		for id := len(more); id <= shards; id++ {
			more = append(more, t.h.newReplica(timer.ShardID(id)))
		}
		t.groups.Store(&more)
		for _, r := range more[len(groups):] {
			r.w.box.post(joined{r})
		}
	}
}

// joined adds a new group to its worker's.
type joined struct{ *replica }

func (j joined) handle(*worker) { j.join() }

// Shards returns for how many timer shards there is room.
func (h *Host) Shards() int { return len(h.all()) - 1 }

// resolve returns the group that answers here for a shard: another one if the shard is yet to be
// divided from that.
func (t *groupTable) resolve(id timer.ShardID) *replica {
	r := t.group(id)
	founded := timer.ShardID(t.founded.Load())
	if founded == 0 || id <= founded || id > 2*founded || r.public.present.Load() {
		return r
	}
	if p := t.group(id - founded); p.public.present.Load() && p.public.divided.Load() < uint32(id) {
		return p
	}
	return r
}

// doubles reports whether a doubling is under way, as far as the node has learned.
func (t *groupTable) doubles() bool {
	founded := t.founded.Load()
	return founded != 0 && founded < t.known.Load()
}

// dividing reports whether a shard is made by the doubling that is under way.
func (t *groupTable) dividing(id timer.ShardID) bool {
	return t.doubles() && int32(id) > t.founded.Load()
}

// half returns which timers belong to a shard: as long as one group has those of two, each is
// answered its own. nil: all that the group has.
func (t *groupTable) half(id timer.ShardID) func(topic timer.TopicID, timerID []byte) bool {
	founded := timer.ShardID(t.founded.Load())
	if !t.doubles() || id > 2*founded {
		return nil
	}
	p := id
	if p > founded {
		p -= founded
	}
	if t.group(p).public.divided.Load() >= uint32(p+founded) {
		return nil
	}
	topics := map[timer.TopicID]*timer.Topic{}
	return func(topic timer.TopicID, timerID []byte) bool {
		named, seen := topics[topic]
		if !seen {
			named, _ = t.h.cfg.Topics.Topic(topic)
			topics[topic] = named
		}
		return named == nil || timer.ShardOf(named, string(timerID), 2*int(founded)) == id
	}
}

// numbered names the shard that gave a timer its number. An answer always does: the number of
// shards may double before somebody reads it.
func numbered(s *timerShard, origin *timer.ShardID) { *origin = cmp.Or(*origin, s.g.shard) }

// hasLeft reports whether a shard's timers have left the group that was asked for them.
func (d *division) hasLeft(asked timer.ShardID) bool {
	return asked != d.s.g.shard && d.s.table.DividedOf() >= int(asked)
}

// division is a leader's work on the division of its shard, and the rows of the children.
type division struct {
	s     *timerShard
	rows  []Assignment // of all doublings, in their order
	child Assignment   // the last of rows; Group 0: none is known

	at       timer.Handle // the slots up to here are looked at
	seq      uint64       // last number when that began
	half     []uint64     // the child's
	begun    bool
	ready    bool // all slots are looked at
	proposed bool // its entry is on its way: nothing else is proposed

	createAt time.Duration // earliest time of the next attempt to make the child's replica; monotonic
}

const (
	lookBudget  = 2048 // slots that a leader looks at in a turn
	sweepBudget = 1024 // … and that an entry drops the foreign timers of
	moveBudget  = 1024 // … and that a tick moves the contents of, after that
)

// end drops the state of a leadership.
func (d *division) end() { *d = division{s: d.s, rows: d.rows, child: d.child, createAt: d.createAt} }

// of returns the number of shards at whose doubling a shard is divided to make a child.
func (d *division) of(child timer.ShardID) int { return 2 * int(child-d.s.g.shard) }

// childRow gives a shard its child's row.
type childRow struct {
	shard *timerShard
	row   Assignment
}

func (c childRow) handle(w *worker) {
	d := &c.shard.division
	at, known := slices.BinarySearchFunc(d.rows, c.row.Group, func(r Assignment, id timer.ShardID) int { return cmp.Compare(r.Group, id) })
	if known {
		d.rows[at] = c.row
	} else {
		d.rows = slices.Insert(d.rows, at, c.row)
	}
	d.child = d.rows[len(d.rows)-1]
	d.createChildren()
	w.touch(c.shard.g)
}

// divides reports whether the shard is to be divided now, and this replica leads it. It waits for
// room on the voters' disks, because the child's timers wait until each has written its half, and
// for memory of their nodes, because the new shard takes some for good.
func (d *division) divides() bool {
	s, c := d.s, &d.child
	return s.g.serving && s.g.public.lowDisk.Load() == nil && c.Group != 0 && !c.Settled && !s.table.Leaving() && s.table.DividedOf() < int(c.Group) && !d.lacksMemory()
}

// lacksMemory reports whether the node of a voter, this one or another, has no memory for more
// shards.
func (d *division) lacksMemory() bool {
	g, h := d.s.g, d.s.g.w.host
	return h.MemoryTight() || h.cfg.Shortages != nil &&
		slices.ContainsFunc(h.cfg.Shortages.Tight(), func(node uint64) bool { return g.membership.hasVoter(g, node) })
}

// tick makes the child's replica, or goes on where a node has memory again.
func (d *division) tick() {
	d.createChildren()
	if d.divides() {
		d.s.g.w.touchNext(d.s.g)
	}
}

// sweeps reports whether the timers of the child can go: that is settled, so it has them.
func (d *division) sweeps() bool {
	return d.s.g.serving && d.s.table.Leaving() && slices.ContainsFunc(d.rows, func(r Assignment) bool {
		return r.Settled && d.of(r.Group) == d.s.table.DividedOf()
	})
}

func (d *division) lookForHalf() {
	switch {
	case d.proposed:
		return
	case !d.divides():
		if d.begun { // from the start when it is: more timers may come meanwhile than one turn can look at
			d.end()
		}
		return
	case d.ready:
		return
	}
	s := d.s
	if !d.begun {
		d.begun, d.seq, d.at, d.half = true, s.table.LastSeq(), 0, nil
	}
	done, known := d.findHalf(0, &d.at, lookBudget)
	switch {
	case !known: // at the next tick from the start
		d.end()
	case done:
		d.ready = true
		s.g.w.touchNext(s.g)
	default:
		s.g.w.touchNext(s.g)
	}
}

// findHalf marks which timers with a number above seq go to the child. known is false if it meets a
// topic that this node has yet to learn of.
func (d *division) findHalf(seq uint64, at *timer.Handle, budget int) (done, known bool) {
	s, of := d.s, 2*int(d.child.Group-d.s.g.shard)
	var topic *timer.Topic
	known = true
	*at, done = s.table.Newer(seq, *at, budget, func(h timer.Handle, id timer.TopicID, name []byte) {
		if topic == nil || topic.ID != id {
			topic, _ = s.g.w.host.cfg.Topics.Topic(id)
		}
		for int(h>>6) >= len(d.half) {
			d.half = append(d.half, 0)
		}
		d.half[h>>6] &^= 1 << (h & 63)
		switch {
		case topic != nil:
			if timer.ShardOf(topic, string(name), of) != s.g.shard {
				d.half[h>>6] |= 1 << (h & 63)
			}
		case id != table.CanaryTopic && !s.g.w.host.cfg.Topics.Given(id):
			known = false
		}
	})
	return done, known
}

// propose makes the entry that divides the table, once all slots are looked at and nothing
// is on its way. It reports whether nothing else may be proposed now.
func (d *division) propose() (alone bool) {
	s := d.s
	if d.proposed {
		return true
	}
	if !d.ready || s.g.takeover || s.g.transfer.to != 0 || !d.divides() {
		return false
	}
	if len(s.g.pipeline.proposals) > 0 {
		return true
	}
	at := timer.Handle(0)
	if _, known := d.findHalf(d.seq, &at, math.MaxInt); !known {
		d.end()
		return false
	}
	s.batch.Reset(s.entryMs(), s.g.w.host.origin, s.g.pipeline.number+1)
	s.batch.SetLevel(s.g.w.host.agreed())
	s.batch.Divide(2*int(d.child.Group-s.g.shard), d.half)
	s.items, s.spareItems = append(s.spareItems, item{kind: divisionItem}), nil
	d.proposed = true
	s.submit()
	return true
}

// proposeSweep drops more of the timers that have left.
func (d *division) proposeSweep() {
	if s := d.s; d.sweeps() {
		s.batch.Sweep(sweepBudget)
		s.items = append(s.items, item{kind: divisionItem})
	}
}

// ownersBy returns which of so many shards has a timer, by what its lease knows of it, or else the
// table before; nil: that is not known. Another shard may be yet to be divided, and then has the
// timers of its child: unless the child is here, the other shard gets the leases, and passes them
// on when it is divided.
func (d *division) ownersBy(before *table.Table, of int) scheduler.Owner {
	host, self := d.s.g.w.host, d.s.g.shard
	return func(h timer.Handle, seq uint64, topic *timer.Topic, name string) *scheduler.Scheduler {
		if name == "" && before.Live(h, seq) {
			topic, _ = host.cfg.Topics.Topic(before.TopicOf(h))
			name = before.ID(h)
		}
		if topic == nil || topic.ID == table.CanaryTopic || name == "" {
			return nil
		}
		id := timer.ShardOf(topic, name, of)
		if half := timer.ShardID(of / 2); id > half && id-half != self && !host.group(id).public.present.Load() {
			id -= half
		}
		return host.shard(id).scheduler
	}
}

// nobody is the owner of all timers where an entry has divided the table: the timers that have left
// are the child's.
func nobody(timer.Handle, uint64, *timer.Topic, string) *scheduler.Scheduler { return nil }

// leave follows the division of the table, on any replica: the leases of the child's timers, and
// the waiters for these, go over to the child, or to the owner where that is known.
func (d *division) leave(owner scheduler.Owner) {
	s := d.s
	of, h := s.table.DividedOf(), s.g.w.host
	if int(s.g.shard) > of/2 {
		return // it came of that doubling
	}
	h.makeRoom(of) // the node may not have learned of the child yet
	s.g.public.divided.Store(uint32(of))
	d.end()
	d.createAt = 0 // that was of another child
	child := h.shard(s.g.shard + timer.ShardID(of/2))
	s.scheduler.Leave(child.scheduler, owner)
	if s.table.Leaving() {
		child.g.w.box.post(awaited{child.g})
	}
	waiting := s.waiting
	s.waiting = nil
	for _, o := range waiting {
		if !d.passOn(o) {
			s.waiting = append(s.waiting, o)
		}
	}
	d.createChildren()
	s.g.w.touchNext(s.g)
}

// passOn passes an operation to the shard that has its timer since this one was divided. It reports
// false if that is this one.
func (d *division) passOn(o *op) bool {
	s := d.s
	if s.table.DividedOf() == 0 || o.wait == nil { // an operation of the shard itself
		return false
	}
	to, known := d.ownerOfOp(o)
	switch {
	case to == s.g.shard && known:
		return false
	case !known || int(to) >= len(s.g.w.host.all()): // after a start the node may not have learned of the child yet
		o.answer(timer.Result{}, timer.NotLeaderError{})
		return true
	}
	next := s.g.w.host.shard(to)
	s.g.w.queued.Add(-1)
	next.g.w.queued.Add(1)
	o.shard, o.passed = next, true
	if err := next.g.w.box.put(o, math.MaxInt); err != nil {
		o.answer(timer.Result{}, err)
	}
	return true
}

// ownerOfOp is ownerOf for an operation. That on a lease goes with its timer, by its place if the
// caller has sent that, as it may know of fewer shards; that on a topic to the shard that was
// asked.
func (d *division) ownerOfOp(o *op) (id timer.ShardID, known bool) {
	asked := o.asked
	if o.passed {
		asked = d.s.g.shard
	}
	switch {
	case !o.cmd.Kind.UpdatesLease() && o.cmd.ID != "":
		return d.ownerOf(asked, o.cmd.Topic, o.cmd.ID)
	case o.cmd.Kind.UpdatesLease() && o.place != 0 && d.s.table.DividedOf() != 0:
		return timer.ShardID(1 + (o.place-1)%uint64(d.s.table.DividedOf())), true
	case o.cmd.Kind.UpdatesLease() && d.s.table.Foreign(o.cmd.Claim.Handle):
		return d.s.g.shard + timer.ShardID(d.s.table.DividedOf()/2), true
	case d.hasLeft(asked):
		return asked, true
	}
	return d.s.g.shard, true
}

// ownerOf returns the shard that has a timer, for a caller that asked another one, perhaps because
// it did not know how many there are. A topic that is not known here can be a new one: then the
// shard is not known either.
func (d *division) ownerOf(asked timer.ShardID, topic timer.TopicID, timerID string) (id timer.ShardID, known bool) {
	s := d.s
	of := s.table.DividedOf()
	if of == 0 {
		return s.g.shard, true
	}
	topics := s.g.w.host.cfg.Topics
	if t, known := topics.Topic(topic); known {
		return timer.ShardOf(t, timerID, of), true
	}
	return asked, asked != s.g.shard || topics.Given(topic)
}

// firstReplica returns this node's replica of those that make the child.
func firstReplica(row *Assignment, node uint64) uint64 {
	if m := placement.On(row.FirstMembers(), node); m != nil && !m.Learner {
		return m.Replica
	}
	return 0
}
