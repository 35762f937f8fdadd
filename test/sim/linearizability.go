package sim

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"carillon/timer"
)

// history holds the operations and answers of clients, to decide whether they are linearizable
// (I19). An operation with an unknown outcome stays open for ever: it may take effect at any time
// or, as if at the very end, never.
type history struct {
	order   int64
	entries []*historyEntry
	open    map[uint64]*historyEntry
}

// historyEntry is one operation.
type historyEntry struct {
	id             idKey
	in             asked
	out            heard
	called, ended  int64
	dropped        bool
	calledAt, done time.Duration
}

// asked is the request; kind 0 is a read.
type asked struct {
	op   uint64
	kind timer.Kind
}

// heard is the answer.
type heard struct {
	known   bool
	code    timer.Code
	there   bool // the answer contains a timer
	version uint32
	writer  uint64 // the operation that wrote the payload
	state   timer.State
}

func (h *history) call(o *operation) {
	if h.open == nil {
		h.open = map[uint64]*historyEntry{}
	}
	e := &historyEntry{id: idKey{o.topic, o.id}, in: asked{op: o.number}, calledAt: o.began}
	if o.cmd != nil {
		e.in.kind = o.cmd.Kind
	}
	h.order++
	e.called, e.ended = h.order, math.MaxInt64
	h.open[o.number] = e
	h.entries = append(h.entries, e)
}

func (h *history) drop(o *operation) { h.open[o.number].dropped = true }

func (h *history) answer(o *operation, r timer.Result, t *timer.Timer, wrote *write) {
	e := h.open[o.number]
	h.order++
	e.ended, e.done = h.order, o.client.w.now
	e.out = heard{known: true, code: r.Code, there: t != nil}
	if t != nil {
		e.out.version, e.out.writer, e.out.state = t.Version, wrote.op, t.State
	}
}

// timerState is one id in the model. The model has no operation for a call: later answers show that
// the timer has fired.
type timerState struct {
	version uint32 // of the last write; 0: the timer does not exist
	writer  uint64
	// a cancel came during a call, or its answer is unknown: the timer may end cancelled
	asked     bool
	cancelled bool
	fired     bool

	forgetful bool // see History.forgetful
}

func (s timerState) next(in asked) timerState {
	return timerState{version: s.version + 1, writer: in.op, forgetful: s.forgetful}
}

// forgotten is the next state after an answer that does not know the timer, if the timer may have
// fired and been forgotten.
func (s timerState) forgotten(in asked, out heard) (timerState, bool) {
	if !s.forgetful || s.version == 0 {
		return s, false
	}
	none := timerState{forgetful: true}
	if ok, next := none.answered(in, out); ok {
		return next, true
	}
	// It was forgotten before a change with an unknown outcome, which counts versions anew.
	for anew := s; anew.version > 1; {
		anew.version--
		if ok, next := anew.answered(in, out); ok && next.version == out.version {
			return next, true
		}
	}
	return s, false
}

// step reports whether an answer is possible in this state, and returns the next state.
func (s timerState) step(in asked, out heard) (bool, timerState) {
	if !out.known {
		switch in.kind {
		case 0:
		case timer.Cancel:
			s.asked = true
		case timer.Modify:
			if s.version > 0 && !s.cancelled && !s.fired {
				s = s.next(in)
			}
		default:
			s = s.next(in)
		}
		return true, s
	}
	if ok, next := s.answered(in, out); ok {
		return true, next
	}
	if next, ok := s.forgotten(in, out); ok {
		return true, next
	}
	return false, s
}

// answered is step for a known answer about a timer that was not forgotten.
func (s timerState) answered(in asked, out heard) (bool, timerState) {
	if in.kind == 0 {
		return s.seen(out)
	}
	switch out.code {
	case timer.Created, timer.OK:
		over := s.cancelled || s.fired
		if out.code == timer.OK && (s.version == 0 || over) || out.version != s.version+1 {
			return false, s
		}
		return true, s.next(in)
	case timer.NotFound:
		return s.version == 0, s
	case timer.Prevented:
		if s.version == 0 || s.fired || out.version != s.version || out.writer != s.writer {
			return false, s
		}
		s.cancelled = true
		return true, s
	case timer.CancelInFlight:
		if s.version == 0 || s.fired || s.cancelled || out.version != s.version {
			return false, s
		}
		s.asked = true
		return true, s
	case timer.Exists, timer.InFlight:
		return s.version > 0 && !s.cancelled && !s.fired, s
	case timer.OverFired:
		ok := s.version > 0 && !s.cancelled
		s.fired = true
		return ok, s
	case timer.OverCancelled:
		ok := s.version > 0 && !s.fired && (s.cancelled || s.asked)
		s.cancelled = true
		return ok, s
	}
	return false, s
}

