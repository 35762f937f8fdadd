package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/bulk"
)

// bulkChecker checks bulk changes in bulkTopic. For each timer a bulk change is one operation that
// takes effect at one moment while the change runs. It must take effect if the timer existed before
// and matches the filter at that moment. It may have no effect if the change was abandoned, or if
// the timer was being created. Some order of all operations on a timer must explain its final state
// and all answers. So a timer that never matched stays untouched, and no timer is changed twice.
type bulkChecker struct {
	ids     map[string]*bulkID
	names   []string // ids, in order of their creation
	order   int64
	open    map[uint64]*bulkOp
	running []*sweep
	looked  bool
	finalMs int64 // due time that the last bulk change sets; 0: it has not run yet
}

// bulkID is the checker's knowledge of one timer.
type bulkID struct {
	id        string
	labels    []string
	payload   string
	made      bool // its creation was acknowledged
	cancelled bool // somebody requested a cancel
	ops       []*bulkOp
	delivered bool
}

// bulkOp is one operation on one timer.
type bulkOp struct {
	kind          timer.Kind // 0: a read
	sweep         *sweep     // nil: an operation on this timer alone
	dueMs         int64
	number        uint64
	called, ended int64
	dropped       bool
	must          bool // for a sweep: the timer existed before
	overlapped    bool // another operation ran at the same time
	out           heard
	outMs         int64
}

func (b *bulkChecker) tick() int64 {
	b.order++
	return b.order
}

// note adds an operation to a timer's history.
func (n *bulkID) note(o *bulkOp) {
	o.ended = math.MaxInt64
	for _, p := range n.ops {
		if p.ended == math.MaxInt64 && !p.dropped {
			p.overlapped, o.overlapped = true, true
		}
	}
	n.ops = append(n.ops, o)
}

func (s *sweep) mayMean(id string, labels []string) bool {
	for _, l := range s.labels {
		if !slices.Contains(labels, l) {
			return false
		}
	}
	return strings.HasPrefix(id, s.bulk.Query.IDPrefix)
}

func (b *bulkChecker) called(o *operation) {
	n := b.ids[o.id]
	if n == nil {
		n = &bulkID{id: o.id, labels: o.write.labels, payload: o.write.payload}
		b.ids[o.id] = n
		b.names = append(b.names, o.id)
		for _, s := range b.running {
			b.meet(n, s, false)
		}
	}
	op := &bulkOp{number: o.number, called: b.tick()}
	switch {
	case o.cmd == nil:
	case o.cmd.Kind == timer.Modify:
		op.kind, op.dueMs = timer.Modify, o.cmd.Patch.Spec.DueMs
	case o.cmd.Kind == timer.Add:
		op.kind, op.dueMs = timer.Add, o.write.dueMs
	default:
		op.kind, n.cancelled = timer.Cancel, true
	}
	if b.open == nil {
		b.open = map[uint64]*bulkOp{}
	}
	b.open[o.number] = op
	n.note(op)
}

// meet records that a sweep may change a timer, or must.
func (b *bulkChecker) meet(n *bulkID, s *sweep, must bool) {
	if !s.mayMean(n.id, n.labels) || b.looked {
		return
	}
	n.note(&bulkOp{sweep: s, number: s.number, called: b.tick(), must: must})
	n.cancelled = n.cancelled || s.move.By == bulk.NoMove
}

func (b *bulkChecker) refused(o *operation) { b.open[o.number].dropped = true }

func (b *bulkChecker) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	n, op := b.ids[o.id], b.open[o.number]
	op.ended = b.tick()
	op.out = heard{known: true, code: r.Code, there: t != nil}
	if t != nil {
		b.same(w, n, t)
		op.out.version, op.out.state, op.outMs = t.Version, t.State, t.DueMs
	}
	n.made = n.made || r.Code == timer.Created
}

// same checks the fields that no operation changes (I2).
func (b *bulkChecker) same(w *World, n *bulkID, t *timer.Timer) {
	if t.ID != n.id || string(t.Payload) != n.payload || !slices.Equal(t.Labels, n.labels) {
		w.violate("I2", "timer %s is shown as %s with payload %s, labels %v; it was made with %s, %v", n.id, t.ID, t.Payload, t.Labels, n.payload, n.labels)
	}
}

// began records a sweep before its first step.
func (b *bulkChecker) began(s *sweep) {
	b.running = append(b.running, s)
	for _, id := range b.names {
		b.meet(b.ids[id], s, b.ids[id].made)
	}
}

