package shard

import (
	"fmt"
	"time"
)

// Replicas of a shard compare their states while they run (I7): now and then the leader writes the hash that its state had after an
// entry, and every replica that had applied that entry holds its own against it.

const (
	agreeEach = 10 * time.Second
	// hashesKept is for how many entries a replica remembers the hash: more than can be between an entry and the leader's word on it.
	hashesKept = 4 * maxPipelined
)

// hashRing remembers the hash of a table's state after each of the last entries.
type hashRing struct {
	at [hashesKept]struct{ index, hash uint64 }
}

// Note remembers what the state is after an entry.
func (t *Table) Note(index uint64) {
	slot := &t.hashes.at[index%hashesKept]
	slot.index, slot.hash = index, t.Hash()
}

// HashAt is what the state was after an entry, if that is one of the last.
func (t *Table) HashAt(index uint64) (hash uint64, ok bool) {
	slot := &t.hashes.at[index%hashesKept]
	return slot.hash, slot.index == index && index != 0
}

// agree holds the leader's word on an entry against what this replica had after it.
func (t *Table) agree(index, hash uint64) {
	if slot := &t.hashes.at[index%hashesKept]; slot.index == index && slot.hash != hash {
		t.diverged = fmt.Errorf("shard %d: after entry %d this replica's state hash is %016x, the leader's %016x: "+
			"one of them is damaged; stop this node, compare with the third replica, and replace the one that differs", t.id, index, slot.hash, hash)
	}
}

// checkHash has the leader give its word.
func (g *group) checkHash() {
	if g.table == nil || !g.serving || g.soleVoter() || g.w.mono < g.agreeAt {
		return
	}
	g.agreeAt = g.w.mono + agreeEach
	g.giveWord = true
}
