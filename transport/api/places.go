package api

import (
	"crypto/sha256"
	"sync"

	"carillon/transport/api/web"
)

// places are what requests that last hold at this node: bulk changes, streams of events, long
// polls. One token gets half of them at most. A token with the scope cluster that has none gets one
// even when all are taken, so an operator is never locked out; that makes as many more as there are
// such tokens. The cost does not depend on how many are taken.
type places struct {
	what string // in the plural
	most int

	mu    sync.Mutex
	taken int
	by    map[[sha256.Size]byte]int // of them, by token; none for a request without one
}

func newPlaces(what string, most int) *places {
	return &places{what: what, most: max(most, 1), by: map[[sha256.Size]byte]int{}}
}

// Take takes a place for a token; nil: the API asks for none. It must be given back under the same
// sum: the auth file may have been read again by then.
func (p *places) Take(who *web.Principal) (token [sha256.Size]byte, refused *web.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token = who.Token()
	has := p.by[token] // 0 without a token
	half := max(p.most/2, 1)
	switch {
	case who != nil && who.May(web.ScopeCluster) && has == 0:
	case who != nil && has >= half:
		return token, web.Failf(429, web.QuotaUsed, "this token has %d %s at this node, half of the %d that there are: no token gets more; end one, or ask another node", has, p.what, p.most)
	case p.taken >= p.most:
		return token, web.Failf(503, web.Overloaded, "this node has %d %s, as many as it takes; ask another node, or later", p.taken, p.what)
	}
	p.taken++
	if who != nil {
		p.by[token] = has + 1
	}
	return token, nil
}

func (p *places) Give(token [sha256.Size]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	switch n := p.by[token]; n {
	case 0: // of a request without a token
	case 1:
		delete(p.by, token)
	default:
		p.by[token] = n - 1
	}
}
