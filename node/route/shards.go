package route

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"

	"carillon/shard/wire"
	"carillon/timer"
)

// The number of timer shards can grow while requests are under way. From then on a shard that is
// divided answers a read with what will stay with it, and for its child with the rest, before and
// after the division. So a read of many shards is right only if all of them count with the same
// number:
//
//   - It is done with one number. Where this node has another at the end, or the node that was asked
//     has, the answer counts for nothing and the read begins again.
//   - Once the number has ever grown, such reads between nodes carry it: see methodSized.
//
// Commands need none of this: a shard passes on what is not its own any more.

// shardCount knows how many shards there are, and which one a timer is in.
type shardCount struct {
	cluster Cluster
	topic   func(timer.TopicID) (*timer.Topic, bool)
}

// methodSized is a request that is answered only by a node that counts with as many shards: their
// number as a uvarint, the method, its body.
const methodSized uint8 = 40

// sized are the methods that methodSized is for.
var sized = []uint8{methodList, methodSlots, methodCounts, methodWalk, methodHistory, methodProgress}

// shards is the number of timer shards, from 1 on.
func (s *shardCount) shards() int {
	now, _ := s.cluster.Shards()
	return now
}

// grown reports whether the number has ever been another.
func (s *shardCount) grown() bool {
	now, first := s.cluster.Shards()
	return now != first
}

// counting does a read as long as this node's shards are of that number; otherwise it is refused,
// for a moment.
func (s *shardCount) counting(of int, read func() error) error {
	if !s.countsWith(of) {
		return timer.NotLeaderError{}
	}
	err := read()
	if !s.countsWith(of) {
		return timer.NotLeaderError{}
	}
	return err
}

func (s *shardCount) countsWith(of int) bool {
	return s.shards() == of && s.cluster.Steady()
}

// sizedRequest is a request as it goes to another node.
func (s *shardCount) sizedRequest(of int, method uint8, body []byte) (uint8, []byte) {
	if of == 0 || !s.grown() {
		return method, body
	}
	return methodSized, append(append(binary.AppendUvarint(nil, uint64(of)), method), body...)
}

// serveSized answers a request that needs a number of shards with answer, if this node has it.
func (s *shardCount) serveSized(method uint8, body []byte, answer func(method uint8, body []byte) ([]byte, error)) (out []byte, err error) {
	of := uint64(s.shards())
	if method == methodSized {
		number, n := binary.Uvarint(body)
		if n <= 0 || n == len(body) || !slices.Contains(sized, body[n]) {
			return nil, errors.New("route: a malformed request")
		}
		of, method, body = number, body[n], body[n+1:]
	} else if s.grown() { // the other node does not know that yet
		of = 0
	}
	refused := s.counting(int(min(of, mostShards)), func() error {
		out, err = answer(method, body)
		return nil
	})
	if refused != nil {
		return wire.AppendFailure(nil, refused), nil
	}
	return out, err
}

// mostShards bounds the number of shards.
const mostShards = 1 << 16

// shardOf is the shard that an operation belongs to now; at is where it was sent.
func (s *shardCount) shardOf(at timer.ShardID, topic timer.TopicID, id string) timer.ShardID {
	if id == "" || !s.grown() {
		return at
	}
	t, ok := s.topic(topic)
	if !ok {
		return at
	}
	return timer.ShardOf(t, id, s.shards())
}

// place gives an operation the shard that it belongs to now.
func (s *shardCount) place(o *timer.Op) {
	switch {
	case !s.grown():
	case o.Command.ID != "":
		o.Shard = s.shardOf(o.Shard, o.Command.Topic, o.Command.ID)
	case o.Place != 0:
		o.Shard = timer.ShardID(1 + (o.Place-1)%uint64(s.shards()))
	}
}

// PlaceOf is Op.Place of a timer; 0 where the topic is not known here.
func (s *shardCount) PlaceOf(topic timer.TopicID, id string) uint64 {
	t, ok := s.topic(topic)
	if !ok {
		return 0
	}
	_, of := s.cluster.Shards()
	for 2*of <= mostShards {
		of *= 2
	}
	return 1 + timer.PlaceOf(t, id)%uint64(of)
}

// Descendants are the shards that may have timers by now to which this one gave their numbers:
// itself, and those that were divided from it.
func (s *shardCount) Descendants(id timer.ShardID) []timer.ShardID {
	now, of := s.cluster.Shards()
	descendants := []timer.ShardID{id}
	for of < int(id) {
		of *= 2
	}
	for child := int(id) + of; child <= now; child += of {
		descendants = append(descendants, timer.ShardID(child))
	}
	return descendants
}

// withAncestors adds to shards those that they were divided from: what ended there stays in their
// history.
func (s *shardCount) withAncestors(ids []timer.ShardID) []timer.ShardID {
	_, first := s.cluster.Shards()
	out := slices.Clone(ids)
	for _, id := range ids {
		for from := Ancestor(id, first); from != 0; from = Ancestor(from, first) {
			out = append(out, from)
		}
	}
	return out
}

// Ancestor is the shard that another was divided from, in a cluster that was founded with so many;
// 0: none.
func Ancestor(id timer.ShardID, first int) timer.ShardID {
	if first < 1 || int(id) <= first {
		return 0
	}
	parents := first
	for 2*parents < int(id) {
		parents *= 2
	}
	return id - timer.ShardID(parents)
}

// deciders are, by shard, the other nodes that answered a request from here last.
type deciders struct {
	list atomic.Pointer[[]atomic.Uint64]
}

func (d *deciders) load(id timer.ShardID) uint64 {
	if list := d.list.Load(); list != nil && int(id) < len(*list) {
		return (*list)[id].Load()
	}
	return 0
}

// store keeps a node. A list that has become too short is replaced; what is stored in the old one
// at the same time may be lost: it is a hint.
func (d *deciders) store(id timer.ShardID, node uint64, shards int) {
	list := d.list.Load()
	if list == nil || int(id) >= len(*list) {
		longer := make([]atomic.Uint64, max(int(id), shards)+1)
		if list != nil {
			for i := range *list {
				longer[i].Store((*list)[i].Load())
			}
		}
		list = &longer
		d.list.Store(list)
	}
	(*list)[id].Store(node)
}
