package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The operations on a timer and their answers must be linearizable (I19). The simulator checks the
// same; here the clock and HTTP are real.

type verb uint8

const (
	toAdd verb = iota
	toPatch
	toCancel
	toRead
)

// operation is a request and its answer.
type operation struct {
	verb           verb
	sum            uint64 // of the payload that it would write
	sent, answered time.Time
	told           told
}

// told is an answer. Status 0 means none, or one that leaves the effect unknown.
type told struct {
	status  int
	version int
	sum     uint64
	state   string
	outcome string
}

// heard records an operation for the linearizability check.
func (l *ledger) heard(e *entry, v verb, payload string, a answer) {
	o := operation{verb: v, sent: a.sent, answered: a.answered}
	if payload != "" {
		o.sum = sumOf(payload)
	}
	if effectOf(a) == refused && (a.status == 0 || a.status == http.StatusRequestTimeout) {
		return // it never reached a node, or not in time
	}
	if effectOf(a) != unknown {
		var body struct {
			Version int             `json:"version"`
			State   string          `json:"state"`
			Payload json.RawMessage `json:"payload"`
			Outcome string          `json:"outcome"`
		}
		_ = json.Unmarshal(a.body, &body) // a problem document has none of these fields
		o.told = told{status: a.status, version: body.Version, state: body.State, outcome: body.Outcome}
		if body.Payload != nil {
			o.told.sum = sumOf(string(body.Payload))
		}
	} else if v == toRead {
		return // an unanswered read tells nothing
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.operations = append(e.operations, o)
}

// believed is the model's state of a timer. A call is not an operation: later answers reveal it.
type believed struct {
	version   int // 0: never added
	sum       uint64
	asked     bool // a cancel came during a call or was not answered: it may end cancelled
	over      bool // it has ended; fired or cancelled tells how, if known
	cancelled bool
	fired     bool
}

func (b believed) pending() bool { return b.version > 0 && !b.over && !b.cancelled && !b.fired }

func (b believed) next(sum uint64) believed { return believed{version: b.version + 1, sum: sum} }

// step reports whether the answer is possible in this state, and returns the next state.
func (b believed) step(o operation) (bool, believed) {
	if o.told.status == 0 {
		return true, b.unheard(o)
	}
	if o.told.status == http.StatusNotFound {
		return b.version == 0, b
	}
	switch o.verb {
	case toAdd:
		// A 200 means that an unanswered try of the same add had taken effect.
		return b.version == 0 && o.told.status < 300 && o.told.version == 1, b.next(o.sum)
	case toPatch:
		return b.patched(o)
	case toCancel:
		return b.cancel(o.told)
	}
	return b.read(o.told)
}

// unheard applies an operation without an answer. It may take effect at any time, or never, as the
// last of all operations. An add that a stopped node still has makes a cancelled timer again
// (docs/openapi.yaml, at the top): a client that cancels should know how its adds ended.
func (b believed) unheard(o operation) believed {
	switch {
	case o.verb == toAdd && (b.version == 0 || b.cancelled), o.verb == toPatch && b.pending():
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

// orderLimit bounds the check of one timer, which has few operations.
const orderLimit = 10 * time.Second

// checkOrder checks that the operations on each timer are linearizable (I19).
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

// TestOrderOfAnAddThatComesLate: an add whose first try waits in a stopped node, and whose second
// one is cancelled, makes the timer again when the node goes on. Without such a try nothing does.
func TestOrderOfAnAddThatComesLate(t *testing.T) {
	begin := time.Now()
	op := func(v verb, from, to int, a told) operation {
		o := operation{verb: v, sent: begin.Add(time.Duration(from) * time.Second), answered: begin.Add(time.Duration(to) * time.Second), told: a}
		if v == toAdd {
			o.sum = 7
		}
		return o
	}
	lost := op(toAdd, 0, 3, told{})
	rest := []operation{
		op(toAdd, 0, 3, told{status: 201, version: 1, sum: 7, state: "scheduled"}),
		op(toCancel, 4, 5, told{status: 200, outcome: "prevented"}),
		op(toRead, 6, 7, told{status: 200, version: 1, sum: 7, state: "cancelled"}),
		op(toRead, 8, 9, told{status: 200, version: 2, sum: 7, state: "scheduled"}),
	}
	if !porcupine.CheckOperations(timerModel, porcupineOf(append([]operation{lost}, rest...))) {
		t.Error("no order explains the late try")
	}
	if porcupine.CheckOperations(timerModel, porcupineOf(rest)) {
		t.Error("a cancelled timer that nobody adds comes back")
	}
}
