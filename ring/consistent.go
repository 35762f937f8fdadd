package ring

import (
	"slices"
	"strconv"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// ringLoad is how far above the mean a member of the library's ring may be. The library panics when
// it is below 1.
const ringLoad = 1.15

// ringPoints is how many virtual nodes a member has. Building a ring sorts all of them once per
// member, so with very many members each has few. The bound on their loads evens them out then.
func ringPoints(members int) int { return max(4, min(128, 4_000_000/max(members*members, 1))) }

// Rings are the consistent-hash rings of a cluster, by rank. Each is made when it is first asked
// for, and kept while nodes and shards are the same: O(shards) of memory. The zero value has none.
type Rings struct {
	nodes  []uint64
	shards int
	owners [][]uint64 // by rank
}

// use drops the rings if they are of other nodes or shards.
func (r *Rings) use(nodes []uint64, shards int) {
	if r.shards != shards || !slices.Equal(r.nodes, nodes) {
		*r = Rings{nodes: nodes, shards: shards}
	}
}

// owner is the node to which the ring of that rank gives a shard, by index, or 0.
func (r *Rings) owner(i, rank int) uint64 {
	for len(r.owners) <= rank {
		r.owners = append(r.owners, ringOwners(r.nodes, r.shards, len(r.owners)))
	}
	if r.owners[rank] == nil {
		return 0
	}
	return r.owners[rank][i]
}

// ringMember is a node in the ring of one rank: the salt makes the rings of two ranks independent
// of each other.
type ringMember string

func (m ringMember) String() string { return string(m) }

type ringHash struct{}

func (ringHash) Sum64(b []byte) uint64 { return xxhash.Sum64(b) }

// ringOwners asks the consistent-hash ring of one rank for the owner of each shard. Nil: there is
// none, or the library has given up (it panics when it finds no room, as colliding hashes could
// bring about); rendezvous then decides alone.
func ringOwners(nodes []uint64, shards, rank int) (owners []uint64) {
	if len(nodes) == 0 || shards < 1 {
		return nil
	}
	defer func() {
		if recover() != nil {
			owners = nil
		}
	}()
	members := make([]consistent.Member, len(nodes))
	ids := make(map[string]uint64, len(nodes))
	for i, id := range nodes {
		name := strconv.Itoa(rank) + "/" + strconv.FormatUint(id, 10)
		members[i], ids[name] = ringMember(name), id
	}
	c := consistent.New(members, consistent.Config{
		Hasher: ringHash{}, PartitionCount: shards, ReplicationFactor: ringPoints(len(nodes)), Load: ringLoad})
	owners = make([]uint64, shards)
	for i := range owners {
		owners[i] = ids[c.GetPartitionOwner(i).String()]
	}
	return owners
}
