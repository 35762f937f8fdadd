package sim

import (
	"strings"
	"time"

	"carillon/wal"
)

// bounds are the product's own bounds, scaled down so that a run reaches them. They are drawn from
// a stream of their own.
type bounds struct {
	queueFrames   int   // capacity of the log's queue, in frames
	logFrame      int   // the largest frame that the log takes, in bytes
	frameBytes    int   // size at which a worker begins another frame
	unsyncedBytes int   // bytes that may wait for a disk before a leader's entries are dropped
	memory        int64 // bytes that a node's groups may hold; 0: no limit
}

// largestEntry is more than an entry of a run has: 190 KiB was the most, of clients that collect. A
// frame exceeds its mark by at most one entry.
const largestEntry = 320 << 10

// bound draws the bounds.
func (s *swarm) bound(c chance) {
	b := &s.bounds
	b.queueFrames = 8 << c.IntN(4)
	b.frameBytes = 2 << 10 << c.IntN(4)
	b.logFrame = b.frameBytes + largestEntry
	b.unsyncedBytes = 64 << 10 << c.IntN(4)
	if c.IntN(4) == 0 {
		*b = bounds{queueFrames: wal.DefaultQueueFrames}
	}
	if c.IntN(3) == 0 {
		b.memory = 128 << 10 << c.IntN(4)
	}
}

// swamping makes disks hang under load, so that frames and queues reach their bounds.
func (s *swarm) swamping(c chance) {
	s.safety = min(s.safety, 20*time.Second)
	s.nodes, s.replicas, s.shards = 3, 3, 4
	s.clients, s.think = 6, c.between(5*time.Millisecond, 20*time.Millisecond)
	s.padding = 8 << 10
	s.segmentBytes = 64 << 10
	s.genBytes = s.segmentBytes * int64(2+c.IntN(4))
	s.bounds = bounds{queueFrames: 8, frameBytes: 2 << 10 << c.IntN(3), unsyncedBytes: 1 << 20}
	s.bounds.logFrame = s.bounds.frameBytes + largestEntry
	s.ailments.hangs, s.ordeals = 0.1+0.2*c.Float64(), ordeals{}
	s.pauses, s.slow, s.slowSync, s.atEffect, s.diskLatency = 0, 0, 0, 0, min(s.diskLatency, time.Millisecond)
	s.loss, s.delay = c.seldom(0.01), min(s.delay, time.Millisecond)
	s.crashes, s.longestDown = c.seldom(0.05), time.Second
	s.partitions, s.powerCuts, s.moves, s.rots, s.wipes, s.full, s.diskErrors, s.handOvers = 0, 0, 0, 0, 0, 0, 0, 0
}

// hangFollower stops all writes of the disk of the node that leads the fewest groups, while others
// send it much.
func (w *World) hangFollower() {
	var least *node
	for _, n := range w.nodes {
		if n.host == nil || n.paused || n.gone {
			continue
		}
		if n.hungUntil > w.now {
			return
		}
		if least == nil || len(n.ledHere()) < len(least.ledHere()) {
			least = n
		}
	}
	if least == nil {
		return
	}
	w.counts.HungUnder++
	least.hungUntil = w.now + w.ills.between(3*time.Second, 10*time.Second)
	w.note(least, "hang", uint64(least.hungUntil.Milliseconds()), 0, "")
}

// padding returns bytes that make a payload longer.
func (w *World) padding(number uint64) string {
	if w.swarm.padding == 0 {
		return ""
	}
	return strings.Repeat("x", int(number*7919)%w.swarm.padding)
}

// largestMessage is the most that a leader sends of entries at once.
const largestMessage = 1 << 20

// frameOverhead is what the product counts for a frame besides its entries: 512 bytes for its part
// of a group, and the headers.
const frameOverhead = 512 + 64

// unsynced checks the bytes that wait for a disk. A message is taken while they are below the
// bound. Its entries are cut into frames, which are much smaller here than in the world: each of
// these counts its overhead, which the message did not have.
func (n *node) unsynced() {
	b := &n.w.swarm.bounds
	if b.unsyncedBytes == 0 {
		return
	}
	most := b.unsyncedBytes + largestMessage + (1+largestMessage/b.frameBytes)*frameOverhead
	if n.host.Unsynced() > most {
		n.w.violate("I15", "%d bytes of node %d wait for its disk, the bound is %d", n.host.Unsynced(), n.id, b.unsyncedBytes)
	}
}
