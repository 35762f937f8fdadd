package recurrence

import (
	"fmt"
	"sync"
	"time"
	_ "time/tzdata"
)

// RetryAfter is the time after which a zone that could not be read is read again.
const RetryAfter = time.Minute

// Zones are the time zones that this process has read. A zone is a file, or a part of the binary
// where the machine has no such file, so workers have it read on a goroutine of its own. There are
// as many as there are zones in the world; none is forgotten.
type Zones struct {
	load func(name string) (*time.Location, error)

	mu    sync.Mutex
	known map[string]*time.Location
	tried map[string]time.Duration // when it was last asked for; monotonic
}

// LoadZone finds a zone by its IANA name; "" is UTC.
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

// Find is a zone that was read; nil: it was not.
func (z *Zones) Find(name string) *time.Location {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.known[name]
}

// Wanted says whether somebody is to read a zone now: nobody has, or long ago and in vain.
func (z *Zones) Wanted(name string, now time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if at, tried := z.tried[name]; tried && now-at < RetryAfter || z.known[name] != nil {
		return false
	}
	z.tried[name] = now
	return true
}

// Read reads a zone.
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
