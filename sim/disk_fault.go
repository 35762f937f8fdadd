package sim

import "time"

// disk faults are what a machine does wrong and does not notice itself, or cannot help: a disk that does not read for a while, one that says it has
// written what it has not, a network that changes bits. One of six runs has one of them. They are drawn from a stream of their own, so that
// the other runs are what they would be anyway.
type ailments struct {
	blinds   float64 // a second, of the whole cluster: a disk does not read
	lies     float64 // … a disk says that it has synced and has not, when all else is well
	hangs    float64 // … the disk of a follower hangs, under load
	putsBack float64 // … an older copy of a directory is put back, when all else is well
	garbled  float64 // of the frames: bits are flipped on the way

	atOnce bool // who was lied to comes back as soon as any process, not when the others have what it had
}

// DiskFaultCounts say which of them a run came to.
type DiskFaultCounts struct {
	Unread       int // reads of files that failed
	Blinded      int // starts that failed by them, and processes that ended
	Unsent       int // snapshots that could not be read to be sent, or that had come and could not be read back
	Lies, Told   int // machines whose disk lied; replicas that were told by their leader that they have lost what they had
	AtOnce       int // processes begun at once after one that had ended itself, on a machine that goes on
	HeldBack     int // starts refused since a process had halted on that disk
	Filled, Full int // disks that filled up; turns of processes whose log had no room
	HeldOff      int // operations that leaders refused since a voter's disk was low
	HungUnder    int // disks of followers that hung under load
	PutBack      int // older copies of directories that were put back
	Identity     int // … of identity.json alone
	ToldOlder    int // processes that ended since their directory is an older copy
	Garbled, Cut int // frames and pieces of snapshots with flipped bits; links that broke by them
}

// ail draws a run's disk faults.
func (s *swarm) ail(c chance) {
	switch c.IntN(18) {
	case 0:
		s.blinding(c)
	case 1:
		s.lying(c)
	case 2:
		s.ailments.garbled = 0.002 + 0.03*c.Float64()
	case 3:
		s.swamping(c)
	case 4:
		s.brimming(c)
	case 5:
		s.puttingBack(c)
	}
}

// blinding has disks not read for a while, and much be read: processes begin anew, replicas lag and are sent snapshots.
func (s *swarm) blinding(c chance) {
	s.ailments.blinds = 0.1 + 0.5*c.Float64()
	s.crashes, s.longestDown = 0.05+0.3*c.Float64(), c.between(50*time.Millisecond, 3*time.Second)
	s.retainBytes, s.snapshotBytes = 1<<(8+c.IntN(6)), 1<<(12+c.IntN(4))
}

// lying has one disk at a time lie, and nothing else go wrong: more than a minority never has less than it says.
func (s *swarm) lying(c chance) {
	s.ailments.lies = 0.2 + 0.5*c.Float64()
	s.safety = min(s.safety, 40*time.Second)
	s.nodes, s.replicas = 3+c.IntN(2), 3
	s.segmentBytes = 16 << 10
	s.genBytes = s.segmentBytes * int64(1+c.IntN(4))
	s.think, s.clients = c.between(50*time.Millisecond, 400*time.Millisecond), min(s.clients, 5)
	s.loss, s.slow, s.slowSync, s.atEffect, s.early = 0, 0, 0, 0, false
	s.partitions, s.crashes, s.pauses, s.steps, s.diskErrors, s.powerCuts, s.handOvers, s.moves = 0, 0, 0, 0, 0, 0, 0, 0
	s.wipes, s.rots, s.full, s.bounds.memory = 0, 0, 0, 0 // more memory takes a restart, which a machine whose disk lied must not have yet
	s.ordeals = ordeals{}
}

// suffer draws what of it happens now.
func (w *World) suffer() {
	if w.calm {
		return
	}
	a := &w.swarm.ailments
	if w.ills.hit(a.blinds * nemesisEach.Seconds()) {
		w.readErrors()
	}
	if w.ills.hit(a.lies * nemesisEach.Seconds()) {
		w.syncLies()
	}
	if w.ills.hit(a.putsBack * nemesisEach.Seconds()) {
		w.putBackSomewhere()
	}
	if w.ills.hit(a.hangs * nemesisEach.Seconds()) {
		w.hangFollower()
	}
	w.after(nemesisEach, w.suffer)
}

// cure ends all of it.
func (w *World) cure() {
	for _, n := range w.nodes {
		n.crash.sees()
		n.crash.honest()
	}
}
