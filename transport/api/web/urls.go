package web

import (
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// URLCache remembers callback URLs that were found good: clients send the same few again and again,
// and checking one costs more than the rest of an add's fields together. Each slot holds the last
// URL that fell into it; a miss costs the check.
type URLCache struct{ slots [256]atomic.Pointer[string] }

func (c *URLCache) slot(url string) *atomic.Pointer[string] {
	return &c.slots[xxhash.Sum64String(url)%uint64(len(c.slots))]
}

// Has reports whether a URL was found good.
func (c *URLCache) Has(url string) bool {
	if c == nil {
		return false
	}
	known := c.slot(url).Load()
	return known != nil && *known == url
}

// add remembers a URL that passed all checks: a copy, since it is a part of a request's body.
func (c *URLCache) add(url string) {
	own := strings.Clone(url)
	c.slot(url).Store(&own)
}

// Forget empties the cache.
func (c *URLCache) Forget() {
	for i := range c.slots {
		c.slots[i].Store(nil)
	}
}

// CheckURL refuses a callback URL whose address may not be called; "" is fine.
func (n *Node) CheckURL(url string) *Problem {
	if url == "" || n.URLs.Has(url) {
		return nil
	}
	if err := n.RefusedURL(url); err != nil {
		return Fail(422, "callback_refused", "callback.url: "+err.Error())
	}
	n.URLs.add(url)
	return nil
}
