package recurrence

import (
	"fmt"
	"sync"
	"time"
	_ "time/tzdata"
)

// RetryAfter is how long Zones waits before it loads a zone again that could not be loaded.
const RetryAfter = time.Minute

// Zones caches the time zones of this process. A zone is a file, or a part of the binary on
// machines without such files, so workers have it loaded by another goroutine. None is forgotten:
// there are only as many as there are zones in the world.
type Zones struct {
	load func(name string) (*time.Location, error)

	mu    sync.Mutex
	known map[string]*time.Location
	tried map[string]time.Duration // when it was last requested, on the monotonic clock
}

// LoadZone loads a zone by its IANA name; "" is UTC.
func LoadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" || len(name) > maxZone {
		return nil, fmt.Errorf("unknown zone %q", name[:min(len(name), maxZone)])
	}
	return zone, nil
}

func NewZones(load func(string) (*time.Location, error)) *Zones {
	return &Zones{load: load, known: map[string]*time.Location{"": time.UTC}, tried: map[string]time.Duration{}}
}

// Find returns a loaded zone, or nil.
func (z *Zones) Find(name string) *time.Location {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.known[name]
}

// Wanted reports whether the caller should load a zone now: it is not loaded, and nobody has tried
// within RetryAfter.
func (z *Zones) Wanted(name string, now time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if at, tried := z.tried[name]; tried && now-at < RetryAfter || z.known[name] != nil {
		return false
	}
	z.tried[name] = now
	return true
}

// Read loads a zone.
func (z *Zones) Read(name string) error {
	zone, err := z.load(name)
	if err != nil {
		return err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.known[name] = zone
	return nil
}
