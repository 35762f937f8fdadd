package shard

import (
	"io"
	"time"

	"carillon/shard/record"
	"carillon/timer"

	pb "go.etcd.io/raft/v3/raftpb"
)

// machine is the state machine of a group: a shard of timers (timerShard), or the meta group
// (metaGroup). It also makes the group's entries, of the changes that wait for it. Its worker alone
// uses it, but for read.
type machine interface {
	// apply applies a committed entry and answers the operations that it was made of. compares
	// reports whether the entry makes the replicas compare their states. An error means that this
	// build cannot apply the entry.
	apply(e *pb.Entry) (compares bool, err error)
	// afterApply is called when all committed entries are applied.
	afterApply()
	// replay is apply at a start, where no operation waits.
	replay(e *record.Entry) error

	// hash returns the hash of the state, and hashVersion the version of that hash.
	hash() uint64
	hashVersion() byte
	bytes() int64 // memory that the state takes
	slots() int   // that a long read visits
	// save starts to save the state, read reads what a save has written, on any goroutine, and
	// replace makes a state that was read the current one.
	save() timer.Saving
	read(r io.Reader) (state any, hash uint64, err error)
	replace(state any)
	clear() // forgets the state of a removed replica

	// propose makes one entry of the changes that wait, if this replica may.
	propose()
	hasWork() bool // propose has something to do
	waits() int    // client operations that are not proposed
	// prompt reports that nothing of the group waits a moment for something that may follow: no
	// change for others, no frame for others, and no operation for the next leader.
	prompt() bool
	refuse(err error)         // answers all operations that are not proposed
	expire(now time.Duration) // answers operations whose deadline has passed

	run()            // does its part of a turn
	nextWake() int64 // wall ms at which it needs a turn
	tick()           // does its periodic work
	tickRemoved()    // … on a node without a replica
	end()            // ends a leadership, and fails its proposals
	doubt()          // this process was suspended; see replica.doubt
	drain()          // a transfer of the leadership begins
	unstarted() int  // leases whose calls have not started
	scanLeases()     // processes of other nodes have ended, perhaps
	receive(kind byte, from uint64, body []byte)
	status(to *GroupStatus)
	stats(to *Stats)
}