// done records the end of a sweep. It checks its counts against the timers that it had to match and
// those that it may have matched.
func (b *bulkChecker) done(w *World, s *sweep) {
	b.running = slices.DeleteFunc(b.running, func(r *sweep) bool { return r == s })
	matched, changed, skipped := s.bulk.Matched.Load(), s.bulk.Changed.Load(), s.bulk.Skipped.Load()
	w.counts.Moved += int(changed)
	if b.looked {
		return
	}
	least, most, doubtful := int64(0), int64(0), int64(0)
	at := b.tick()
	for _, id := range b.names {
		n := b.ids[id]
		for _, op := range n.ops {
			if op.sweep != s {
				continue
			}
			most++
			windowed := s.bulk.Query.FromMs != 0 || s.bulk.Query.ToMs != 0
			if op.must && !windowed && (!n.cancelled || s.move.By == bulk.NoMove && !op.overlapped && n.onlyBy(s)) {
				least++
			}
			doubtful += int64(b2u(op.overlapped))
			if op.must && (skipped == 0 || !op.overlapped) {
				op.ended = at
			}
		}
	}
	if matched < least || matched > most || changed+skipped > matched || skipped > doubtful || s.move.By == bulk.NoMove && changed+skipped != matched {
		w.violate("bulk", "bulk change %d reports %d timers matched, %d changed, %d skipped; expected %d to %d matched, %d of them under other operations",
			s.number, matched, changed, skipped, least, most, doubtful)
	}
}

// onlyBy reports whether the sweep is the only operation that cancels the timer.
func (n *bulkID) onlyBy(s *sweep) bool {
	return !slices.ContainsFunc(n.ops, func(o *bulkOp) bool {
		return o.kind == timer.Cancel || o.sweep != nil && o.sweep != s && o.sweep.move.By == bulk.NoMove
	})
}

// look reads the final state of every timer and counts the pending ones.
func (b *bulkChecker) look(w *World) (pending int64) {
	b.looked = true
	for _, id := range b.names {
		n, at := b.ids[id], w.holder(bulkTopic, id)
		tbl := w.leader(at).host.Table(at)
		op := &bulkOp{called: b.tick()}
		n.note(op)
		op.ended = b.tick()
		op.out.known = true
		t := tbl.Read(bulkTopic, id)
		if t == nil {
			continue
		}
		b.same(w, n, t)
		op.out.there, op.out.version, op.out.state, op.outMs = true, t.Version, t.State, t.DueMs
		pending += int64(b2u(!t.State.Over()))
	}
	return pending
}

func (b *bulkChecker) mayStart(*call, *table.Table) {}

func (b *bulkChecker) started(c *call) {
	w, j := c.node.w, &c.delivery.Job
	n := b.ids[j.ID]
	if n == nil || string(j.Payload) != n.payload || b.finalMs != 0 && j.DueMs != b.finalMs {
		w.violate("bulk", "node %d calls for %s due at %d, which no operation requested", c.node.id, j.ID, j.DueMs)
	}
}

func (b *bulkChecker) heard(c *call) { b.ids[c.delivery.Job.ID].delivered = true }

func (b *bulkChecker) checkEnd(w *World) {
	for _, id := range b.names {
		n, at := b.ids[id], w.holder(bulkTopic, id)
		tbl := w.leader(at).host.Table(at)
		now := tbl.Read(bulkTopic, id)
		switch {
		case now == nil && n.made && !w.mayBeForgotten(at, 0, n.delivered || n.cancelled):
			w.violate("I1", "timer %s was acknowledged and is gone", id)
		case now == nil:
		case now.State == timer.Done && !n.delivered:
			w.violate("I1", "timer %s is done, but was never delivered", id)
		case now.State == timer.Cancelled && !n.cancelled:
			w.violate("I1", "timer %s is cancelled, but no client requested it", id)
		case now.State != timer.Done && now.State != timer.Cancelled:
			w.violate("I14", "timer %s is in state %d, expected an ended timer", id, now.State)
		}
	}
}

// bulkState is one timer in the model.
type bulkState struct {
	version   uint32 // 0: it does not exist
	dueMs     int64
	cancelled bool
}

// hash may collide, rarely.
func (s bulkState) hash() uint64 {
	return (uint64(s.version)<<1|b2u(s.cancelled))*0x9e3779b97f4a7c15 ^ uint64(s.dueMs)*0xc2b2ae3d27d4eb4f
}

func (s bulkState) moved(ms int64) bulkState { return bulkState{version: s.version + 1, dueMs: ms} }

