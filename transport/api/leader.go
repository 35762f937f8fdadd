package api

import (
	"strconv"

	"carillon/timer"
)

// leaderName is the header of an answer about one timer whose shard another node leads: it names
// that node, the shard, and how many shards there are. A client that goes there with its next
// request about a timer of that shard saves the cluster a hop.
var leaderName = []byte("Carillon-Leader")

// decide has one command decided, and names the shard's leader where that is another node. A dry
// run changes nothing.
func (rq *request) decide(id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	if rq.dryRun {
		return rq.preview(id, cmd)
	}
	res, err := rq.core.Timers.Do(rq.s.base, id, cmd, brief)
	rq.nameLeader(id)
	return res, err
}

// nameLeader sets the header, unless this node leads the shard or knows nobody who does.
func (rq *request) nameLeader(id timer.ShardID) {
	address := rq.s.cfg.Engine.Leader(id)
	if address == "" {
		return
	}
	var room [128]byte
	b := append(append(append(room[:0], '"'), address...), `";shard=`...)
	b = strconv.AppendUint(b, uint64(id), 10)
	b = append(b, ";shards="...)
	b = strconv.AppendInt(b, int64(rq.s.cfg.Engine.Shards()), 10)
	rq.ctx.Response.Header.SetCanonical(leaderName, b)
}