// seen is step for a read.
func (s timerState) seen(out heard) (bool, timerState) {
	if !out.there {
		return s.version == 0, s
	}
	if out.version != s.version || out.writer != s.writer {
		return false, s
	}
	switch out.state {
	case timer.Done:
		ok := !s.cancelled
		s.fired = true
		return ok, s
	case timer.Cancelled:
		ok := !s.fired && (s.cancelled || s.asked)
		s.cancelled = true
		return ok, s
	}
	return !s.cancelled && !s.fired, s
}

// History is the operations of a run's clients, by timer id.
type History struct {
	ids  []idKey
	byID map[idKey][]*historyEntry

	bulks *bulkChecker
	// forgetful marks ids whose finished timers may be forgotten before their ten minutes are over,
	// because wrong clocks had to be trusted.
	forgetful map[idKey]bool
}

func (h *history) export(forgetful func(idKey) bool) History {
	out := History{byID: map[idKey][]*historyEntry{}, forgetful: map[idKey]bool{}}
	for _, e := range h.entries {
		if e.dropped {
			continue
		}
		if out.byID[e.id] == nil {
			out.ids = append(out.ids, e.id)
			out.forgetful[e.id] = forgetful(e.id)
		}
		out.byID[e.id] = append(out.byID[e.id], e)
	}
	return out
}

// asAsked reports whether the order of the requests explains all answers. This order is always
// valid because no operation ended before an earlier one began. It suffices for most timers.
func asAsked(list []*historyEntry, s timerState) bool {
	for _, e := range list {
		ok, next := s.step(e.in, e.out)
		if !ok {
			return false
		}
		s = next
	}
	return true
}

// unexplained is the reason if no order of the operations fits the model, or if none was found in
// time: an undecided history is no proof. Operations without an end may have had no effect. Each of
// them doubles the work, so an order without them is searched first.
func unexplained(model porcupine.Model, ops []porcupine.Operation, limit time.Duration) string {
	ended := slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool { return o.Return == math.MaxInt64 })
	if len(ended) < len(ops) && porcupine.CheckOperationsTimeout(model, ended, limit/2) == porcupine.Ok {
		return ""
	}
	switch porcupine.CheckOperationsTimeout(model, ops, limit) {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("undecided after %s: no order was found that explains", limit)
	}
	return "no order explains"
}

// Check searches an order of each id's operations that explains all answers. Call it outside of the
// bubble.
func (h History) Check(limit time.Duration) error {
	for _, id := range h.ids {
		list, begins := h.byID[id], timerState{forgetful: h.forgetful[id]}
		if asAsked(list, begins) {
			continue
		}
		model := porcupine.Model{
			Init: func() any { return begins },
			Step: func(state, in, out any) (bool, any) {
				ok, next := state.(timerState).step(in.(asked), out.(heard))
				return ok, next
			},
		}
		ops := make([]porcupine.Operation, len(list))
		for i, e := range list {
			ops[i] = porcupine.Operation{ClientId: i, Input: e.in, Output: e.out, Call: e.called, Return: e.ended}
		}
		if text := unexplained(model, ops, limit); text != "" {
			v := &Violation{Invariant: "I19", Text: fmt.Sprintf("%s what clients were told of timer %s of topic %d", text, id.id, id.topic)}
			for _, e := range list {
				v.Trace = append(v.Trace, fmt.Sprintf("%5d–%-5d  %9.3f–%-9.3f  %+v → %+v", e.called, e.ended, e.calledAt.Seconds(), e.done.Seconds(), e.in, e.out))
			}
			return v
		}
	}
	if h.bulks != nil {
		return h.bulks.check(limit)
	}
	return nil
}
