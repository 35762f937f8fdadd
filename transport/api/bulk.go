package api

import (
	"slices"
	"strings"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/timer/duration"
)

// bulk is the body of a change to all timers that a filter selects.
type bulkRequest struct {
	query timer.Query
	move  bulk.Move
	at    when // of a move to one time
}

// Fields of a bulk change's body; fAt and fAtMs are those of a timer.
const (
	fFilter field = 1 << (40 + iota)
	fAll
	fShift
	fNotBefore

	moveFields = fShift | fAt | fAtMs | fAtLocal | fNotBefore
)

var bulkFields = []struct {
	name string
	bit  field
}{{"filter", fFilter}, {"all", fAll}, {"shift", fShift}, {"at", fAt}, {"at_ms", fAtMs}, {"at_local", fAtLocal}, {"zone", fZone}, {"not_before", fNotBefore}}

func bulkField(name []byte, reschedule bool) (bit field, names []string) {
	for _, f := range bulkFields {
		if !reschedule && f.bit&(moveFields|fZone) != 0 {
			break
		}
		if names = append(names, f.name); f.name == string(name) {
			return f.bit, names
		}
	}
	return 0, names
}

// bulk reads {"filter", "all"} and, for a reschedule, one of "shift", "at", "at_ms", "at_local" with
// "zone", "not_before".
func (r *reader) bulk(reschedule bool) *bulkRequest {
	b := &bulkRequest{}
	b.query.States = 1<<timer.Scheduled | 1<<timer.Leased
	var given field
	filtered, all := false, false
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		f, names := bulkField(name, reschedule)
		if f == 0 && r.Err() == nil {
			r.fail(unknown(name, names))
		}
		if r.Err() != nil || !r.first(&given, f, "", name) {
			return b
		}
		switch f {
		case fFilter:
			filtered = r.timerFilter(&b.query)
		case fAll:
			all = r.Boolean("all")
		case fZone:
			b.at.zone = r.zone("zone", badTime)
		case fAt, fAtMs, fAtLocal:
			b.move.By = bulk.MoveAt
			r.when(&b.at, f)
		default:
			b.move = r.move(f)
		}
	}
	r.End()
	switch moves := given & moveFields; {
	case r.Err() != nil:
	case reschedule && moves == 0:
		r.fail(bad(badTime, "a time is required: one of shift, at, at_ms, at_local, not_before"))
	case moves&(moves-1) != 0:
		r.fail(bad(badTime, "give one of shift, at, at_ms, at_local, not_before, not several"))
	case !filtered && !all:
		r.fail(bad(badRequest, `give a filter that is not empty, or "all": true`))
	default:
		r.fail(b.at.resolve(given))
	}
	if b.move.By == bulk.MoveAt {
		b.move.Ms = b.at.ms
	}
	return b
}

func (r *reader) move(f field) bulk.Move {
	switch f {
	case fShift:
		ms, ok := parseSpan(r.timeText("shift"))
		if !ok || ms == 0 {
			r.fail(bad(badTime, `shift: must be a duration other than 0, like "+1h" or "-2d"; the units are `+duration.Units))
		}
		return bulk.Move{By: bulk.MoveShift, Ms: ms}
	}
	return bulk.Move{By: bulk.MoveNotBefore, Ms: r.instantOrMs("not_before")}
}

var timerFilterNames = []string{"state", "due_from", "due_to", "label", "id_prefix"}

// timerFilter reads {"state", "due_from", "due_to", "label", "id_prefix"}; given is false for one
// that says nothing.
func (r *reader) timerFilter(q *timer.Query) (given bool) {
	var seen field
	n := r.Open('{', "filter")
	for ; r.More(n, '}'); n++ {
		name := string(r.Key())
		at := slices.Index(timerFilterNames, name)
		if at < 0 && r.Err() == nil {
			r.fail(unknown([]byte(name), timerFilterNames))
		}
		if r.Err() != nil || !r.first(&seen, 1<<at, "filter.", []byte(name)) {
			return false
		}
		switch name {
		case "state":
			q.States = r.pendingStates()
			given = true
		case "due_from":
			q.FromMs = max(q.FromMs, r.instantOrMs("filter.due_from"))
			given = true
		case "due_to":
			if q.ToMs = r.instantOrMs("filter.due_to"); q.ToMs == 0 {
				q.FromMs, q.ToMs = 1, 1 // as in window
			}
			given = true
		case "label":
			q.Labels = r.labelOrLabels("filter.label")
			given = given || len(q.Labels) > 0
		case "id_prefix":
			if q.IDPrefix = r.Text("filter.id_prefix"); !validIDPrefix(q.IDPrefix) {
				r.fail(bad(badName, "filter.id_prefix: is nothing that an id can start with"))
			}
			given = given || q.IDPrefix != ""
		}
	}
	return given
}

// pendingStates reads a comma list, or a list, of the states in which a timer can be changed.
func (r *reader) pendingStates() (set uint8) {
	var names []string
	if r.Err() == nil && r.Peek() == '[' {
		r.Open('[', "filter.state")
		for n := 0; r.More(n, ']'); n++ {
			names = append(names, r.Text("filter.state"))
		}
	} else {
		names = strings.Split(r.Text("filter.state"), ",")
	}
	for _, name := range names {
		switch name {
		case "scheduled":
			set |= 1 << timer.Scheduled
		case "leased":
			set |= 1 << timer.Leased
		default:
			r.fail(bad(badRequest, "filter.state: must be scheduled or leased, or both; what has ended cannot be changed"))
		}
	}
	if set == 0 {
		r.fail(bad(badRequest, "filter.state: names no state"))
	}
	return set
}

func (rq *request) cancelTimers() *problem     { return rq.changeTimers(false) }
func (rq *request) rescheduleTimers() *problem { return rq.changeTimers(true) }

// changeTimers cancels or moves the timers that the body selects.
func (rq *request) changeTimers(reschedule bool) *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	r := rq.reader()
	b := r.bulk(reschedule)
	if r.Err() != nil {
		return r.problem()
	}
	nowMs := rq.s.nowMs()
	horizon := rq.s.cfg.Limits.Horizon.Milliseconds()
	latest := addMs(nowMs, horizon)
	if b.move.By == bulk.MoveShift && b.move.Ms > horizon || b.move.Ms > latest {
		return failf(422, "beyond_horizon", "the time is more than %d years ahead", int(rq.s.cfg.Limits.Horizon/(365*day)))
	}
	topic, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	b.query.Topic, b.query.WithoutPayload = topic.ID, true
	plan := bulk.CancelEach(topic.ID)
	if reschedule {
		plan = b.move.Each(topic.ID, latest)
	}
	dry, p := rq.dry()
	if p != nil {
		return p
	}
	return rq.bulkRun(&bulk.Update{Query: b.query, Plan: plan}, dry, nil)
}
