package timers

import (
	"strings"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/timer/duration"
	"carillon/transport/api/backend"
	"carillon/transport/api/bulkrun"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// bulkRequest is the body of a change to all timers that a filter selects.
type bulkRequest struct {
	query timer.Query
	move  bulk.Move
	at    spec.When // of a move to one time
}

// Fields of a bulk change's body; fAt and fAtMs are those of a timer.
const (
	fFilter web.Fields = 1 << (40 + iota)
	fAll
	fShift
	fNotBefore

	moveFields = fShift | spec.FAt | spec.FAtMs | spec.FAtLocal | fNotBefore
)

// bulkFields are of a change that moves timers; the first two, of any.
var bulkFields = []string{"filter", "all", "shift", "at", "at_ms", "at_local", "zone", "not_before"}
var bulkBits = []web.Fields{fFilter, fAll, fShift, spec.FAt, spec.FAtMs, spec.FAtLocal, spec.FZone, fNotBefore}

// readBulk reads {"filter", "all"} and, for a reschedule, one of "shift", "at", "at_ms", "at_local"
// with "zone", "not_before".
func readBulk(r *web.Reader, reschedule bool) *bulkRequest {
	b := &bulkRequest{}
	b.query.States = 1<<timer.Scheduled | 1<<timer.Leased
	var given web.Fields
	filtered, all, names := false, false, bulkFields
	if !reschedule {
		names = names[:2]
	}
	r.Object("body", names, func(i int) {
		f := bulkBits[i]
		given |= f
		switch f {
		case fFilter:
			filtered = ReadFilter(r, &b.query, []string{"state", "due_from", "due_to", "label", "id_prefix"})
		case fAll:
			all = r.Boolean("all")
		case spec.FZone:
			b.at.Zone = spec.ReadZone(r, "zone", web.BadTime)
		case spec.FAt, spec.FAtMs, spec.FAtLocal:
			b.move.By = bulk.MoveAt
			spec.ReadWhen(r, &b.at, f)
		case fShift:
			b.move = bulk.Move{By: bulk.MoveShift}
			var ok bool
			if b.move.Ms, ok = web.ParseSpan(r.TimeText("shift")); !ok || b.move.Ms == 0 {
				r.Reject(web.Bad(web.BadTime, `shift: must be a duration other than 0, like "+1h" or "-2d"; the units are `+duration.Units))
			}
		case fNotBefore:
			b.move = bulk.Move{By: bulk.MoveNotBefore, Ms: r.InstantOrMs("not_before")}
		}
	})
	r.End()
	switch moves := given & moveFields; {
	case r.Err() != nil:
	case reschedule && moves == 0:
		r.Reject(web.Bad(web.BadTime, "a time is required: one of shift, at, at_ms, at_local, not_before"))
	case moves&(moves-1) != 0:
		r.Reject(web.Bad(web.BadTime, "give one of shift, at, at_ms, at_local, not_before, not several"))
	case !filtered && !all:
		r.Reject(web.Bad(web.BadRequest, `give a filter that is not empty, or "all": true`))
	default:
		r.Reject(b.at.Resolve(given))
	}
	if b.move.By == bulk.MoveAt {
		b.move.Ms = b.at.Ms
	}
	return b
}

// ReasonRule is what the reason of a dead letter may be, for faults.
const ReasonRule = "reason must be one of max_attempts, expired, stopped, refused"

// ReadFilter reads a filter, an object with some of these names; given is false for one that
// selects nothing.
func ReadFilter(r *web.Reader, q *timer.Query, names []string) (given bool) {
	r.Object("filter", names, func(i int) {
		some, name := true, "filter."+names[i]
		switch names[i] {
		case "state":
			q.States = readPendingStates(r)
		case "reason":
			var ok bool
			if q.Reason, ok = backend.ReasonOf(r.Text(name)); !ok {
				r.Reject(web.Bad(web.BadRequest, "filter: "+ReasonRule))
			}
		case "due_from", "from":
			q.FromMs = max(q.FromMs, r.InstantOrMs(name))
		case "due_to", "to":
			if q.ToMs = r.InstantOrMs(name); q.ToMs == 0 {
				q.FromMs, q.ToMs = 1, 1 // as in window
			}
		case "label":
			q.Labels = r.LabelOrLabels(name)
			some = len(q.Labels) > 0
		case "id_prefix":
			if q.IDPrefix = r.Text(name); !web.ValidIDPrefix(q.IDPrefix) {
				r.Reject(web.Bad(web.BadName, name+": is nothing that an id can start with"))
			}
			some = q.IDPrefix != ""
		}
		given = given || some
	})
	return given
}

// readPendingStates reads a comma list, or a list, of the states in which a timer can be changed.
func readPendingStates(r *web.Reader) (set uint8) {
	var names []string
	if r.Err() == nil && r.Peek() == '[' {
		names = r.Texts("filter.state", func(int, string) *web.Problem { return nil })
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
			r.Reject(web.Bad(web.BadRequest, "filter.state: must be scheduled or leased, or both; what has ended cannot be changed"))
		}
	}
	if set == 0 {
		r.Reject(web.Bad(web.BadRequest, "filter.state: names no state"))
	}
	return set
}

// CancelSelected, RescheduleSelected, PauseSelected and ResumeSelected change all timers that a
// filter selects.
func CancelSelected(rq *web.Request) *web.Problem     { return changeTimers(rq, bulk.CancelEach) }
func RescheduleSelected(rq *web.Request) *web.Problem { return changeTimers(rq, nil) }
func PauseSelected(rq *web.Request) *web.Problem      { return changeTimers(rq, bulk.PauseEach) }
func ResumeSelected(rq *web.Request) *web.Problem     { return changeTimers(rq, bulk.ResumeEach) }

// changeTimers changes the timers that the body selects, each by the plan; nil: it moves them
// by the body's rule.
func changeTimers(rq *web.Request, each func(timer.TopicID) bulk.Plan) *web.Problem {
	reschedule := each == nil
	r := rq.Reader()
	b := readBulk(r, reschedule)
	if r.Err() != nil {
		return r.Problem()
	}
	nowMs := rq.NowMs()
	horizon := rq.Limits.Horizon.Milliseconds()
	latest := web.AddMs(nowMs, horizon)
	if b.move.By == bulk.MoveShift && b.move.Ms > horizon || b.move.Ms > latest {
		return rq.Limits.TooFar()
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	b.query.Topic, b.query.WithoutPayload = topic.ID, true
	plan := b.move.Each(topic.ID, latest)
	if !reschedule {
		plan = each(topic.ID)
	}
	return bulkrun.Run(rq, &bulk.Update{Query: b.query, Plan: plan}, nil)
}
