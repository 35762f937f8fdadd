package sink

import (
	"hash/maphash"
	"sync"
)

// maxFences bounds the memory of fences: some 40 MB. Beyond it all are forgotten.
const maxFences = 1 << 20

// fenceOrder compares a fence with those seen before of its timer.
type fenceOrder int

const (
	fenceRises   fenceOrder = iota // higher, or the first seen
	fenceRepeats                   // the very same: one attempt delivered twice
	fenceFalls                     // lower: an attempt of an older lease
)

// fences remembers the highest fence of each timer, by a 64-bit hash of topic and timer. Two timers
// of one hash would be mixed up; at a million timers that chance is below 10⁻⁷.
type fences struct {
	seed    maphash.Seed
	mu      sync.Mutex
	highest map[uint64]int64
}

func newFences() *fences { return &fences{seed: maphash.MakeSeed(), highest: map[uint64]int64{}} }

// see records a fence and compares it with the highest one before it.
func (f *fences) see(topic, timer []byte, value int64) fenceOrder {
	key := maphash.Bytes(f.seed, timer) ^ maphash.Bytes(f.seed, topic)*0x9E3779B97F4A7C15
	f.mu.Lock()
	defer f.mu.Unlock()
	highest, known := f.highest[key]
	switch {
	case known && value == highest:
		return fenceRepeats
	case known && value < highest:
		return fenceFalls
	case !known && len(f.highest) >= maxFences:
		clear(f.highest)
	}
	f.highest[key] = value
	return fenceRises
}
