package table

import (
	"slices"

	"carillon/timer"
)

// letGo releases the timer that waits behind one that has ended, or is dropped.
func (m *model) letGo(x *modelTimer) {
	was := x.behind
	x.behind = false
	list := m.byID[modelKey(x.Topic, x.ID)]
	if i := slices.Index(list, x); !was && i >= 0 && i+1 < len(list) && list[i+1].behind {
		list[i+1].behind = false
		if list[i+1].State == timer.Scheduled {
			list[i+1].rev++
		}
	}
}

// blocks reports whether other timers wait, and x does not.
func (m *model) blocks(x *modelTimer) bool {
	last := m.last(x.Topic, x.ID)
	return last != nil && last.behind && x.live() && !x.behind
}

func (m *model) collect(c *timer.Command, x *modelTimer, late bool) (timer.Code, *modelTimer) {
	for _, y := range m.byID[modelKey(c.Topic, c.ID)] {
		if c.Spec.Collect.Part != "" && slices.Contains(y.parts, c.Spec.Collect.Part) {
			return timer.Merged, y
		}
	}
	switch {
	case c.Spec.PayloadKind != timer.JSONPayload || c.Spec.Repeat != nil:
		return timer.Exists, x
	case late:
		return timer.TooLate, x
	case x == nil || x.State.Over():
		return timer.Created, m.array(c)
	case x.series:
		return timer.Exists, x
	}
	if next := x.successor; next != nil {
		if next.Repeat != nil || next.PayloadKind == timer.BinaryPayload {
			return timer.Exists, x
		}
		x.successor, x.Successor = nil, false
		next.Version = x.Version + 1
		next.begin()
		m.seq++
		next.Seq = m.seq
		m.schedule(next, next.DueMs)
		m.enter(next)
		m.hold(next)
		x = next
	}
	switch {
	case x.State == timer.Leased || x.Attempts > 0 || x.noExpiry || x.Full:
		return m.next(c)
	case x.Collected == 0 && x.PayloadKind == timer.BinaryPayload:
		return timer.Exists, x
	case x.Collected == 0 && x.PayloadKind == timer.NoPayload:
		x.Payload = []byte("[]")
	case x.Collected == 0:
		x.Payload, x.Collected = slices.Concat([]byte("["), x.Payload, []byte("]")), 1
	}
	x.Version++
	x.UpdatedMs = m.clock
	if c.MaxWaitMs != 0 && x.AskedMs == 0 {
		first := x.first
		if first == 0 {
			first = x.CreatedMs
		}
		m.move(x, timer.Debounced(c.Merge, c.Spec.DueMs, first, c.MaxWaitMs))
	}
	m.take(x, c)
	return timer.Merged, x
}

func (m *model) array(c *timer.Command) *modelTimer {
	_, x := m.create(c)
	x.Payload, x.Collect = []byte("[]"), nil
	m.take(x, c)
	return x
}

func (m *model) next(c *timer.Command) (timer.Code, *modelTimer) {
	x := m.array(c)
	m.hold(x)
	return timer.Merged, x
}

func (m *model) hold(x *modelTimer) {
	x.behind = true
	x.rev++
}

func (m *model) take(x *modelTimer, c *timer.Command) {
	x.ContentType = ""
	array := slices.Clone(x.Payload[:len(x.Payload)-1])
	if x.Collected > 0 {
		array = append(array, ',')
	}
	x.Payload, x.PayloadKind = append(append(array, c.Spec.Payload...), ']'), timer.JSONPayload
	x.Collected++
	if c.Spec.Collect.Part != "" {
		x.parts = append(x.parts, c.Spec.Collect.Part)
	}
	most := c.Spec.Collect.Max
	if most == 0 {
		most = timer.DefaultCollectMax
	}
	if int(x.Collected) >= most {
		x.Full = true
		m.move(x, min(x.DueMs, m.clock))
	}
}

// move changes the due time of a timer that was not attempted.
func (m *model) move(x *modelTimer, due int64) {
	if due == x.DueMs {
		return
	}
	next := due
	if x.AskedMs != 0 {
		next = min(next, x.NextMs)
	}
	x.DueMs = due
	m.schedule(x, next)
}
