package api

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// budget bounds the memory that large requests, or large answers, take together. One address gets
// half of it at most, so that it cannot keep others out. Safe for use by any goroutine.
type budget struct {
	limit int64

	used atomic.Int64 // changed under mu

	mu sync.Mutex
	by map[netip.Addr]int64
}

// Take takes n bytes, or nothing.
func (b *budget) Take(address netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used.Load()+n > b.limit || b.by[address]+n > b.limit/2 {
		return false
	}
	b.add(address, n)
	return true
}

// Give gives n bytes back.
func (b *budget) Give(address netip.Addr, n int64) {
	if n != 0 {
		b.must(address, -n)
	}
}

// full reports whether nothing more should be begun for an address. It costs next to nothing while
// there is enough.
func (b *budget) full(address netip.Addr) bool {
	used := b.used.Load()
	if used < b.limit/2 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return used >= b.limit || b.by[address] >= b.limit/2
}

// must takes n bytes that are in use already, above the limit too; n may be negative.
func (b *budget) must(address netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(address, n)
}

func (b *budget) add(address netip.Addr, n int64) {
	b.used.Add(n)
	left := b.by[address] + n
	if left == 0 {
		delete(b.by, address)
		return
	}
	if b.by == nil {
		b.by = map[netip.Addr]int64{}
	}
	b.by[address] = left
}
