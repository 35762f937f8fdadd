package order

// Chunks is a list that grows and shrinks at its end. It is made of chunks, so that no step copies
// or clears more than one of them, however many items there are. The zero Chunks is empty. Cost of
// all methods: O(1).
type Chunks[T any] struct {
	chunks [][]T // full but for the last
}

// ChunkItems is how many items a chunk has.
const ChunkItems = 1024

// Len is the number of items.
func (c *Chunks[T]) Len() int {
	last := len(c.chunks) - 1
	if last < 0 {
		return 0
	}
	return ChunkItems*last + len(c.chunks[last])
}

// At is the item at a place.
func (c *Chunks[T]) At(i int) *T { return &c.chunks[uint(i)/ChunkItems][uint(i)%ChunkItems] }

// Push puts an item last.
func (c *Chunks[T]) Push(v T) {
	n := len(c.chunks)
	if n == 0 || len(c.chunks[n-1]) == ChunkItems {
		if n == cap(c.chunks) {
			c.chunks = append(c.chunks, nil)
		}
		if c.chunks = c.chunks[:n+1]; n > 0 && c.chunks[n] == nil {
			c.chunks[n] = make([]T, 0, ChunkItems)
		}
		n++
	}
	c.chunks[n-1] = append(c.chunks[n-1], v)
}

// TakeLast takes the last item. One empty chunk is kept, so that a list about a bound does not make
// one again and again.
func (c *Chunks[T]) TakeLast() T {
	n := len(c.chunks)
	chunk := c.chunks[n-1]
	last := len(chunk) - 1
	v := chunk[last]
	var zero T
	chunk[last] = zero
	c.chunks[n-1] = chunk[:last]
	if last == 0 && n > 1 {
		if n < cap(c.chunks) {
			c.chunks[:n+1][n] = nil
		}
		c.chunks = c.chunks[:n-1]
	}
	return v
}

// ReleaseOne frees an empty list that has had one item at a time. It is for lists of which there are
// many, most of them with one item, once.
func (c *Chunks[T]) ReleaseOne() {
	if len(c.chunks) == 1 && len(c.chunks[0]) == 0 && cap(c.chunks[0]) == 1 {
		c.chunks = nil
	}
}
