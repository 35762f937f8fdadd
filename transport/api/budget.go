package api

import (
	"sync"
	"sync/atomic"

	"carillon/transport/api/web"
)

// budget bounds the memory that large requests, or large answers, take together. One owner gets
// half of it at most, so that it cannot keep others out. Cost: O(1). Safe for use by any goroutine.
type budget struct {
	limit int64

	used atomic.Int64 // changed under mu

	mu sync.Mutex
	by map[web.Sender]int64
}

// Take takes n bytes, or nothing.
func (b *budget) Take(owner web.Sender, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used.Load()+n > b.limit || b.by[owner]+n > b.limit/2 {
		return false
	}
	b.add(owner, n)
	return true
}

// Give gives n bytes back.
func (b *budget) Give(owner web.Sender, n int64) {
	if n != 0 {
		b.must(owner, -n)
	}
}

// full reports whether nothing more should be begun for an owner. It costs next to nothing while
// there is enough.
func (b *budget) full(owner web.Sender) bool {
	used := b.used.Load()
	if used < b.limit/2 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return used >= b.limit || b.by[owner] >= b.limit/2
}

// must takes n bytes that are in use already, above the limit too; n may be negative.
func (b *budget) must(owner web.Sender, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(owner, n)
}

func (b *budget) add(owner web.Sender, n int64) {
	b.used.Add(n)
	left := b.by[owner] + n
	if left == 0 {
		delete(b.by, owner)
		return
	}
	if b.by == nil {
		b.by = map[web.Sender]int64{}
	}
	b.by[owner] = left
}
