package api

import (
	"net/netip"
	"sync"
)

// budget bounds the memory that large requests, or large answers, take together. One address gets half of it at most, so that it cannot keep
// others out. Safe for use by any goroutine.
type budget struct {
	limit int64

	mu   sync.Mutex
	used int64
	by   map[netip.Addr]int64
}

// take takes n bytes, or nothing.
func (b *budget) take(address netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || b.by[address]+n > b.limit/2 {
		return false
	}
	b.add(address, n)
	return true
}

// give gives n bytes back.
func (b *budget) give(address netip.Addr, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(address, -n)
}

func (b *budget) add(address netip.Addr, n int64) {
	b.used += n
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

// taken is what is in use.
func (b *budget) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
