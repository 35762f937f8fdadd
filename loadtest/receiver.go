package loadtest

import (
	"sync"

	"carillon/loadtest/sink"
)

// receiver judges deliveries against the ledger.
type receiver struct {
	names     *names
	ledger    *ledger
	tally     *tally
	measureUs int64     // lateness counts from this arrival on, Unix µs
	scratch   sync.Pool // of *[]byte: room for one expected payload
}

func newReceiver(n *names, l *ledger, t *tally, measureUs int64) *receiver {
	r := &receiver{names: n, ledger: l, tally: t, measureUs: measureUs}
	r.scratch.New = func() any { return new([]byte) }
	return r
}

// receive books a call: one delivery, or many. It always answers 200: a delivery that should not
// have come is the server's fault, and sending it again would not repair that.
func (r *receiver) receive(d *sink.Delivery) int {
	if len(d.Timer) == 0 {
		if many, ok := sink.ReadMany(d, nil); ok {
			for i := range many {
				r.book(&many[i])
			}
			return 200
		}
	}
	r.book(d)
	return 200
}

func (r *receiver) book(d *sink.Delivery) {
	number := r.names.parseID(d.Timer)
	if number < 0 || number >= r.ledger.issued.Load() {
		if r.names.isOurs(d.Timer, d.Body) {
			r.tally.wrong.Add(1) // under an id that nobody gave it
		} else {
			r.tally.foreign.Add(1)
		}
		return
	}
	if d.Attempt > 1 {
		r.tally.retries.Add(1)
	}
	version := r.versionOf(d, number)
	bits := markDelivered
	if version == 2 {
		bits |= markSecond
	}
	before := r.ledger.add(number, bits)
	due := r.ledger.dueMs(number, max(version, 1))
	if version == 0 {
		due = d.DueMs // nobody's version: only its own word is left
	}
	r.judge(before, version, d.DueMs == due && complete(d) && r.fromItsTopic(d, number))
	if d.ArrivedUs < max(due, d.DueMs)*1000 {
		r.tally.early.Add(1)
	}
	if before.has(markDelivered) {
		return
	}
	r.tally.fired.Add(1)
	r.window(d.ArrivedUs)
	if d.ArrivedUs >= r.measureUs {
		r.tally.lateness.Record(d.ArrivedUs - due*1000)
	}
}

// versionOf is the version that the body is, 0 when it is none.
func (r *receiver) versionOf(d *sink.Delivery, number int64) (version int) {
	buffer := r.scratch.Get().(*[]byte)
	version, *buffer = r.names.version(*buffer, d.Body, r.ledger, number)
	r.scratch.Put(buffer)
	return version
}

// complete reports whether the delivery has the headers that every attempt carries.
func complete(d *sink.Delivery) bool {
	return d.Attempt >= 1 && d.Fence >= 0 && len(d.WebhookID) > 0
}

func (r *receiver) fromItsTopic(d *sink.Delivery, number int64) bool {
	var buffer [160]byte
	return string(r.names.appendTopic(buffer[:0], r.names.topicOf(number))) == string(d.Topic)
}

// judge counts the faults of a delivery, given the timer's marks before it and whether its headers
// are those of the version.
func (r *receiver) judge(before mark, version int, headersAgree bool) {
	switch {
	case version == 0 || !headersAgree:
		r.tally.wrong.Add(1)
	case version == 1 && before.has(markChanged):
		r.tally.stale.Add(1)
	}
	if before.has(markRefused) || (version == 2 && before.has(markUnchanged)) {
		r.tally.unexpected.Add(1)
	}
	if before.has(markPrevented) {
		r.tally.cancelledFired.Add(1)
	}
	if before.has(markDelivered) && !before.has(markUnknown) {
		r.tally.duplicate.Add(1)
	}
}

// window keeps the first and last arrival.
func (r *receiver) window(us int64) {
	r.tally.firstFiredUs.CompareAndSwap(0, us)
	for {
		last := r.tally.lastFiredUs.Load()
		if us <= last || r.tally.lastFiredUs.CompareAndSwap(last, us) {
			return
		}
	}
}
