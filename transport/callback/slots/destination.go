package slots

import "slices"

// Destination is one receiver's part: its calls and its waiters. The zero value is
// ready for use. It belongs to one Slots.
type Destination struct {
	calls    int          // Invariant: the sum over limits
	limits   []limitCalls // ascending limit, none without calls
	queues   []*queue     // none empty; the one served last is last
	answered bool         // the last call that said anything of it had an answer
}

// limitCalls counts the calls that were granted under one limit.
type limitCalls struct{ limit, calls int }

// Calls are the slots that are out for it.
func (d *Destination) Calls() int { return d.calls }

// Waits reports that somebody waits for it.
func (d *Destination) Waits() bool { return len(d.queues) > 0 }

// WaitsFor reports that a waiter needs this breaker's leave.
func (d *Destination) WaitsFor(b Breaker) bool {
	return slices.ContainsFunc(d.queues, func(q *queue) bool { return q.breaker == b })
}

func (d *Destination) idle() bool { return d.calls == 0 && len(d.queues) == 0 }

func (d *Destination) class(long bool) Class {
	if long || !d.answered {
		return risky
	}
	return steady
}

// room reports whether a call under this limit may be added. A limit bounds the calls
// granted under it or a lower one. So the destination never has more calls than the
// highest limit asked for, and a topic with a low limit is not starved by another that
// keeps more calls out than that.
func (d *Destination) room(limit int) bool {
	sum, checked := 0, false
	for _, c := range d.limits {
		if !checked && c.limit > limit {
			if sum >= limit {
				return false
			}
			checked = true
		}
		sum += c.calls
		if c.limit >= limit && sum >= c.limit {
			return false
		}
	}
	return checked || sum < limit
}

func (d *Destination) add(limit int) {
	d.calls++
	i, found := d.find(limit)
	if !found {
		d.limits = slices.Insert(d.limits, i, limitCalls{limit: limit})
	}
	d.limits[i].calls++
}

func (d *Destination) remove(limit int) {
	d.calls--
	i, found := d.find(limit)
	if !found || d.calls < 0 {
		panic("slots: a slot came back twice")
	}
	if d.limits[i].calls--; d.limits[i].calls == 0 {
		d.limits = slices.Delete(d.limits, i, i+1)
	}
}

func (d *Destination) find(limit int) (int, bool) {
	return slices.BinarySearchFunc(d.limits, limit, func(c limitCalls, limit int) int { return c.limit - limit })
}

// queue finds the waiters that a request would join.
func (d *Destination) queue(r *Request, sh *share) *queue {
	for _, q := range d.queues {
		if q.share == sh && q.breaker == r.Breaker && q.limit == r.Limit && q.long == r.Long {
			return q
		}
	}
	return nil
}

// last puts a queue that was served behind the others, if it still has waiters.
func (d *Destination) last(q *queue) {
	if i := slices.Index(d.queues, q); i >= 0 {
		d.queues = append(slices.Delete(d.queues, i, i+1), q)
	}
}
