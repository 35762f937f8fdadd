package api

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// urlCache remembers callback URLs that were found good: clients send the same few again and again,
// and checking one costs more than the rest of an add's fields together. Each slot holds the last
// URL that fell into it; a miss costs the check.
type urlCache struct{ slots [256]atomic.Pointer[string] }

func (c *urlCache) slot(url string) *atomic.Pointer[string] {
	return &c.slots[xxhash.Sum64String(url)%uint64(len(c.slots))]
}

func (c *urlCache) has(url string) bool {
	if c == nil {
		return false
	}
	known := c.slot(url).Load()
	return known != nil && *known == url
}

// add remembers a URL that passed all checks.
func (c *urlCache) add(url string) { c.slot(url).Store(&url) }

// forget empties the cache.
func (c *urlCache) forget() {
	for i := range c.slots {
		c.slots[i].Store(nil)
	}
}

// ForgetURLs is to be called when CheckURL may answer otherwise than before.
func (s *Server) ForgetURLs() { s.urls.forget() }

// checkURL refuses a callback URL whose address may not be called; "" is fine.
func (s *Server) checkURL(url string) *problem {
	if url == "" || s.urls.has(url) {
		return nil
	}
	if err := s.cfg.CheckURL(url); err != nil {
		return fail(422, "callback_refused", "callback.url: "+err.Error())
	}
	s.urls.add(url)
	return nil
}
