package member

import (
	"encoding/binary"
	"encoding/hex"

	"carillon/internal/vfs"
	"carillon/ring"
	"carillon/shard"
)

func NewNodeID(random func([]byte)) uint64 {
	var b [8]byte
	random(b[:])
	return binary.LittleEndian.Uint64(b[:])&(1<<40-1) | 1
}

func NewClusterID(random func([]byte)) string {
	var b [16]byte
	random(b[:])
	return hex.EncodeToString(b[:])
}

// WriteRestoredIdentity makes a directory in which a cluster was restored that of its one node. It
// is the last that is written: without it no node starts there. first is the number of shards that
// the cluster of the backup was founded with.
func WriteRestoredIdentity(fsys vfs.FS, dir string, plan *ring.FoundingPlan, first int, meta shard.Assignment) error {
	id := Identity{
		NodeID: plan.Nodes[0].ID, Founded: true, Shards: plan.Shards, Replicas: plan.Replicas, ClusterID: plan.ClusterID,
		AcceptedPlan: plan, Meta: &meta,
	}
	if first != plan.Shards {
		id.FirstShards = first
	}
	return id.Write(fsys, dir)
}
