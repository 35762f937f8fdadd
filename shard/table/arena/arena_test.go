package arena

import (
	"math/rand/v2"
	"testing"
)

func TestClasses(t *testing.T) {
	for n := 1; n <= classMax; n++ {
		class := classOf(n)
		if size := classSize(class); size < n || class > 0 && classSize(class-1) >= n || size-n > max(3, n/16) {
			t.Fatalf("%d bytes go into class %d of %d", n, class, size)
		}
	}
}

// TestArena: blocks keep their content while others are allocated and released, and released memory
// is returned.
func TestArena(t *testing.T) {
	var a Arena
	random := rand.New(rand.NewPCG(1, 2))
	type held struct {
		ref  uint32
		n    int
		fill byte
	}
	var all []held
	release := func(i int) {
		h := all[i]
		for _, c := range a.At(h.ref)[:h.n] {
			if c != h.fill {
				t.Fatalf("block %d of %d bytes has %d, want %d", h.ref, h.n, c, h.fill)
			}
		}
		a.Release(h.ref)
		all[i] = all[len(all)-1]
		all = all[:len(all)-1]
	}
	for i := range 60_000 {
		n := 1 + random.IntN(600)
		if i%500 == 0 {
			n = 1 + random.IntN(100_000)
		}
		ref, b := a.Alloc(n)
		if ref == 0 || len(b) < n {
			t.Fatalf("alloc(%d) = %d, %d bytes", n, ref, len(b))
		}
		h := held{ref, n, byte(i)}
		for j := range b[:n] {
			b[j] = h.fill
		}
		all = append(all, h)
		if i%3 > 0 {
			release(random.IntN(len(all)))
		}
	}
	most := a.bytes
	for len(all) > 0 {
		release(random.IntN(len(all)))
	}
	if a.bytes > most/2 || a.bytes > classes<<chunkBits {
		t.Errorf("%d of %d bytes are kept when all is released", a.bytes, most)
	}
}
