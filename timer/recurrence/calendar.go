// Package recurrence computes the next due time of a series: by a cron expression in a time zone,
// or at intervals. It takes the time as an argument, and the caller chooses how time zones are
// loaded: see Zones.
package recurrence

import (
	"cmp"
	"math"

	"carillon/timer"
)

// After is the first occurrence later than ms, in Unix ms; 0: none.
func (c *Calendar) After(p *timer.Repeat, dueMs, ms int64) int64 {
	if p.Cron != "" {
		return c.cron(p.Cron, p.Zone, ms)
	}
	if p.EveryMs <= 0 || dueMs > math.MaxInt64/4 {
		return 0
	}
	steps := int64(1)
	if ms > dueMs {
		steps += (ms - dueMs) / p.EveryMs
	}
	return dueMs + steps*p.EveryMs
}

// Nearest is the first occurrence later than ms of a series that has one at dueMs. The result may
// be before dueMs.
func (c *Calendar) Nearest(p *timer.Repeat, dueMs, ms int64) int64 {
	next := c.After(p, dueMs, ms)
	if p.Cron == "" && p.EveryMs > 0 && dueMs > ms {
		next = dueMs - (dueMs-ms-1)/p.EveryMs*p.EveryMs
	}
	return cmp.Or(next, dueMs)
}

// last is the latest occurrence that is later than ms and not later than nowMs; 0: none.
func (c *Calendar) last(p *timer.Repeat, dueMs, ms, nowMs int64) int64 {
	low, found := ms, c.After(p, dueMs, ms)
	if found == 0 || found > nowMs {
		return 0
	}
	// Invariant: found is an occurrence not after nowMs, and none between high and nowMs exists.
	for high := nowMs; high-low > 1; {
		mid := low + (high-low)/2
		if next := c.After(p, dueMs, mid); next != 0 && next <= nowMs {
			low, found = max(mid, next), next
		} else {
			high = mid
		}
	}
	return found
}

// Next is the due time of the occurrence after the one due at dueMs, as of nowMs; 0: the series is
// over. startedMs is when the first attempt of this occurrence started, 0: none did. With
// CatchUpOne that attempt also stands for the occurrences that were due up to then.
func (c *Calendar) Next(p *timer.Repeat, dueMs, startedMs, nowMs int64) int64 {
	next := int64(0)
	switch p.CatchUp {
	case timer.CatchUpAll:
		next = c.After(p, dueMs, dueMs)
	case timer.CatchUpSkip:
		next = c.After(p, dueMs, max(dueMs, nowMs))
	default:
		from := max(dueMs, startedMs)
		if next = c.last(p, dueMs, from, nowMs); next == 0 {
			next = c.After(p, dueMs, from)
		}
	}
	if p.UntilMs != 0 && next > p.UntilMs {
		return 0
	}
	return next
}

// Calendar caches parsed rules, because parsing costs more than evaluating. When it has maxCalendar
// it begins anew. It is for one goroutine.
type Calendar struct {
	Zones *Zones // nil: Release
	rules map[ruleKey]*rule
}

type ruleKey struct{ expression, zone string }

// cron is the first occurrence of a valid rule later than ms; 0: none within ten years.
func (c *Calendar) cron(expression, zone string, ms int64) int64 {
	r := c.rule(ruleKey{expression, zone})
	if r == nil {
		return 0
	}
	return r.after(ms)
}

func (c *Calendar) rule(key ruleKey) *rule {
	if r := c.rules[key]; r != nil {
		return r
	}
	r, err := newRule(key.expression, key.zone, cmp.Or(c.Zones, Release))
	if err != nil {
		return nil
	}
	if c.rules == nil || len(c.rules) == maxCalendar {
		c.rules = map[ruleKey]*rule{}
	}
	c.rules[key] = r
	return r
}

// MissedAfterMs is how late an occurrence is found for it to count as missed, in ms. Changes of
// leaders are shorter.
const MissedAfterMs = 10_000

// Coming returns the due times of a series that are to come, at most n, as if all calls were on
// time from now on. The pending occurrence is the first of them, late or not. waits is why it is not
// called.
func (c *Calendar) Coming(t *timer.Timer, waits timer.WaitCause, nowMs int64, n int) []int64 {
	out := []int64{}
	p, due := t.Repeat, t.DueMs
	if p == nil || t.Occurrence == 0 || t.State.Over() {
		return out
	}
	running := t.State == timer.Leased
	if p.Count != 0 {
		left := int(p.Count) - int(t.Occurrence) + 1
		if running {
			left--
		}
		n = min(n, left)
	}
	kept := waits == timer.WaitSpread || waits == timer.WaitWindow || waits == timer.WaitBatch
	skipped := p.CatchUp == timer.CatchUpSkip && t.Attempts == 0 && nowMs-due > MissedAfterMs && !kept
	if !running && !skipped && n > 0 { // it may be due at 0, which means none of those that follow
		out = append(out, due)
	}
	for len(out) < n {
		due = c.following(p, due, nowMs)
		if due == 0 || p.UntilMs != 0 && due > p.UntilMs {
			break
		}
		out = append(out, due)
	}
	return out
}

// following is the occurrence after the one at dueMs, if that one is called at nowMs or on time.
func (c *Calendar) following(p *timer.Repeat, dueMs, nowMs int64) int64 {
	if p.CatchUp == timer.CatchUpAll {
		return c.After(p, dueMs, dueMs)
	}
	return c.After(p, dueMs, max(dueMs, nowMs))
}
