package api

import (
	"slices"
	"sync"

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
	names    []string // ids or uids
	byUID    bool
	query    *timer.Query // nil when names are given
	delayMs  int64
	callback *timerRequest // nil when none is given
	// needsURL: of a redrive that gives no URL, in a topic that has none. Dead letters without a URL
	// of their own are skipped.
	needsURL bool
}

var selectionFieldNames = []string{"ids", "uids", "filter", "all", "delay", "callback"}

// selection reads the body of a redrive (with delay and callback) or a purge.
func (r *reader) selection(redrive bool, maxIDs int) *selection {
	sel := &selection{}
	names := selectionFieldNames
	if !redrive {
		names = names[:4]
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
			sel.names = r.names("ids", maxIDs, validID, idRule)
		case "uids":
			sel.names, sel.byUID = r.names("uids", maxIDs, validUID, "is a uid as answers show it"), true
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
	const gIDs, gUIDs, gFilter = 1, 2, 4
	named := given & (gIDs | gUIDs)
	switch {
	case r.Err() != nil:
		return nil
	case named != 0 && (given&gFilter != 0 || all) || named == gIDs|gUIDs:
		r.fail(bad(badRequest, "give ids, or uids, or a filter, or all, not several"))
	case named == 0 && !filtered && !all:
		r.fail(bad(badRequest, `give ids, or uids, or a filter that is not empty, or "all": true`))
	case named == 0 && sel.query == nil:
		sel.query = deadQuery()
	}
	return sel
}

// names reads a list of ids or of uids.
func (r *reader) names(field string, most int, valid func(string) bool, rule string) []string {
	out := []string{}
	n := r.Open('[', field)
	for ; r.More(n, ']'); n++ {
		name := r.Text(field)
		if r.Err() == nil && !valid(name) {
			r.fail(badf(badName, "%s: each %s", field, rule))
		}
		if n == most {
			r.fail(failf(413, tooLarge, "%s: more than %d", field, most))
		}
		if r.Err() != nil {
			return nil
		}
		out = append(out, name)
	}
	return out
}

func validUID(s string) bool {
	_, _, _, ok := timer.ParseUID(s)
	return ok
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
	sel.needsURL = kind == timer.Redrive && topic.Policy.CallsNobody() && (cmd.Patch == nil || !cmd.Patch.URL)
	dry, p := rq.dry()
	switch {
	case p != nil:
		return p
	case sel.query != nil:
		sel.query.Topic = topic.ID
		return rq.changeSelected(topic, &cmd, sel, dry)
	case dry:
		return rq.tryNamed(topic, kind, sel)
	case sel.byUID:
		return rq.changeByUID(topic, &cmd, sel)
	}
	return rq.changeNamed(topic, &cmd, sel)
}

// plan does one command to each dead letter that a walk meets. An id may have several of them.
func (s *selection) plan(cmd *timer.Command) bulk.Plan {
	return func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		if s.needsURL && m.NoURL {
			return nil, bulk.NoURL
		}
		one := *cmd
		one.ID, one.Seq = m.ID, m.Seq
		return &one, bulk.Change
	}
}

// changeSelected does one command to the dead letters that a query selects.
func (rq *request) changeSelected(topic *timer.Topic, cmd *timer.Command, sel *selection, dry bool) *problem {
	skips := &skipList{topic: topic, shards: rq.s.cfg.Engine.Shards()}
	return rq.bulkRun(&bulk.Update{Query: *sel.query, Plan: sel.plan(cmd), Skip: skips.add}, dry, skips)
}

// walkNamed is a walk over the shards of named dead letters: no index leads to those of a uid, or
// to those that are not the last of their id. found has, by whole id or by uid, what it has met; of
// several dead letters of an id the newest.
func (rq *request) walkNamed(topic *timer.Topic, sel *selection, plan bulk.Plan) (b *bulk.Update, found map[string]timer.Ref) {
	shards, wanted := rq.s.cfg.Engine.Shards(), map[string]bool{}
	found = map[string]timer.Ref{}
	b = &bulk.Update{Query: *deadQuery(), Shards: map[timer.ShardID]bool{}}
	b.Query.Topic, b.Query.WithoutPayload = topic.ID, true
	for _, name := range sel.names {
		wanted[name] = true
		if id, _, _, _ := timer.ParseUID(name); sel.byUID {
			b.Shards[id] = true
			continue
		}
		full, _ := topic.Policy.FullID(name)
		wanted[full] = true
		b.Shards[timer.ShardOf(topic, name, shards)] = true
		b.Shards[timer.ShardOf(topic, full, shards)] = true
	}
	var mu sync.Mutex
	b.Plan = func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		name := m.ID
		if sel.byUID {
			name = uidOf(topic, shards, m)
		}
		if !wanted[name] {
			return nil, bulk.Pass
		}
		mu.Lock()
		if found[name].Seq < m.Seq {
			found[name] = *m
		}
		mu.Unlock()
		return plan(m)
	}
	return b, found
}

