package ring

import (
	"strconv"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
)

// ringLoad is how far above the mean a member of the library's ring may be. The library panics when
// it is below 1.
const ringLoad = 1.15

// ringPoints is how many virtual nodes a member has. Building a ring sorts all of them once per
// member, so that with very many members each has fewer; the mean of points per shard evens them
// out then.
func ringPoints(members int) int { return max(16, min(128, 12_800/max(members, 1))) }

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
