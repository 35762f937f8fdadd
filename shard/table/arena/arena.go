// Package arena keeps byte blocks of many sizes in few large chunks.
package arena

import (
	"fmt"
	"math/bits"

	"carillon/internal/order"
)

// A ref is a chunk's number and an offset in units of 4 bytes, so chunks hold up to 16 GiB. Ref 0
// means none: the first unit of chunk 0 is left unused for it. A large block is in no chunk. Its ref
// is the complement of its number: these go down from the highest.
const (
	unitBits   = 2
	chunkBits  = 16 // chunks are at most 64 KiB
	offsetBits = chunkBits - unitBits
	maxRefs    = 1 << 32
	// block sizes up to this are multiples of 4; above it, 16 sizes per doubling
	fineMax     = 512
	classMax    = 8192 // a larger block has memory of its own
	fineClasses = fineMax >> unitBits
	classes     = fineClasses + 4*16
	noChunk     = ^uint32(0)
)

// Arena keeps byte blocks of many sizes in few large chunks, so the garbage collector has nothing
// to mark. It wastes less than 4 bytes for small blocks and 6 % for larger ones. A block's place is
// local to a replica. A block moves by Move alone, and its bytes are written once. All operations
// are O(1), but EndMoves. The zero value is empty.
type Arena struct {
	chunks []chunk
	vacant []uint32 // numbers of released chunks
	// rooms heads, for each class, the list of chunks with free blocks.
	rooms  [classes]uint32
	counts [classes]uint32 // chunks of each class; decides the size of the next one
	large  order.Chunks[[]byte]
	spare  order.Chunks[uint32] // numbers of large that are released
	larges uint32               // len(large)
	bytes  int64                // allocated
	ready  bool
}

// chunk holds blocks of one class.
type chunk struct {
	data       []byte
	next, prev uint32 // in the class's list of chunks with free blocks
	size       uint32 // of a block, in bytes
	live       uint32 // blocks in use
	fresh      uint32 // offset of the first block that was never used
	// free is the unit of the first released block, plus one. A released block holds the next
	// one's.
	free   uint16
	class  uint8
	listed bool
	// emptied: its blocks move elsewhere, and it gives none.
	emptied bool
}

func classOf(n int) int {
	if n <= fineMax {
		return (n - 1) >> unitBits
	}
	length := bits.Len(uint(n - 1))
	return fineClasses + (length-10)*16 + (n-1)>>(length-5) - 16
}

func classSize(class int) int {
	if class < fineClasses {
		return (class + 1) << unitBits
	}
	class -= fineClasses
	return (class&15 + 17) << (class>>4 + 5)
}

// Alloc returns a block of at least n bytes, n > 0, and its ref. The block is not cleared.
func (a *Arena) Alloc(n int) (ref uint32, block []byte) {
	if !a.ready {
		a.ready = true
		for i := range a.rooms {
			a.rooms[i] = noChunk
		}
	}
	if n > classMax {
		return a.allocLarge(n)
	}
	class := classOf(n)
	i := a.rooms[class]
	if i == noChunk {
		i = a.addClassChunk(class)
	}
	c := &a.chunks[i]
	offset := c.fresh
	if c.free != 0 {
		offset = uint32(c.free-1) << unitBits
		c.free = uint16(c.data[offset]) | uint16(c.data[offset+1])<<8
	} else {
		c.fresh += c.size
	}
	c.live++
	if c.free == 0 && c.fresh+c.size > uint32(len(c.data)) {
		a.unlist(i)
	}
	return i<<offsetBits | offset>>unitBits, c.data[offset : offset+c.size]
}

func (a *Arena) allocLarge(n int) (ref uint32, block []byte) {
	block = make([]byte, n)
	a.bytes += int64(n)
	if a.spare.Len() > 0 {
		number := a.spare.TakeLast()
		*a.large.At(int(number)) = block
		return ^number, block
	}
	a.checkRoom(0, 1)
	a.large.Push(block)
	a.larges++
	return ^(a.larges - 1), block
}

// numberOf is the number of a large block, if the ref is that of one.
func (a *Arena) numberOf(ref uint32) (number uint32, large bool) { return ^ref, ^ref < a.larges }

// checkRoom panics if there are no refs for so many more.
func (a *Arena) checkRoom(chunks, large int) {
	if refs := int64(len(a.chunks)+chunks)<<offsetBits + int64(a.larges) + int64(large); refs > maxRefs {
		panic(fmt.Sprintf("shard: arena of %d chunks and %d large blocks is full", len(a.chunks), a.larges))
	}
}

// Full reports that a sixteenth of the refs is left.
func (a *Arena) Full() bool {
	refs := int64(len(a.chunks)-len(a.vacant))<<offsetBits + int64(a.larges) - int64(a.spare.Len())
	return refs > maxRefs-maxRefs/16
}

