package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/anishathalye/porcupine"
)

// What clients did to a timer and what they were told must have an order that explains it (I19).
// The simulator asks the same of its clients; here the clock is real, and so is the HTTP.

type verb uint8

const (
	toAdd verb = iota
	toPatch
	toCancel
	toRead
)

// operation is one request and its answer.
type operation struct {
	verb           verb
	sum            uint64 // of the payload that it would write
	sent, answered time.Time
	told           told
}

// told is an answer; status 0: there was none, or one that leaves open what happened.
type told struct {
	status  int
	version int
	sum     uint64
	state   string
	outcome string
}

// heard keeps an operation for the check of orders.
func (l *ledger) heard(e *entry, v verb, payload string, a answer) {
	o := operation{verb: v, sent: a.sent, answered: a.answered}
	if payload != "" {
		o.sum = sumOf(payload)
	}
	if effectOf(a) == refused && a.status == 0 {
		return // it never reached a node
	}
	if effectOf(a) != unknown {
		var body struct {
			Version int             `json:"version"`
			State   string          `json:"state"`
			Payload json.RawMessage `json:"payload"`
			Outcome string          `json:"outcome"`
		}
		_ = json.Unmarshal(a.body, &body) // a problem has none of it
		o.told = told{status: a.status, version: body.Version, state: body.State, outcome: body.Outcome}
		if body.Payload != nil {
			o.told.sum = sumOf(string(body.Payload))
		}
	} else if v == toRead {
		return // nothing was done and nothing was told
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.operations = append(e.operations, o)
}

// believed is a timer as the model has it. That it was called is nobody's operation: it shows in
// what is told later.
type believed struct {
	version   int // 0: never made
	sum       uint64
	asked     bool // a cancel came while a call ran, or had no answer: it may end cancelled
	over      bool // done or cancelled, and nobody was told which
	cancelled bool
	fired     bool
}

func (b believed) pending() bool { return b.version > 0 && !b.over && !b.cancelled && !b.fired }

func (b believed) next(sum uint64) believed { return believed{version: b.version + 1, sum: sum} }

// step says whether the answer can be, and what the timer is then.
func (b believed) step(o operation) (bool, believed) {
	if o.told.status == 0 {
		return true, b.unheard(o)
	}
	if o.told.status == http.StatusNotFound {
		return b.version == 0, b
	}
	switch o.verb {
	case toAdd:
		// 200: an earlier try of the same request was answered by nobody, and had made it.
		return b.version == 0 && o.told.status < 300 && o.told.version == 1, b.next(o.sum)
	case toPatch:
		return b.patched(o)
	case toCancel:
		return b.cancel(o.told)
	}
	return b.read(o.told)
}

// unheard: it may take effect at any time, or, at the very end, never.
func (b believed) unheard(o operation) believed {
	switch {
	case o.verb == toAdd && b.version == 0, o.verb == toPatch && b.pending():
		return b.next(o.sum)
	case o.verb == toCancel:
		b.asked = true
	}
	return b
}

func (b believed) patched(o operation) (bool, believed) {
	switch o.told.status {
	case http.StatusOK:
		n := b.next(o.sum)
		n.asked = b.asked
		return b.pending() && o.told.version == n.version && (o.told.sum == 0 || o.told.sum == o.sum), n
	case http.StatusConflict:
		return b.pending(), b
	case http.StatusGone:
		ok := b.version > 0
		b.over = true
		return ok, b
	}
	return false, b
}

func (b believed) cancel(a told) (bool, believed) {
	switch a.outcome {
	case "prevented":
		ok := b.version > 0 && !b.fired && (!b.over || b.cancelled || b.asked)
		b.cancelled, b.over = true, true
		return ok, b
	case "in_flight":
		ok := b.pending()
		b.asked = true
		return ok, b
	case "already_fired", "dead":
		ok := b.version > 0 && !b.cancelled
		b.fired, b.over = true, true
		return ok, b
	}
	return false, b
}

func (b believed) read(a told) (bool, believed) {
	if a.status != http.StatusOK || a.version != b.version || a.sum != 0 && a.sum != b.sum {
		return false, b
	}
	switch a.state {
	case "done", "dead":
		ok := !b.cancelled
		b.fired, b.over = true, true
		return ok, b
	case "cancelled":
		ok := !b.fired && (b.cancelled || b.asked)
		b.cancelled, b.over = true, true
		return ok, b
	}
	return b.pending(), b
}

var timerModel = porcupine.Model{
	Init: func() any { return believed{} },
	Step: func(state, in, _ any) (bool, any) {
		ok, next := state.(believed).step(in.(operation))
		return ok, next
	},
}

// orderLimit is for one timer; each has few operations.
const orderLimit = 10 * time.Second

// checkOrder: I19.
func (v *verdict) checkOrder() {
	for _, e := range v.ledger.entries {
		if len(e.operations) == 0 {
			continue
		}
		switch porcupine.CheckOperationsTimeout(timerModel, porcupineOf(e.operations), orderLimit) {
		case porcupine.Illegal:
			v.fault("%s: no order explains what clients were told: %s", e.id, shown(e.operations))
		case porcupine.Unknown:
			v.fault("%s: no order was found within %v: %s", e.id, orderLimit, shown(e.operations))
		default:
			v.operations += len(e.operations)
		}
	}
}

func porcupineOf(list []operation) []porcupine.Operation {
	epoch := list[0].sent
	ops := make([]porcupine.Operation, len(list))
	for i, o := range list {
		ops[i] = porcupine.Operation{ClientId: i, Input: o, Call: o.sent.Sub(epoch).Nanoseconds(), Return: o.answered.Sub(epoch).Nanoseconds()}
		if o.told.status == 0 {
			ops[i].Return = math.MaxInt64
		}
	}
	return ops
}

func shown(list []operation) (text string) {
	for _, o := range list {
		text += fmt.Sprintf("\n\t%s–%s %s %x → %+v", o.sent.Format(clockFormat), o.answered.Format(clockFormat), [...]string{"add", "patch", "cancel", "read"}[o.verb], o.sum, o.told)
	}
	return text
}
