package api

import (
	"bytes"
	"time"

	"carillon/timer"
)

// operation is one line of a batch, with its outcome.
type operation struct {
	in      *timerRequest
	verb    verb
	problem *problem // it failed; the fields below are then empty
	result  timer.Result
	topic   *timer.Topic
}

// batch does many operations on timers of one topic, in order for each id. It is not atomic: a bad
// operation fails in its place.
func (rq *request) batch() *problem {
	ndjson, p := rq.mediaType()
	if p != nil {
		return p
	}
	brief, p := rq.query.boolean("brief", false)
	if p != nil {
		return p
	}
	body := rq.body
	var ops []operation
	if ndjson {
		ops, p = rq.readLines(body)
	} else {
		ops, p = rq.readOps(body)
	}
	if p != nil {
		return p
	}
	if !brief {
		rq.room(rq.s.cfg.Limits.BatchAnswer)
	}
	rq.run(ops, brief)
	rq.auditOps(ops)
	if ndjson {
		rq.answerLines(ops, brief)
		return nil
	}
	b := append(rq.out(), `{"results":`...)
	list := array{b: b}
	for i := range ops {
		list.next()
		list.b = rq.appendResult(list.b, &ops[i], brief)
	}
	rq.json(200, append(list.end(), '}'))
	return nil
}

func (rq *request) tooMany() *problem {
	return failf(413, tooLarge, "more than %d operations", rq.s.cfg.Limits.BatchOps)
}

// readOps reads {"ops": […]}. A break of the grammar fails the whole; any other fault, its
// operation.
func (rq *request) readOps(body []byte) ([]operation, *problem) {
	r := rq.readerOf(body)
	var ops []operation
	var given field
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if string(name) != "ops" && r.Err() == nil {
			r.fail(unknown(name, []string{"ops"}))
		}
		if !r.first(&given, 1, "", name) {
			break
		}
		for k := r.Open('[', "ops"); r.More(k, ']'); k++ {
			if k == rq.s.cfg.Limits.BatchOps {
				return nil, rq.tooMany()
			}
			start := r.Pos()
			op := rq.readOp(r)
			// The rest of this one: by its own grammar.
			if p := r.problem(); p != nil && r.Skip(start) {
				op = operation{problem: p}
			}
			ops = append(ops, op)
		}
	}
	r.End()
	if r.Err() == nil && given == 0 {
		r.fail(bad(badRequest, "ops: is required"))
	}
	return ops, r.problem()
}