// At returns the block of a ref, up to its class's size.
func (a *Arena) At(ref uint32) []byte {
	if number, large := a.numberOf(ref); large {
		return *a.large.At(int(number))
	}
	c := &a.chunks[ref>>offsetBits]
	offset := ref & (1<<offsetBits - 1) << unitBits
	return c.data[offset : offset+c.size]
}

// Release frees a block.
func (a *Arena) Release(ref uint32) {
	if number, large := a.numberOf(ref); large {
		block := a.large.At(int(number))
		a.bytes -= int64(len(*block))
		*block = nil
		a.spare.Push(number)
		return
	}
	i := ref >> offsetBits
	c := &a.chunks[i]
	c.live--
	if c.live == 0 && (c.emptied || c.listed && (c.next != noChunk || c.prev != noChunk)) {
		if !c.emptied {
			a.unlist(i)
		}
		a.counts[c.class]--
		a.dropChunk(i)
		return
	}
	offset := ref & (1<<offsetBits - 1) << unitBits
	c.data[offset], c.data[offset+1] = byte(c.free), byte(c.free>>8)
	c.free = uint16(offset>>unitBits) + 1
	if !c.listed && !c.emptied {
		a.list(i)
	}
}

// Move copies a block out of a chunk of which at least half is free, releases it, and returns the
// copy's ref: once all have left such a chunk, its memory is free. Any other block stays, and its
// ref is returned.
func (a *Arena) Move(ref uint32) uint32 {
	if _, large := a.numberOf(ref); large {
		return ref
	}
	i := ref >> offsetBits
	c := &a.chunks[i]
	if !c.emptied {
		if len(c.data) < 1<<chunkBits || 2*c.live*c.size > uint32(len(c.data)) {
			return ref
		}
		if c.emptied = true; c.listed {
			a.unlist(i)
		}
	}
	from := a.At(ref)
	to, block := a.Alloc(int(c.size))
	copy(block, from)
	a.Release(ref)
	return to
}

// EndMoves has the chunks give blocks again that Move did not empty, as some blocks were not moved.
// Cost: O(chunks).
func (a *Arena) EndMoves() {
	for i := range a.chunks {
		if c := &a.chunks[i]; c.emptied {
			c.emptied = false
			a.list(uint32(i)) // at least half of it is free
		}
	}
}

// addClassChunk adds a chunk to a class. The first ones are small, so that a table with few timers
// of many sizes stays small.
func (a *Arena) addClassChunk(class int) uint32 {
	size := classSize(class)
	bytes := 1 << chunkBits
	switch n := a.counts[class]; {
	case n < 2:
		bytes = max(4<<10, 2*size)
	case n < 4:
		bytes = max(16<<10, 2*size)
	}
	i := a.addChunk(bytes, size)
	a.chunks[i].class = uint8(class)
	a.counts[class]++
	a.list(i)
	return i
}

// addChunk makes a chunk for blocks of size bytes.
func (a *Arena) addChunk(bytes, size int) uint32 {
	var i uint32
	if n := len(a.vacant); n > 0 {
		i = a.vacant[n-1]
		a.vacant = a.vacant[:n-1]
	} else {
		a.checkRoom(1, 0)
		i = uint32(len(a.chunks))
		a.chunks = append(a.chunks, chunk{})
	}
	c := chunk{size: uint32(size), next: noChunk, prev: noChunk}
	if i == 0 {
		c.fresh = 1 << unitBits
	}
	c.data = make([]byte, bytes)
	a.chunks[i] = c
	a.bytes += int64(bytes)
	return i
}

func (a *Arena) dropChunk(i uint32) {
	a.bytes -= int64(len(a.chunks[i].data))
	a.chunks[i] = chunk{}
	a.vacant = append(a.vacant, i)
}

// list puts chunk i, which has free blocks, at the head of its class's list.
func (a *Arena) list(i uint32) {
	c := &a.chunks[i]
	head := a.rooms[c.class]
	c.listed, c.prev, c.next = true, noChunk, head
	if head != noChunk {
		a.chunks[head].prev = i
	}
	a.rooms[c.class] = i
}

func (a *Arena) unlist(i uint32) {
	c := &a.chunks[i]
	if c.prev == noChunk {
		a.rooms[c.class] = c.next
	} else {
		a.chunks[c.prev].next = c.next
	}
	if c.next != noChunk {
		a.chunks[c.next].prev = c.prev
	}
	c.listed, c.prev, c.next = false, noChunk, noChunk
}

func (a *Arena) Memory() int64 {
	const chunk, large, number = 56, 24, 4
	return a.bytes + int64(cap(a.chunks))*chunk + int64(a.larges)*large + int64(cap(a.vacant)+a.spare.Len())*number
}