// changeByUID does one command to the dead letters of some uids.
func (rq *request) changeByUID(topic *timer.Topic, cmd *timer.Command, sel *selection) *problem {
	skips := &skipList{topic: topic, shards: rq.s.cfg.Engine.Shards()}
	b, found := rq.walkNamed(topic, sel, sel.plan(cmd))
	b.Skip = skips.add
	if p := rq.bulkDone(b); p != nil {
		return p
	}
	for _, name := range sel.names {
		if _, met := found[name]; !met {
			skips.addName("uid", name, timer.Skipped)
		}
	}
	n, changed := int64(len(sel.names)), b.Changed.Load()
	rq.swept(n, changed, n-changed, skips)
	return nil
}

// findNamed looks for named dead letters and changes none. The function that it returns gives the
// one of a name.
func (rq *request) findNamed(topic *timer.Topic, sel *selection) (of func(name string) (timer.Ref, bool), p *problem) {
	b, found := rq.walkNamed(topic, sel, func(*timer.Ref) (*timer.Command, bulk.Decision) { return nil, bulk.Pass })
	if p := rq.bulkDone(b); p != nil {
		return nil, p
	}
	return func(name string) (timer.Ref, bool) {
		if full, keyed := topic.Policy.FullID(name); keyed && !sel.byUID {
			if m, met := found[full]; met { // goes before one of the time when the topic had no key
				return m, true
			}
		}
		m, met := found[name]
		return m, met
	}, nil
}

// tryNamed looks which of the names are dead letters that could be changed, and changes none.
func (rq *request) tryNamed(topic *timer.Topic, kind timer.Kind, sel *selection) *problem {
	shards, trial := rq.s.cfg.Engine.Shards(), dryRun{}
	skips := &skipList{topic: topic, shards: shards}
	of, p := rq.findNamed(topic, sel)
	if p != nil {
		return p
	}
	for _, name := range sel.names {
		m, met := of(name)
		switch {
		case !met:
			skips.addName(sel.field(), name, timer.Skipped)
			continue
		case sel.needsURL && m.NoURL:
			skips.add(&m, timer.NoCallback)
			continue
		}
		t, err := rq.core.Timers.Timer(rq.s.base, timer.ShardOf(topic, m.ID, shards), topic.ID, m.ID)
		if err != nil {
			return engineFault(err)
		}
		if kind == timer.Redrive && t != nil && !t.State.Over() && (t.Repeat == nil || t.Tag != m.Tag) {
			skips.add(&m, timer.InUse)
			continue
		}
		trial.count(&m)
	}
	n := int64(len(sel.names))
	trial.answer(rq, n, n-trial.changed, skips)
	return nil
}

// field is the member of an answer that a name of the selection goes to.
func (s *selection) field() string {
	if s.byUID {
		return "uid"
	}
	return "id"
}

// changeNamed does one command to the last dead letter of each id. In a topic with a key, one that
// its plain id does not lead to may be of before the topic had it.
func (rq *request) changeNamed(topic *timer.Topic, cmd *timer.Command, sel *selection) *problem {
	ids, of := sel.names, func(string) (m timer.Ref, met bool) { return m, false }
	if sel.needsURL {
		var p *problem
		if of, p = rq.findNamed(topic, sel); p != nil {
			return p
		}
	}
	codes := make([]timer.Code, len(ids))
	var before []int // the places of those that are asked for once more
	all := make([]int, 0, len(ids))
	for i, id := range ids {
		if m, met := of(id); met && m.NoURL {
			codes[i] = timer.NoCallback
		} else {
			all = append(all, i)
		}
	}
	if p := rq.changeEach(topic, cmd, all, func(i int) (id string) { id, _ = topic.Policy.FullID(ids[i]); return id }, codes); p != nil {
		return p
	}
	for i, id := range ids {
		if _, keyed := topic.Policy.FullID(id); keyed && codes[i] == timer.Skipped {
			before = append(before, i)
		}
	}
	if p := rq.changeEach(topic, cmd, before, func(i int) string { return ids[i] }, codes); p != nil {
		return p
	}
	changed, skips := int64(0), &skipList{}
	for i, code := range codes {
		if code == timer.OK {
			changed++
		} else {
			skips.addName("id", ids[i], code)
		}
	}
	rq.swept(int64(len(ids)), changed, int64(len(ids))-changed, skips)
	return nil
}

// changeEach does one command to the timers at some places, and puts the codes there.
func (rq *request) changeEach(topic *timer.Topic, cmd *timer.Command, places []int, id func(int) string, codes []timer.Code) *problem {
	if len(places) == 0 {
		return nil
	}
	ops := make([]timer.Op, len(places))
	for n, i := range places {
		one := *cmd
		one.ID = id(i)
		ops[n] = timer.Op{Shard: timer.ShardOf(topic, one.ID, rq.s.cfg.Engine.Shards()), Command: &one, Brief: true}
	}
	rq.core.Timers.DoAll(rq.s.base, ops)
	for n, i := range places {
		if ops[n].Err != nil {
			return engineFault(ops[n].Err)
		}
		codes[i] = ops[n].Result.Code
	}
	return nil
}
