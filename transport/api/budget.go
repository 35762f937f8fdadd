package api

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"sync/atomic"
)

// sender owns the bodies of requests: a token, from whatever addresses they come; or an address, if
// the API asks for no token.
type sender struct {
	token   [sha256.Size]byte
	address netip.Addr
}

func (rq *request) sender() sender {
	if rq.Who != nil {
		return sender{token: rq.Who.Sum}
	}
	return sender{address: rq.Address()}
}

// budget bounds the memory that large requests, or large answers, take together. One owner gets
// half of it at most, so that it cannot keep others out. Cost: O(1). Safe for use by any goroutine.
type budget[Owner comparable] struct {
	limit int64

	used atomic.Int64 // changed under mu

	mu sync.Mutex
	by map[Owner]int64
}

// Take takes n bytes, or nothing.
func (b *budget[Owner]) Take(owner Owner, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used.Load()+n > b.limit || b.by[owner]+n > b.limit/2 {
		return false
	}
	b.add(owner, n)
	return true
}

// Give gives n bytes back.
func (b *budget[Owner]) Give(owner Owner, n int64) {
	if n != 0 {
		b.must(owner, -n)
	}
}

// full reports whether nothing more should be begun for an owner. It costs next to nothing while
// there is enough.
func (b *budget[Owner]) full(owner Owner) bool {
	used := b.used.Load()
	if used < b.limit/2 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return used >= b.limit || b.by[owner] >= b.limit/2
}

// must takes n bytes that are in use already, above the limit too; n may be negative.
func (b *budget[Owner]) must(owner Owner, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(owner, n)
}

func (b *budget[Owner]) add(owner Owner, n int64) {
	b.used.Add(n)
	left := b.by[owner] + n
	if left == 0 {
		delete(b.by, owner)
		return
	}
	if b.by == nil {
		b.by = map[Owner]int64{}
	}
	b.by[owner] = left
}
