package api

import (
	"slices"

	"carillon/timer"
	"carillon/timer/bulk"
)

func (rq *request) listDead() *problem {
	q := deadQuery()
	var p *problem
	if name, given := rq.query.value("reason"); given {
		var ok bool
		if q.Reason, ok = reasonOf(name); !ok {
			return bad(badRequest, "query: "+reasonRule)
		}
	}
	if q.Labels, p = rq.query.labels(); p != nil {
		return p
	}
	if p := rq.window(q, "from", "to"); p != nil {
		return p
	}
	return rq.list(q)
}

const reasonRule = "reason must be one of max_attempts, expired, stopped, refused"

func deadQuery() *timer.Query {
	return &timer.Query{States: 1 << timer.Dead, ByEnd: true}
}

// selection names the timers of a redrive or purge, and the action.
type selection struct {
	ids      []string
	query    *timer.Query // nil when ids are given
	delayMs  int64
	callback *timerRequest // nil when none is given
}

var selectionFieldNames = []string{"ids", "filter", "all", "delay", "callback"}

// selection reads the body of a redrive (with delay and callback) or a purge.
func (r *reader) selection(redrive bool, maxIDs int) *selection {
	sel := &selection{}
	names := selectionFieldNames
	if !redrive {
		names = names[:3]
	}
	var given field
	filtered, all := false, false
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := string(r.Key())
		at := slices.Index(names, name)
		if at < 0 && r.Err() == nil {
			r.fail(unknown([]byte(name), names))
		}
		if r.Err() != nil || !r.first(&given, 1<<at, "", []byte(name)) {
			return nil
		}
		switch name {
		case "ids":
			sel.ids = r.ids(maxIDs)
		case "filter":
			sel.query, filtered = r.deadFilter()
		case "all":
			all = r.Boolean("all")
		case "delay":
			sel.delayMs = r.spanCode("delay", badTime)
		case "callback":
			sel.callback = &timerRequest{}
			r.callback(&sel.callback.spec.Callback, &sel.callback.given, &sel.callback.null)
			if null := sel.callback.null; null != 0 {
				r.fail(badf(badRequest, "%s: must not be null", null.name()))
			}
		}
	}
	r.End()
	const gIDs, gFilter = 1, 2
	switch {
	case r.Err() != nil:
		return nil
	case given&gIDs != 0 && (given&gFilter != 0 || all):
		r.fail(bad(badRequest, "give ids, or a filter, or all, not several"))
	case given&gIDs == 0 && !filtered && !all:
		r.fail(bad(badRequest, `give ids, or a filter that is not empty, or "all": true`))
	case given&gIDs == 0 && sel.query == nil:
		sel.query = deadQuery()
	}
	return sel
}

func (r *reader) ids(most int) []string {
	out := []string{}
	n := r.Open('[', "ids")
	for ; r.More(n, ']'); n++ {
		id := r.Text("ids")
		if r.Err() == nil && !validID(id) {
			r.fail(bad(badName, "ids: each "+idRule))
		}
		if n == most {
			r.fail(failf(413, tooLarge, "ids: more than %d", most))
		}
		if r.Err() != nil {
			return nil
		}
		out = append(out, id)
	}
	return out
}

// deadFilter reads {"reason", "from", "to", "label"}; given is false for one that says nothing.
func (r *reader) deadFilter() (q *timer.Query, given bool) {
	q = deadQuery()
	var seen field
	names := []string{"reason", "from", "to", "label"}
	n := r.Open('{', "filter")
	for ; r.More(n, '}'); n++ {
		name := string(r.Key())
		at := slices.Index(names, name)
		if at < 0 && r.Err() == nil {
			r.fail(unknown([]byte(name), names))
		}
		if r.Err() != nil || !r.first(&seen, 1<<at, "filter.", []byte(name)) {
			return q, false
		}
		switch name {
		case "reason":
			var ok bool
			if q.Reason, ok = reasonOf(r.Text("filter.reason")); !ok {
				r.fail(bad(badRequest, "filter: "+reasonRule))
			}
			given = true
		case "from":
			q.FromMs = max(q.FromMs, r.instantOrMs("filter.from"))
			given = true
		case "to":
			if q.ToMs = r.instantOrMs("filter.to"); q.ToMs == 0 {
				q.FromMs, q.ToMs = 1, 1 // as in window
			}
			given = true
		case "label":
			q.Labels = r.labelOrLabels("filter.label")
			given = given || len(q.Labels) > 0
		}
	}
	return q, given
}

