package loadtest

import "time"

// record enters the end of one operation into ledger and tally. It returns false
// when the operation counts as an error: no answer, or one that the contract
// does not foresee for it. A change that came too late for its timer does not.
func (t *tally) record(l *ledger, op operation, number int64, r result, now time.Time) bool {
	t.byOperation[op].Add(1)
	uncertain := r.status == 0 || r.status == 408 || r.status >= 500
	if uncertain && op != opGet {
		t.unknown.Add(1)
	}
	if r.status >= 500 {
		t.serverErrors.Add(1)
	}
	switch op {
	case opAdd:
		return t.recordAdd(l, number, r, uncertain, now)
	case opPatch:
		return t.recordPatch(l, number, r, uncertain)
	case opCancel:
		return t.recordCancel(l, number, r, uncertain)
	}
	if r.status == 404 {
		return t.recordMissing(l, number)
	}
	return r.status == 200
}

// read compares the answer to a read with the version last acknowledged. The answers about a timer
// come in order, on one connection, so that only a change without an answer leaves two of them
// possible.
func (t *tally) read(n *names, l *ledger, number int64, body []byte) {
	m := l.marks(number)
	shown := n.versionIn(body, l, number)
	switch {
	case m.has(markChanged) && shown == 2, !m.has(markChanged) && shown == 1, m.has(markMaybeChanged) && shown == 2:
	default:
		t.staleReads.Add(1)
	}
}

func (t *tally) recordAdd(l *ledger, number int64, r result, uncertain bool, now time.Time) bool {
	switch {
	case uncertain:
		l.add(number, markUnknown)
		return false
	case r.status < 200 || r.status > 299:
		t.refused.Add(1)
		if l.add(number, markRefused).has(markDelivered) {
			t.unexpected.Add(1)
		}
		return false
	}
	t.added.Add(1)
	l.add(number, markAcked)
	due := l.firstDueMs(number)
	t.due.move(due, 1)
	if now.UnixMilli() > due {
		t.addedLate.Add(1)
	}
	return true
}

func (t *tally) recordPatch(l *ledger, number int64, r result, uncertain bool) bool {
	switch {
	case r.status == 200:
		t.changed.Add(1)
		m := l.add(number, markChanged)
		if m.has(markDelivered) && !m.has(markSecond) {
			l.add(number, markSecondOwed)
		}
		if !m.has(markUncertain) {
			t.due.move(l.dueMs(number, 1), -1)
			t.due.move(l.dueMs(number, 2), 1)
		}
		return true
	case uncertain:
		l.add(number, markMaybeChanged)
		return false
	}
	l.add(number, markUnchanged)
	switch r.status {
	case 409, 410, 412:
		t.conflicts.Add(1)
		return true
	case 404:
		return t.recordMissing(l, number)
	}
	return false
}

func (t *tally) recordCancel(l *ledger, number int64, r result, uncertain bool) bool {
	switch {
	case r.status == 200 && r.outcome == "prevented":
		t.prevented.Add(1)
		if m := l.add(number, markPrevented); !m.has(markUncertain) {
			t.due.move(l.lastDueMs(number, m), -1)
		}
		return true
	case r.status == 202:
		l.add(number, markExcused)
		t.conflicts.Add(1)
		return true
	case r.status == 410:
		if r.outcome == "dead" {
			t.dead.Add(1)
			l.add(number, markExcused)
		}
		t.conflicts.Add(1)
		return true
	case r.status == 404:
		return t.recordMissing(l, number)
	case uncertain:
		l.add(number, markExcused)
	}
	return false
}

// recordMissing handles a 404: a fault of the server only if the add had been
// acknowledged.
func (t *tally) recordMissing(l *ledger, number int64) bool {
	m := l.marks(number)
	if !m.has(markAcked) || m.has(markUncertain) {
		t.conflicts.Add(1)
		return true
	}
	if !l.add(number, markVanished).has(markVanished) {
		t.vanished.Add(1)
	}
	return false
}
