package timers

import (
	"strconv"

	"carillon/timer"
	"carillon/transport/api/web"
)

// leaderName is the header of an answer about one timer whose shard another node leads: it names
// that node, the shard, and how many shards there are. A client that goes there with its next
// request about a timer of that shard saves the cluster a hop.
var leaderName = []byte("Carillon-Leader")

// nameLeader sets the header, unless this node leads the shard or knows nobody who does.
func nameLeader(rq *web.Request, id timer.ShardID) {
	address := rq.Engine.Leader(id)
	if address == "" {
		return
	}
	var room [128]byte
	b := append(append(append(room[:0], '"'), address...), `";shard=`...)
	b = strconv.AppendUint(b, uint64(id), 10)
	b = append(b, ";shards="...)
	b = strconv.AppendInt(b, int64(rq.Engine.Shards()), 10)
	rq.Ctx.Response.Header.SetCanonical(leaderName, b)
}