func (r *reader) instantOrMs(name string) int64 {
	if r.Err() == nil && r.Peek() != '"' {
		ms, ok := r.timeInteger(name)
		switch {
		case ok && inSeconds(ms):
			r.fail(meantMs(name))
		case ok && ms >= 0:
			return ms
		}
	} else if ms, ok := parseInstant(r.Text(name)); ok && ms >= 0 {
		return ms
	}
	r.fail(badf(badTime, "%s: "+instantRule, name))
	return 0
}

// labelOrLabels reads one label or a list of them.
func (r *reader) labelOrLabels(name string) []string {
	if r.Err() == nil && r.Peek() == '[' {
		return r.labels(name)
	}
	l := r.Text(name)
	if !validLabel(l) {
		r.fail(badf(badRequest, "%s: each 1–64 of A-Z a-z 0-9 _ . : = -", name))
	}
	return []string{l}
}

func (rq *request) redriveDead() *problem { return rq.changeDead(timer.Redrive) }
func (rq *request) purgeDead() *problem   { return rq.changeDead(timer.Purge) }

// changeDead redrives or purges the timers that the body selects.
func (rq *request) changeDead(kind timer.Kind) *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	r := rq.reader()
	sel := r.selection(kind == timer.Redrive, rq.s.cfg.Limits.BatchOps)
	if r.Err() != nil {
		return r.problem()
	}
	topic, p := rq.findTopic(false)
	if p != nil {
		return p
	}
	cmd := timer.Command{Kind: kind, Topic: topic.ID}
	nowMs := rq.s.nowMs()
	if sel.delayMs > 0 {
		if p := rq.s.reckons(); p != nil {
			return p
		}
		if cmd.DueMs = addMs(nowMs, sel.delayMs); sel.delayMs > rq.s.cfg.Limits.Horizon.Milliseconds() {
			return fail(422, "beyond_horizon", "delay: too long")
		}
	}
	if cb := sel.callback; cb != nil {
		if topic.Policy.Pull {
			return fail(422, badPolicy, "callback: the topic is pulled, it calls nobody")
		}
		if anyRedacted(cb.spec.Callback.Headers) {
			return badf(badHeader, "callback.headers: %s cannot be given to several timers", redacted)
		}
		if p := rq.s.checkURL(cb.spec.Callback.URL); p != nil {
			return p
		}
		cmd.Patch = cb.asPatch()
		cmd.Patch.BindTo(topic.Policy.Callback.URL)
	}
	if sel.query == nil {
		switch dry, p := rq.dry(); {
		case p != nil:
			return p
		case dry:
			return rq.tryNamed(topic, sel.ids)
		}
		return rq.changeNamed(topic, &cmd, sel.ids)
	}
	sel.query.Topic = topic.ID
	return rq.bulkRun(sel.query, func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		one := cmd
		one.ID, one.IfMatch = m.ID, m.Version // an id may have several dead letters
		return &one, bulk.Change
	})
}

// changeNamed does one command to the last dead letter of each id.
func (rq *request) changeNamed(topic *timer.Topic, cmd *timer.Command, ids []string) *problem {
	ops := make([]Op, len(ids))
	cmds := make([]timer.Command, len(ids))
	for i, id := range ids {
		cmds[i] = *cmd
		cmds[i].ID = id
		ops[i] = Op{Shard: timer.ShardOf(topic, id, rq.s.cfg.Engine.Shards()), Command: &cmds[i], Brief: true}
	}
	if len(ops) > 0 {
		rq.s.cfg.Engine.DoAll(rq.s.base, ops)
	}
	changed := int64(0)
	for i := range ops {
		if ops[i].Err != nil {
			return engineFault(ops[i].Err)
		}
		if ops[i].Result.Code == timer.OK {
			changed++
		}
	}
	rq.swept(int64(len(ids)), changed, int64(len(ids))-changed)
	return nil
}
