package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestIndexAgainstMap compares the index with a map, also with few distinct hashes and while it
// shrinks.
func TestIndexAgainstMap(t *testing.T) {
	for _, hashes := range []uint32{1000, 1 << 12, 1<<32 - 1} {
		random := rand.New(rand.NewPCG(uint64(hashes), 1))
		var x Index
		want := map[uint32]uint32{} // number → hash
		for i := range uint32(40_000) {
			hash := uint32(uint64(random.Uint32N(hashes)) * (1<<32 - 1) / uint64(hashes))
			x.Insert(hash, i+1)
			want[i+1] = hash
			if n := random.Uint32N(i+1) + 1; i > 20_000 {
				if hash, ok := want[n]; ok != x.Remove(hash, n) {
					t.Fatalf("remove of %d", n)
				}
				delete(want, n)
			}
		}
		for n := range uint32(40_000) {
			hash, in := want[n+1]
			got := x.Find(hash, func(m uint32) bool { return m == n+1 })
			if in != (got == n+1) {
				t.Fatalf("%d hashes: number %d is found %t, want %t", hashes, n+1, got != 0, in)
			}
		}
		for n, hash := range want {
			if !x.Replace(hash, n, n+100_000) || !x.Remove(hash, n+100_000) || x.Remove(hash, n) {
				t.Fatalf("number %d cannot be replaced and removed", n)
			}
		}
		if len(x.dir) > 16*x.parts {
			t.Errorf("%d hashes: the directory of %d parts has %d entries", hashes, x.parts, len(x.dir))
		}
		if hashes > 1<<12 && x.cells > 2*40_000 {
			t.Errorf("%d cells after all is gone", x.cells)
		}
	}
}

// TestIndexOfOneHash: ids made to collide cost time but no memory.
func TestIndexOfOneHash(t *testing.T) {
	var x Index
	for n := range uint32(5000) {
		x.Insert(7, n+1)
	}
	if len(x.dir) > 16*x.parts || x.cells > 3*5000 {
		t.Errorf("%d directory entries, %d cells for 5000 numbers", len(x.dir), x.cells)
	}
}

// A simulated run must take the same memory each time it is repeated (1080120).
func TestFixedIndexesTakeTheSameMemory(t *testing.T) {
	Fixed = true
	defer func() { Fixed = false }()
	take := func() int64 {
		ix := New()
		for i := range uint32(20_000) {
			ix.Insert(ix.Hash(1, fmt.Append(nil, i)), i+1)
		}
		return ix.Memory()
	}
	want := take()
	for range 20 {
		if got := take(); got != want {
			t.Fatalf("one index takes %d bytes, another of the same keys %d", want, got)
		}
	}
}
