package order

import "testing"

// room is how many items have memory.
func (c *Chunks[T]) room() (n int) {
	for _, chunk := range c.chunks[:cap(c.chunks)] {
		n += cap(chunk)
	}
	return n
}

// TestChunks: items are where they were put, a push makes room for a chunk at most, and a list about
// the bound of a chunk makes none again and again. One that has become small keeps little memory.
func TestChunks(t *testing.T) {
	const most = 100*ChunkItems + 1
	var c Chunks[int]
	for n := range most {
		before := c.room()
		c.Push(n)
		if got := c.room() - before; got > ChunkItems || c.Len() != n+1 {
			t.Fatalf("push %d made room for %d; %d items", n, got, c.Len())
		}
	}
	for n := range most {
		if *c.At(n) != n {
			t.Fatalf("item %d is %d", n, *c.At(n))
		}
	}
	made := testing.AllocsPerRun(100, func() {
		c.TakeLast() // the only one of its chunk
		c.Push(most - 1)
	})
	if made > 0 {
		t.Errorf("%.1f chunks were made for a push about a bound", made)
	}
	for n := most - 1; n >= 0; n-- {
		if got := c.TakeLast(); got != n || c.Len() != n {
			t.Fatalf("the last of %d is %d", n+1, got)
		}
	}
	c.ReleaseOne()
	if n := c.room(); n == 0 || n > 3*ChunkItems { // the first may be larger than the others
		t.Errorf("an empty list keeps room for %d", n)
	}
	var one Chunks[int]
	one.Push(1)
	if one.ReleaseOne(); one.Len() != 1 {
		t.Error("an item is gone")
	}
	one.TakeLast()
	if one.ReleaseOne(); one.room() != 0 {
		t.Errorf("a list that had one item keeps room for %d", one.room())
	}
}
