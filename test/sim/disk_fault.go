package sim

import "time"

// ailments are the rates of faults that a machine does not notice or cannot avoid: a disk that
// fails to read for a while or loses writes that it acknowledged, a network that flips bits. One
// run in three draws one kind. They are drawn from a stream of their own, so that they change no
// other run.
type ailments struct {
	blinds   float64 // per second in the whole cluster: a disk does not read
	lies     float64 // … a disk reports a sync that it has not done, while nothing else is wrong
	hangs    float64 // … a follower's disk hangs under load
	putsBack float64 // … an older copy of a directory is put back, while nothing else is wrong
	garbled  float64 // share of frames with flipped bits

	// a machine whose disk lied restarts at once, without waiting for the others to catch up
	atOnce bool
}

// DiskFaultCounts count the disk faults of a run.
type DiskFaultCounts struct {
	Unread  int // file reads that failed
	Blinded int // starts that failed and processes that ended because of them
	// snapshots that could not be read to be sent, or read back after their transfer
	Unsent int
	// machines whose disk lied; replicas that learned from their leader that data is missing
	Lies, Told   int
	AtOnce       int // processes started at once after one that ended itself, on a running machine
	HeldBack     int // starts refused because a process had halted on that disk
	Filled, Full int // disks that filled up; turns of processes whose log had no room
	Cramped      int // segments of the log that found no room for their names
	HeldOff      int // operations that leaders refused because a voter's disk was low
	HungUnder    int // followers' disks that hung under load
	PutBack      int // older copies of directories that were put back
	Identity     int // … of identity.json alone
	ToldOlder    int // processes that ended because their directory is an older copy
	Garbled, Cut int // frames and chunks with flipped bits; links that broke because of them
}

// ail draws the disk faults of a run.
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

// blinding makes disks unreadable for a while and causes many reads: processes restart, and lagging
// replicas need snapshots.
func (s *swarm) blinding(c chance) {
	s.ailments.blinds = 0.1 + 0.5*c.Float64()
	s.crashes, s.longestDown = 0.05+0.3*c.Float64(), c.between(50*time.Millisecond, 3*time.Second)
	s.retainBytes, s.snapshotBytes = 1<<(8+c.IntN(6)), 1<<(12+c.IntN(4))
}

// lying makes one disk at a time lie, without other faults: at most a minority ever has less than
// it reports.
func (s *swarm) lying(c chance) {
	s.ailments.lies = 0.2 + 0.5*c.Float64()
	s.safety = min(s.safety, 40*time.Second)
	s.nodes, s.replicas = 3+c.IntN(2), 3
	s.segmentBytes = 16 << 10
	s.genBytes = s.segmentBytes * int64(1+c.IntN(4))
	s.think, s.clients = c.between(50*time.Millisecond, 400*time.Millisecond), min(s.clients, 5)
	s.loss, s.slow, s.slowSync, s.atEffect, s.early = 0, 0, 0, 0, false
	s.partitions, s.crashes, s.pauses, s.steps, s.diskErrors, s.powerCuts, s.handOvers, s.moves = 0, 0, 0, 0, 0, 0, 0, 0
	// A memory limit is raised by a restart, and a machine whose disk lied must not restart early.
	s.wipes, s.rots, s.full, s.bounds.memory = 0, 0, 0, 0
	// A power cut at a move would reveal the lie before the others have the data.
	s.atMoves = 0
	s.ordeals = ordeals{}
}

// suffer draws the disk faults that happen now.
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

// cure ends all disk faults.
func (w *World) cure() {
	for _, n := range w.nodes {
		n.crash.sees()
		n.crash.honest()
	}
}
