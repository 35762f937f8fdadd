// Package deadletters answers for the dead letters of a topic: pages of them, redrives and purges.
package deadletters

import (
	"errors"
	"sync"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/transport/api/backend"
	"carillon/transport/api/bulkrun"
	"carillon/transport/api/spec"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"
)

// List answers with a page of a topic's dead letters, by their end.
func List(rq *web.Request) *web.Problem {
	q := deadQuery()
	if name, given := rq.Query.Value("reason"); given {
		var ok bool
		if q.Reason, ok = backend.ReasonOf(name); !ok {
			rq.Query.Reject(web.BadRequest, "query: "+timers.ReasonRule)
		}
	}
	q.Labels = rq.Query.Labels()
	q.FromMs, q.ToMs = rq.Query.Window("from", "to")
	return timers.Page(rq, q)
}

// Redrive and Purge bring dead letters back, or delete them.
func Redrive(rq *web.Request) *web.Problem { return changeDead(rq, timer.Redrive) }
func Purge(rq *web.Request) *web.Problem   { return changeDead(rq, timer.Purge) }

// changeDead redrives or purges the timers that the body selects.
func changeDead(rq *web.Request, kind timer.Kind) *web.Problem {
	r := rq.Reader()
	sel := readSelection(r, kind == timer.Redrive, rq.Limits.BatchOps)
	if r.Err() != nil {
		return r.Problem()
	}
	topic, p := rq.FindTopic(false)
	if p != nil {
		return p
	}
	cmd := timer.Command{Kind: kind, Topic: topic.ID}
	nowMs := rq.NowMs()
	if sel.delayMs > 0 {
		if p := rq.KnowsNow(); p != nil {
			return p
		}
		if cmd.DueMs = web.AddMs(nowMs, sel.delayMs); sel.delayMs > rq.Limits.Horizon.Milliseconds() {
			return rq.Limits.TooFar()
		}
	}
	if cb := sel.callback; cb != nil {
		if topic.Policy.Pull {
			return web.Fail(422, web.BadPolicy, "callback: the topic is pulled, it calls nobody")
		}
		if spec.AnyRedacted(cb.Spec.Callback.Headers) {
			return web.Badf(web.BadHeader, "callback.headers: %s cannot be given to several timers", spec.Redacted)
		}
		if p := rq.CheckURL(cb.Spec.Callback.URL); p != nil {
			return p
		}
		cmd.Patch = cb
		cmd.Patch.BindTo(topic.Policy.Callback.URL)
	}
	sel.needsURL = kind == timer.Redrive && topic.Policy.CallsNobody() && (cmd.Patch == nil || !cmd.Patch.URL)
	switch {
	case sel.query != nil:
		sel.query.Topic = topic.ID
		skips := &bulkrun.Skips{}
		return bulkrun.Run(rq, &bulk.Update{Query: *sel.query, Plan: sel.plan(&cmd), Skip: skips.Add}, skips)
	case rq.DryRun:
		return tryNamed(rq, topic, kind, sel)
	case sel.byUID:
		return changeByUID(rq, topic, &cmd, sel)
	}
	return changeNamed(rq, topic, &cmd, sel)
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

// walkNamed is a walk over the shards of named dead letters: no index leads to those of a uid, or
// to those that are not the last of their id. found has, by whole id or by uid, what it has met; of
// several dead letters of an id the newest.
func walkNamed(rq *web.Request, topic *timer.Topic, sel *selection, plan bulk.Plan) (b *bulk.Update, found map[string]timer.Ref) {
	shards, wanted := rq.Engine.Shards(), map[string]bool{}
	found = map[string]timer.Ref{}
	b = &bulk.Update{Query: *deadQuery(), Shards: map[timer.ShardID]bool{}, Of: shards}
	b.Query.Topic, b.Query.WithoutPayload = topic.ID, true
	for _, name := range sel.names {
		wanted[name] = true
		if id, _, _, _ := timer.ParseUID(name); sel.byUID {
			for _, descendant := range rq.Core.Timers.Descendants(id) {
				b.Shards[descendant] = true
			}
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
			name = bulkrun.UIDOf(m)
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

func changeByUID(rq *web.Request, topic *timer.Topic, cmd *timer.Command, sel *selection) *web.Problem {
	skips := &bulkrun.Skips{}
	b, found := walkNamed(rq, topic, sel, sel.plan(cmd))
	b.Skip = skips.Add
	if p := bulkrun.Do(rq, b); p != nil {
		return p
	}
	for _, name := range sel.names {
		if _, met := found[name]; !met {
			skips.AddName("uid", name, timer.Skipped)
		}
	}
	n, changed := int64(len(sel.names)), b.Changed.Load()
	return bulkrun.Answer(rq, n, changed, n-changed, skips, nil)
}

// findNamed looks for named dead letters and changes none. The function that it returns gives the
// one of a name.
func findNamed(rq *web.Request, topic *timer.Topic, sel *selection) (of func(name string) (timer.Ref, bool), p *web.Problem) {
	b, found := walkNamed(rq, topic, sel, func(*timer.Ref) (*timer.Command, bulk.Decision) { return nil, bulk.Pass })
	if p := bulkrun.Do(rq, b); p != nil {
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
func tryNamed(rq *web.Request, topic *timer.Topic, kind timer.Kind, sel *selection) *web.Problem {
	shards, would := rq.Engine.Shards(), bulkrun.DryRun{}
	skips := &bulkrun.Skips{}
	of, p := findNamed(rq, topic, sel)
	if p != nil {
		return p
	}
	counted := map[string]bool{} // by uid: a plain id and a whole one may lead to the same
	for _, name := range sel.names {
		m, met := of(name)
		switch {
		case !met || counted[bulkrun.UIDOf(&m)]:
			skips.AddName(sel.field(), name, timer.Skipped)
			continue
		case sel.needsURL && m.NoURL:
			skips.Add(&m, timer.NoCallback)
			continue
		}
		t, err := rq.Core.Timers.Timer(rq.Base, timer.ShardOf(topic, m.ID, shards), topic.ID, m.ID)
		if err != nil {
			return web.Fault(err)
		}
		if kind == timer.Redrive && t != nil && !t.State.Over() && (t.Repeat == nil || t.Tag != m.Tag) {
			skips.Add(&m, timer.InUse)
			continue
		}
		would.Count(&m)
		counted[bulkrun.UIDOf(&m)] = true
	}
	n := int64(len(sel.names))
	return bulkrun.Answer(rq, n, 0, n-would.Changed, skips, &would)
}

// changeNamed does one command to the last dead letter of each id. In a topic with a key, one that
// its plain id does not lead to may be of before the topic had it.
func changeNamed(rq *web.Request, topic *timer.Topic, cmd *timer.Command, sel *selection) *web.Problem {
	ids, of := sel.names, func(string) (m timer.Ref, met bool) { return m, false }
	if sel.needsURL {
		var p *web.Problem
		if of, p = findNamed(rq, topic, sel); p != nil {
			return p
		}
	}
	codes := make([]timer.Code, len(ids))
	for i, id := range ids {
		if m, met := of(id); met && m.NoURL {
			codes[i] = timer.NoCallback
		}
	}
	var failed error
	for _, plain := range []bool{false, true} {
		var ops []timer.Op
		var places []int
		for i, id := range ids {
			full, keyed := topic.Policy.FullID(id)
			if codes[i] != 0 && !(plain && keyed && codes[i] == timer.Skipped) {
				continue
			}
			one := *cmd
			if one.ID = full; plain {
				one.ID = id
			}
			ops = append(ops, timer.Op{Shard: timer.ShardOf(topic, one.ID, rq.Engine.Shards()), Command: &one, Brief: true})
			places = append(places, i)
		}
		if len(ops) > 0 {
			rq.Core.Timers.DoAll(rq.Base, ops)
		}
		for n, i := range places {
			codes[i] = ops[n].Result.Code
			if err := ops[n].Err; err != nil && (failed == nil || errors.Is(failed, timer.ErrNoLeader)) {
				failed = err // rather one after which a change may have been made
			}
		}
		if failed != nil {
			break
		}
	}
	changed, skips := int64(0), &bulkrun.Skips{}
	for i, code := range codes {
		if code == timer.OK {
			changed++
		} else {
			skips.AddName("id", ids[i], code)
		}
	}
	if failed != nil {
		return bulkrun.Unfinished(rq, web.Fault(failed), changed)
	}
	return bulkrun.Answer(rq, int64(len(ids)), changed, int64(len(ids))-changed, skips, nil)
}
