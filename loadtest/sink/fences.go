package sink

import (
	"cmp"
	"hash/maphash"
	"sync"
)

const (
	fenceWays    = 4
	fenceSets    = 1 << 18 // × ways × 16 B = 16 MiB
	fenceStripes = 64
)

// fenceOrder compares a fence with those seen before of its timer.
type fenceOrder int

const (
	fenceRises   fenceOrder = iota // higher, or the first seen
	fenceRepeats                   // the very same: one attempt delivered twice
	fenceFalls                     // lower: an attempt of an older lease
)

// fences remembers the highest fence of recently seen timers, in fixed memory:
// a set-associative table keyed by a 64-bit hash of topic and timer, where the
// least recently seen of a set of four gives way. Two timers of one hash would
// be mixed up; at a million timers that chance is below 10⁻⁷.
type fences struct {
	seed maphash.Seed
	mu   [fenceStripes]sync.Mutex
	sets [][fenceWays]fence // guarded by mu[set % fenceStripes]
}

type fence struct {
	timer   uint64 // hash, 0 = empty
	highest int64
}

func newFences() *fences {
	return &fences{seed: maphash.MakeSeed(), sets: make([][fenceWays]fence, fenceSets)}
}

// see records a fence and compares it with the highest one before it.
func (f *fences) see(topic, timer []byte, value int64) fenceOrder {
	key := maphash.Bytes(f.seed, timer) ^ maphash.Bytes(f.seed, topic)*0x9E3779B97F4A7C15
	key = cmp.Or(key, 1)
	index := key % fenceSets
	lock := &f.mu[index%fenceStripes]
	lock.Lock()
	defer lock.Unlock()
	set := &f.sets[index]
	at := fenceWays - 1 // the least recently seen, evicted when none matches
	known := false
	for i := range set {
		if set[i].timer == key {
			at, known = i, true
			break
		}
	}
	entry := fence{timer: key, highest: value}
	order := fenceRises
	if known {
		switch highest := set[at].highest; {
		case value == highest:
			order = fenceRepeats
		case value < highest:
			order, entry.highest = fenceFalls, highest
		}
	}
	copy(set[1:at+1], set[:at]) // Invariant: a set is ordered by last seen.
	set[0] = entry
	return order
}
