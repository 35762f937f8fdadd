package member

import (
	"encoding/binary"
	"maps"
	"sync"
	"time"

	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
	"carillon/timer/encoding"
)

// Once a second a node reports to the meta group's leader how large the shards are that it leads, so
// that the controller moves no more at once than nodes can send. Small shards are left out: a move
// of one takes as long for whatever size. Most clusters have no others.

const (
	// sizesFrame begins the control frames that carry it. Releases that do not know it drop them.
	sizesFrame    = 0xB4
	sizesInterval = time.Second
)

// shardSizes are what other nodes report of the shards that they lead. O(large shards).
type shardSizes struct {
	mu     sync.Mutex
	nodes  map[uint64]sizeReport
	sentAt time.Duration // this node's own report
}

type sizeReport struct {
	at    time.Duration
	bytes map[timer.ShardID]int64
}

// encodeSizes is a node's frame; nil: it has nothing to report.
func encodeSizes(bytes map[timer.ShardID]int64) []byte {
	if len(bytes) == 0 {
		return nil
	}
	out := binary.AppendUvarint([]byte{sizesFrame}, uint64(len(bytes)))
	for id, n := range bytes {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(id)), uint64(n))
	}
	return out
}

// decodeSizes reads what follows sizesFrame. It skips fields that later releases may add.
func decodeSizes(in []byte) (bytes map[timer.ShardID]int64, ok bool) {
	r := encoding.Reader{Rest: in}
	count := r.Count(maxLeads, 2, "shards")
	bytes = make(map[timer.ShardID]int64, count)
	for range count {
		id := r.Number(maxLeads, "shard")
		bytes[timer.ShardID(id)] = int64(r.Number(1<<50, "size"))
	}
	return bytes, r.Fault == ""
}

// record takes a node's report.
func (s *shardSizes) record(now time.Duration, node uint64, bytes map[timer.ShardID]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[uint64]sizeReport{}
	}
	s.nodes[node] = sizeReport{now, bytes}
}

// all are the sizes that nodes have reported lately.
func (s *shardSizes) all(now time.Duration) map[timer.ShardID]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[timer.ShardID]int64{}
	for node, r := range s.nodes {
		if now-r.at >= downAfter {
			delete(s.nodes, node)
			continue
		}
		maps.Copy(all, r.bytes)
	}
	return all
}

// due reports whether this node's own report is due, and that it is made.
func (s *shardSizes) due(now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sentAt != 0 && now-s.sentAt < sizesInterval {
		return false
	}
	s.sentAt = now
	return true
}

// largeShards are the sizes of those shards of a list that are not small.
func (l *local) largeShards(ids []timer.ShardID) map[timer.ShardID]int64 {
	var large map[timer.ShardID]int64
	for _, id := range ids {
		if n, _ := l.host.Size(id); n > ring.SmallMove {
			if large == nil {
				large = map[timer.ShardID]int64{}
			}
			large[id] = n
		}
	}
	return large
}

// reportSizes sends this node's report to the meta group's leader.
func (h *heartbeatSender) reportSizes(now time.Duration, leads []timer.ShardID) {
	leader, known := h.host.Leader(shard.Meta)
	if !known || leader == h.id || !h.sizes.due(now) {
		return
	}
	if frame := encodeSizes(h.largeShards(leads)); frame != nil {
		h.peers.Send(leader, frame)
	}
}