// readLines reads one operation a line.
func (rq *request) readLines(body []byte) ([]operation, *problem) {
	body = bytes.TrimSuffix(body, []byte{'\n'})
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	most := rq.s.cfg.Limits.BatchOps
	n := 1 + bytes.Count(body, []byte{'\n'})
	if n > most {
		return nil, rq.tooMany()
	}
	ops := make([]operation, 0, n)
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		r := rq.readerOf(line)
		op := rq.readOp(r)
		r.End()
		if p := r.problem(); p != nil {
			op = operation{problem: p}
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// readOp reads one operation and fills in its command. A fault in r means that the operation is to
// be dropped; one of the operation as a whole goes into its place.
func (rq *request) readOp(r *reader) operation {
	in := &timerRequest{}
	r.input(in)
	if r.Err() != nil {
		return operation{}
	}
	op := operation{in: in, verb: verbOf(in.op)}
	switch {
	case in.given&fOp == 0:
		op.problem = bad(badRequest, "op: is required")
	case op.verb == noVerb:
		op.problem = bad(badRequest, "op: must be one of add, put, patch, cancel, fire")
	default:
		if op.problem = rq.needs(verbs[op.verb].scope); op.problem == nil {
			op.problem = in.check(op.verb, true)
		}
	}
	return op
}

// run does the operations: together as far as they go, but one that has to read its timer first by
// itself, after those before it.
func (rq *request) run(ops []operation, brief bool) {
	nowMs := rq.s.nowMs()
	from := 0
	for i := range ops {
		op := &ops[i]
		if op.problem == nil {
			op.problem = rq.chargeVerb(op.verb)
		}
		if op.problem != nil {
			continue
		}
		if op.verb != vAdd && anyRedacted(op.in.spec.Callback.Headers) {
			rq.runTogether(ops[from:i], brief)
			op.result, op.topic, op.problem = rq.change(op.in, op.verb, brief)
			from = i + 1
			continue
		}
		op.problem = rq.prepare(op.in, op.verb, nowMs)
	}
	rq.runTogether(ops[from:], brief)
}

// runTogether has the prepared operations decided, those that found the topic closing once more,
// within bounds.
func (rq *request) runTogether(ops []operation, brief bool) {
	todo := make([]*operation, 0, len(ops))
	for i := range ops {
		if ops[i].problem == nil {
			todo = append(todo, &ops[i])
		}
	}
	for try := 0; len(todo) > 0; try++ {
		todo = rq.attempt(todo, brief)
		if len(todo) == 0 {
			return
		}
		if try == topicTries-1 || !rq.s.sleep(2*time.Millisecond<<try) {
			break
		}
	}
	for _, op := range todo {
		op.problem = refusal(timer.TopicClosed)
	}
}

// attempt has operations decided and returns those to try again: their topic was closing, or there is
// no timer with the topic's key.
func (rq *request) attempt(todo []*operation, brief bool) (stale []*operation) {
	todo = rq.withoutRefused(todo)
	send := make([]timer.Op, 0, len(todo))
	sent := make([]*operation, 0, len(todo))
	// Why the topic cannot be made: asking again for each operation would tell nothing new.
	var refused *problem
	for _, op := range todo {
		create := op.verb == vAdd || op.verb == vPut
		if create && refused != nil {
			op.problem = refused
			continue
		}
		t, p := rq.findTopic(create)
		if p != nil && create {
			refused = p
		}
		if p == nil {
			p = op.in.onto(t, op.verb)
		}
		if p != nil {
			op.problem = p
			continue
		}
		op.topic = t
		send = append(send, timer.Op{Shard: op.in.shard(rq, t), Command: &op.in.cmd, Brief: brief || op.verb == vCancel, Room: rq.shardRoom()})
		sent = append(sent, op)
	}
	if len(send) == 0 {
		return nil
	}
	send, sent = rq.withoutMade(send, sent)
	if len(send) == 0 {
		return nil
	}
	rq.core.Timers.DoAll(rq.s.base, send)
	for i, op := range sent {
		switch {
		case send[i].Err != nil:
			op.problem = engineFault(send[i].Err)
			rq.s.logCause(op.problem)
		case send[i].Result.Code == timer.TopicClosed || op.in.again(send[i].Result.Code):
			stale = append(stale, op)
		default:
			op.result = send[i].Result
		}
	}
	return stale
}

// withoutRefused answers for the adds and puts of a topic that is not there, and that none of them
// may make: it would refuse them all. It leaves the other operations, and all where there is a
// topic.
func (rq *request) withoutRefused(todo []*operation) (left []*operation) {
	if _, here := rq.core.Topics.Here(rq.topic); here {
		return todo
	}
	refused := map[*operation]*problem{}
	for _, op := range todo {
		if op.verb != vAdd && op.verb != vPut {
			continue
		}
		if refused[op] = rq.refusedByNew(op.in, op.verb); refused[op] == nil {
			return todo
		}
	}
	if len(refused) == 0 {
		return todo
	}
	t, p := rq.lateTopic(nil)
	if t != nil {
		return todo
	}
	for _, op := range todo {
		if refused[op] == nil {
			left = append(left, op)
		} else if op.problem = p; p == nil {
			op.problem = refused[op]
		}
	}
	return left
}

// withoutMade answers for the adds that were made before, and leaves the rest.
func (rq *request) withoutMade(send []timer.Op, sent []*operation) ([]timer.Op, []*operation) {
	var past []*operation
	for _, op := range sent {
		if rq.maybeMade(op.in, op.topic, op.verb) {
			past = append(past, op)
		}
	}
	if len(past) == 0 {
		return send, sent
	}
	each(len(past), func(i int) {
		op := past[i]
		switch done, err := rq.madeBefore(op.in, op.topic); {
		case err != nil:
			op.problem = engineFault(err)
			rq.s.logCause(op.problem)
		case done != nil:
			op.result = timer.Result{Code: timer.Same, Timer: done}
		}
	})
	n := 0
	for i, op := range sent {
		if op.problem == nil && op.result.Code == 0 {
			send[n], sent[n] = send[i], op
			n++
		}
	}
	return send[:n], sent[:n]
}

// appendResult writes {"status", "id", and the timer, the outcome or the error}.
func (rq *request) appendResult(b []byte, op *operation, brief bool) []byte {
	p := op.problem
	if p == nil {
		p = refusalOf(&op.result)
	}
	o := object{b: b}
	if p != nil {
		o.integer("status", int64(p.status))
		if op.in != nil && op.in.id != "" && validID(op.in.id) {
			o.str("id", op.in.id)
		}
		o.name("error")
		o.b = appendProblem(o.b, p)
		return o.end()
	}
	o.integer("status", int64(status(op.result.Code)))
	o.str("id", op.in.id)
	switch {
	case op.verb == vCancel:
		o.str("outcome", outcome(op.result.Code))
	case brief:
	case op.result.Timer == nil || !rq.answer.holds(len(o.b)):
		o.boolean("truncated", true) // the change was made
	default:
		w := rq.timerWriter(op.topic)
		w.merged = op.result.Code == timer.Merged
		o.name("timer")
		o.b = w.append(o.b, op.result.Timer)
	}
	return o.end()
}

func (rq *request) answerLines(ops []operation, brief bool) {
	b := rq.out()
	for i := range ops {
		b = append(rq.appendResult(b, &ops[i], brief), '\n')
	}
	rq.json(200, b)
	rq.ctx.Response.Header.SetContentType("application/x-ndjson")
}
