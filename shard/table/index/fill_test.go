package index

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestFill: an index that was filled is as good as one that took its entries one by one, also if
// there were fewer or more than was said, and takes more.
func TestFill(t *testing.T) {
	for _, n := range []uint32{0, 1, 7, 768, 769, fillBatch, fillBatch + 1, 300_000} {
		for _, said := range []uint32{n, n / 3, 2 * n} {
			t.Run(fmt.Sprint(n, said), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(n), uint64(said)))
				var x, grown Index
				hashes := make([]uint32, n+1)
				fill := x.Fill(int(said), func(a, b uint32) bool { return a == b })
				for i := uint32(1); i <= n; i++ {
					hashes[i] = random.Uint32()
					fill.Add(hashes[i], i)
					grown.Insert(hashes[i], i)
				}
				if first, second := fill.Done(); first != 0 || second != 0 || x.Len() != int(n) {
					t.Fatalf("%d and %d are the same; %d entries", first, second, x.Len())
				}
				if said == n && n > 700 && x.Memory() > grown.Memory()*11/10 {
					t.Errorf("it takes %d bytes, one that grew %d", x.Memory(), grown.Memory())
				}
				for i := uint32(1); i <= n; i++ {
					if x.Find(hashes[i], func(m uint32) bool { return m == i }) != i {
						t.Fatalf("number %d is not found", i)
					}
					x.Insert(hashes[i], i+n)
				}
				for i := uint32(1); i <= n; i++ {
					if !x.Remove(hashes[i], i+n) || !x.Remove(hashes[i], i) {
						t.Fatalf("number %d or %d cannot be removed", i, i+n)
					}
				}
				if x.Len() != 0 {
					t.Errorf("%d entries after all is gone", x.Len())
				}
			})
		}
	}
}

// TestFillFindsTwins: of two numbers that are the same the second is left out, also where they come
// in different batches; those that have only their hash in common are added.
func TestFillFindsTwins(t *testing.T) {
	for _, apart := range []uint32{1, fillBatch + 3} {
		var x Index
		fill := x.Fill(int(apart)+10, func(a, b uint32) bool { return b-a == apart })
		for i := uint32(1); i <= apart+1; i++ {
			hash := i * mix
			if i == apart+1 {
				hash = mix // of number 1
			}
			fill.Add(hash, i)
		}
		fill.Add(mix, apart+5)
		if first, second := fill.Done(); first != 1 || second != apart+1 {
			t.Errorf("%d apart: %d and %d are the same", apart, first, second)
		}
		if x.Len() != int(apart)+1 {
			t.Errorf("%d apart: %d entries", apart, x.Len())
		}
		if x.Find(mix, func(n uint32) bool { return n == apart+5 }) == 0 {
			t.Error("a number with a hash that was there is not found")
		}
	}
}
