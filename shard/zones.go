package shard

import (
	"container/list"
	"sync"
	"time"
)

// zoneRetry is after what a zone is read again that could not be.
const zoneRetry = time.Minute

// zones are the time zones that this process has read. A zone is a file, or a part of the binary where the machine has no such file, so workers have
// it read on a goroutine of its own. There are as many as there are zones in the world; none is forgotten.
type zones struct {
	load func(name string) (*time.Location, error)

	mu    sync.Mutex
	known map[string]*time.Location
	tried map[string]time.Duration // when it was last asked for; monotonic
}

func newZones(load func(string) (*time.Location, error)) *zones {
	return &zones{load: load, known: map[string]*time.Location{"": time.UTC}, tried: map[string]time.Duration{}}
}

// find is a zone that was read; nil: it was not.
func (z *zones) find(name string) *time.Location {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.known[name]
}

// wanted says whether somebody is to read a zone now: nobody has, or long ago and in vain.
func (z *zones) wanted(name string, now time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if at, tried := z.tried[name]; tried && now-at < zoneRetry || z.known[name] != nil {
		return false
	}
	z.tried[name] = now
	return true
}

// read reads a zone.
func (z *zones) read(name string) error {
	zone, err := z.load(name)
	if err != nil {
		return err
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.known[name] = zone
	return nil
}

// hasZone says whether the times of a timer can be found now: it is no series by the calendar, or its zone was read. Else it is being read.
func (l *lead) hasZone(h Handle, d *Due) bool {
	if !d.Series {
		return true
	}
	name, ok := l.group.table.zone(h)
	if !ok {
		return true
	}
	host := l.group.w.host
	if host.zones.find(name) != nil {
		return true
	}
	if host.zones.wanted(name, l.group.w.mono) {
		host.inBackground(func() {
			if err := host.zones.read(name); err != nil {
				host.cfg.Logger.Error("a time zone cannot be read; its series wait, and it is tried again every minute", "zone", name, "error", err)
			}
		})
	}
	return false
}

// zoneWait is after what a timer is looked at again whose zone is being read. It is less than minLookAhead: nothing is late for it.
const zoneWait = 5 * time.Millisecond

// calendar remembers rules: reading one costs more than asking it. Of more than maxCalendar it forgets those that were asked for longest ago. One
// goroutine uses it.
type calendar struct {
	zones  *zones // nil: zones are read as they are asked for
	rules  map[ruleKey]*list.Element
	recent list.List // of *remembered, the last first
}

type ruleKey struct{ expression, zone string }

type remembered struct {
	key  ruleKey
	rule *rule
}

// after is the first occurrence of a rule, which was checked when it came in, later than ms; 0: none within ten years.
func (c *calendar) after(expression, zone string, ms int64) int64 {
	r := c.rule(ruleKey{expression, zone})
	if r == nil {
		return 0
	}
	return r.after(ms)
}

func (c *calendar) rule(key ruleKey) *rule {
	if e := c.rules[key]; e != nil {
		c.recent.MoveToFront(e)
		return e.Value.(*remembered).rule
	}
	r, err := newRule(key.expression, key.zone, c.zone)
	if err != nil {
		return nil
	}
	if c.rules == nil {
		c.rules = map[ruleKey]*list.Element{}
	}
	if len(c.rules) == maxCalendar {
		last := c.recent.Back()
		c.recent.Remove(last)
		delete(c.rules, last.Value.(*remembered).key)
	}
	c.rules[key] = c.recent.PushFront(&remembered{key, r})
	return r
}

// zone is a zone that hasZone has had read; the file is the last resort.
func (c *calendar) zone(name string) (*time.Location, error) {
	if c.zones == nil {
		return loadZone(name)
	}
	if zone := c.zones.find(name); zone != nil {
		return zone, nil
	}
	return c.zones.load(name)
}