// step reports whether an answer is possible in this state, and returns the next state.
func (s bulkState) step(in *bulkOp) (bool, bulkState) {
	there, out := s.version > 0, &in.out
	pending := there && !s.cancelled
	switch {
	case in.sweep != nil:
		return true, s.swept(in.sweep)
	case in.kind == 0 && !out.known:
		return true, s
	case in.kind == 0 && !out.there:
		return !there, s
	case in.kind == 0:
		return out.version == s.version && in.outMs == s.dueMs && (out.state == timer.Cancelled) == s.cancelled && !(out.state == timer.Done), s
	case in.kind == timer.Add:
		return !there && (!out.known || out.code == timer.Created && out.version == 1), bulkState{version: 1, dueMs: in.dueMs}
	case in.kind == timer.Cancel:
		ok := !out.known || out.code == timer.Prevented && there || out.code == timer.NotFound && !there
		s.cancelled = there
		return ok, s
	case !out.known && !pending:
		return true, s
	case !out.known || out.code == timer.OK:
		return pending && (!out.known || out.version == s.version+1), s.moved(in.dueMs)
	case out.code == timer.NotFound:
		return !there, s
	}
	return out.code == timer.OverCancelled && s.cancelled, s
}

// swept is the state after a bulk change.
func (s bulkState) swept(w *sweep) bulkState {
	q := &w.bulk.Query
	if s.version == 0 || s.cancelled || s.dueMs < q.FromMs || q.ToMs != 0 && s.dueMs >= q.ToMs {
		return s
	}
	switch w.move.By {
	case bulk.NoMove:
		s.cancelled = true
	case bulk.MoveShift:
		return s.moved(s.dueMs + w.move.Ms)
	case bulk.MoveNotBefore:
		if s.dueMs < w.move.Ms {
			return s.moved(w.move.Ms)
		}
	default:
		if s.dueMs != w.move.Ms {
			return s.moved(w.move.Ms)
		}
	}
	return s
}

// asAsked reports whether the order of the requests explains everything; see History.
func (n *bulkID) asAsked() bool {
	var s bulkState
	for _, o := range n.ops {
		if o.dropped {
			continue
		}
		ok, next := s.step(o)
		if !ok {
			return false
		}
		s = next
	}
	return true
}

// bulkSearch is the state of the search for an order.
type bulkSearch struct {
	bulkState
	found bool // the final read of the timer is explained
}

func (s bulkSearch) hash() uint64 { return s.bulkState.hash() ^ b2u(s.found)<<63 }

// model prunes the search, because each operation without an end doubles it. An operation without
// effect can be placed after the final read, and versions never decrease.
func (n *bulkID) model() porcupine.Model {
	last := n.ops[len(n.ops)-1]
	return porcupine.Model{
		Init: func() any { return bulkSearch{} },
		Step: func(state, in, _ any) (bool, any) {
			s, o := state.(bulkSearch), in.(*bulkOp)
			if s.found {
				return true, s
			}
			ok, next := s.step(o)
			if !ok || next.version > last.out.version || next == s.bulkState && o.ended == math.MaxInt64 {
				return false, s
			}
			return true, bulkSearch{next, o == last}
		},
		// without a hash a history with many overlaps takes seconds
		Hash: func(state any) uint64 { return state.(bulkSearch).hash() },
	}
}

// check searches an order of each timer's operations that explains its final state. Call it outside
// of the bubble.
func (b *bulkChecker) check(limit time.Duration) error {
	for _, id := range b.names {
		var ops []porcupine.Operation
		for i, o := range b.ids[id].ops {
			if !o.dropped {
				ops = append(ops, porcupine.Operation{ClientId: i, Input: o, Output: o, Call: o.called, Return: o.ended})
			}
		}
		if !b.looked || b.ids[id].asAsked() {
			continue
		}
		text := unexplained(b.ids[id].model(), ops, limit)
		if text == "" {
			continue
		}
		v := &Violation{Invariant: "bulk", Text: fmt.Sprintf("%s what became of timer %s of topic %d", text, id, bulkTopic)}
		for _, o := range b.ids[id].ops {
			line := fmt.Sprintf("%5d–%-5d operation %d: kind %d, due %d → %+v, due %d", o.called, o.ended, o.number, o.kind, o.dueMs, o.out, o.outMs)
			if s := o.sweep; s != nil {
				line = fmt.Sprintf("%5d–%-5d bulk %d: %+v, from %d to %d", o.called, o.ended, o.number, s.move, s.bulk.Query.FromMs, s.bulk.Query.ToMs)
			}
			v.Trace = append(v.Trace, line)
		}
		return v
	}
	return nil
}
