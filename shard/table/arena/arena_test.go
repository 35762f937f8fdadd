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

// TestMoveEmptiesChunks: once most blocks are released, moving the others gives memory back. They
// keep what they hold, and the arena works as before.
func TestMoveEmptiesChunks(t *testing.T) {
	var a Arena
	kept := map[uint32]byte{}
	var released []uint32
	for i := range 20_000 {
		ref, b := a.Alloc(200)
		if b[0], b[199] = byte(i), byte(i); i%4 == 0 {
			kept[ref] = byte(i)
		} else {
			released = append(released, ref)
		}
	}
	for _, ref := range released {
		a.Release(ref)
	}
	before, moved := a.Memory(), map[uint32]byte{}
	for ref, mark := range kept {
		moved[a.Move(ref)] = mark
	}
	if after := a.Memory(); after > before*2/5 {
		t.Errorf("%d bytes, %d before", after, before)
	}
	for range 10_000 {
		ref, b := a.Alloc(200)
		if _, twice := moved[ref]; twice {
			t.Fatalf("block %d is given twice", ref)
		}
		b[0], b[199] = 1, 1
		moved[ref] = 1
	}
	for ref, mark := range moved {
		if b := a.At(ref); b[0] != mark || b[199] != mark {
			t.Fatalf("block %d has %d and %d, want %d", ref, b[0], b[199], mark)
		}
		a.Release(ref)
	}
	if left := a.Memory(); left > 1<<18 {
		t.Errorf("%d bytes are left", left)
	}
}

// TestEndMoves: a chunk that Move has not emptied, because a block was not moved, gives blocks
// again afterwards, and is dropped once that block is released.
func TestEndMoves(t *testing.T) {
	var a Arena
	var refs []uint32
	for range 5000 {
		ref, _ := a.Alloc(200)
		refs = append(refs, ref)
	}
	var kept []uint32
	for i, ref := range refs {
		if i%4 == 0 {
			kept = append(kept, ref)
		} else {
			a.Release(ref)
		}
	}
	for i, ref := range kept {
		if i%10 > 0 { // some stay in each chunk
			kept[i] = a.Move(ref)
		}
	}
	stuck := a.Memory()
	a.EndMoves()
	for range 2000 {
		ref, _ := a.Alloc(200)
		kept = append(kept, ref)
	}
	if after := a.Memory(); after > stuck {
		t.Errorf("%d bytes, %d before the moves ended: chunks with room give no blocks", after, stuck)
	}
	for _, ref := range kept {
		a.Release(ref)
	}
	if left := a.Memory(); left > 1<<18 {
		t.Errorf("%d bytes are left", left)
	}
}

// TestManyLargeBlocks: large blocks take no chunks. Once each had one, and the quarter of a million
// payloads over 8 KiB that a shard could have, 2.2 GB of them, ended all of its replicas.
func TestManyLargeBlocks(t *testing.T) {
	const maxChunks = maxRefs >> offsetBits
	a := Arena{chunks: make([]chunk, maxChunks-1)}
	refs := map[uint32]byte{}
	for i := range 3000 {
		ref, b := a.Alloc(classMax + 1 + i)
		if _, twice := refs[ref]; twice || ref == 0 || len(b) != classMax+1+i {
			t.Fatalf("block %d of %d bytes, want %d", ref, len(b), classMax+1+i)
		}
		b[0], b[len(b)-1] = byte(i), byte(i)
		if refs[ref] = byte(i); i%3 == 0 {
			a.Release(ref)
			delete(refs, ref)
		}
	}
	for ref, mark := range refs {
		if b := a.At(ref); b[0] != mark || b[len(b)-1] != mark || a.Move(ref) != ref {
			t.Fatalf("block %d has %d and %d, want %d", ref, b[0], b[len(b)-1], mark)
		}
		a.Release(ref)
	}
	if a.bytes != 0 {
		t.Errorf("%d bytes are left", a.bytes)
	}
	for _, c := range []struct {
		chunks, vacant int
		want           bool
	}{{maxChunks * 15 / 16, 0, false}, {maxChunks*15/16 + 1, 0, true}, {maxChunks*15/16 + 1, 1, false}} {
		a := Arena{chunks: make([]chunk, c.chunks), vacant: make([]uint32, c.vacant)}
		if got := a.Full(); got != c.want {
			t.Errorf("%d chunks, %d of them vacant: full is %v", c.chunks, c.vacant, got)
		}
	}
}
