package timers

import (
	"bytes"
	"time"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// operation is one line of a batch, with its outcome.
type operation struct {
	in      *timerRequest
	verb    verb
	problem *web.Problem // it failed; the fields below are then empty
	result  timer.Result
	topic   *timer.Topic
}

// Batch does many operations on timers of one topic, in order for each id. It is not atomic: a bad
// operation fails in its place.
func Batch(rq *web.Request) *web.Problem {
	ndjson, p := rq.MediaType(true)
	if p != nil {
		return p
	}
	brief, p := rq.Query.Boolean("brief", false)
	if p != nil {
		return p
	}
	read := readOps
	if ndjson {
		read = readLines
	}
	ops, p := read(rq, rq.Body)
	if p != nil {
		return p
	}
	if !brief {
		rq.Room(rq.Limits.BatchAnswer)
	}
	run(rq, ops, brief)
	if rq.Audits {
		rq.Outcomes = outcomesOf(ops)
	}
	if ndjson {
		b := rq.Out()
		for i := range ops {
			b = append(appendResult(rq, b, &ops[i], brief), '\n')
		}
		_ = rq.JSON(200, b)
		rq.Ctx.Response.Header.SetContentType("application/x-ndjson")
		return nil
	}
	o := web.Object{B: rq.Out()}
	o.List("results", len(ops), func(b []byte, i int) []byte { return appendResult(rq, b, &ops[i], brief) })
	return rq.JSON(200, o.End())
}

// outcomesOf is what the audit log is to have of the operations.
func outcomesOf(ops []operation) []web.Outcome {
	list := make([]web.Outcome, 0, len(ops))
	for i := range ops {
		op := &ops[i]
		if op.problem == nil && unchanged(&op.result) {
			continue
		}
		list = append(list, web.Outcome{})
		o := &list[len(list)-1]
		if op.in != nil && op.verb != noVerb {
			o.Verb = verbs[op.verb].name
			if web.ValidID(op.in.id) {
				o.ID = op.in.id
			}
		}
		p := op.problem
		if p == nil {
			p = refusal(op.result.Code)
		}
		if o.Status = status(op.result.Code); p != nil {
			o.Status, o.Refused = p.Status, p.Refuses()
		}
	}
	return list
}

func tooMany(rq *web.Request) *web.Problem {
	return web.Failf(413, web.TooLarge, "more than %d operations", rq.Limits.BatchOps)
}

// readOps reads {"ops": […]}. A break of the grammar fails the whole; any other fault, its
// operation.
func readOps(rq *web.Request, body []byte) ([]operation, *web.Problem) {
	r := rq.ReaderOf(body)
	var ops []operation
	var given web.Fields
	n := r.Open('{', "body")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if string(name) != "ops" && r.Err() == nil {
			r.Reject(web.Unknown(name, []string{"ops"}))
		}
		if !r.First(&given, 1, "", name) {
			break
		}
		for k := r.Open('[', "ops"); r.More(k, ']'); k++ {
			if k == rq.Limits.BatchOps {
				return nil, tooMany(rq)
			}
			start := r.Pos()
			op := readOp(rq, r)
			// The rest of this one: by its own grammar.
			if p := r.Problem(); p != nil && r.Skip(start) {
				op = operation{problem: p}
			}
			ops = append(ops, op)
		}
	}
	r.End()
	if r.Err() == nil && given == 0 {
		r.Reject(web.Bad(web.BadRequest, "ops: is required"))
	}
	return ops, r.Problem()
}

// readLines reads one operation a line.
func readLines(rq *web.Request, body []byte) ([]operation, *web.Problem) {
	body = bytes.TrimSuffix(body, []byte{'\n'})
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	most := rq.Limits.BatchOps
	n := 1 + bytes.Count(body, []byte{'\n'})
	if n > most {
		return nil, tooMany(rq)
	}
	ops := make([]operation, 0, n)
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		r := rq.ReaderOf(line)
		op := readOp(rq, r)
		r.End()
		if p := r.Problem(); p != nil {
			op = operation{problem: p}
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// readOp reads one operation and fills in its command. A fault in r means that the operation is to
// be dropped; one of the operation as a whole goes into its place.
func readOp(rq *web.Request, r *web.Reader) operation {
	in := &timerRequest{}
	readFields(r, in)
	if r.Err() != nil {
		return operation{}
	}
	op := operation{in: in, verb: verbOf(in.op)}
	switch {
	case in.given&spec.FOp == 0:
		op.problem = web.Bad(web.BadRequest, "op: is required")
	case op.verb == noVerb:
		op.problem = web.Bad(web.BadRequest, "op: must be one of add, put, patch, cancel, fire")
	default:
		if op.problem = rq.Needs(verbs[op.verb].scope); op.problem == nil {
			op.problem = in.check(op.verb, true)
		}
	}
	return op
}

// run does the operations: together where it can, but one that has to read its timer first by
// itself, after those before it.
func run(rq *web.Request, ops []operation, brief bool) {
	nowMs := rq.NowMs()
	from := 0
	for i := range ops {
		op := &ops[i]
		if op.problem == nil {
			op.problem = chargeVerb(rq, op.verb)
		}
		if op.problem != nil {
			continue
		}
		if op.verb != vAdd && spec.AnyRedacted(op.in.spec.Callback.Headers) {
			runTogether(rq, ops[from:i], brief)
			op.result, op.topic, op.problem = change(rq, op.in, op.verb, brief)
			from = i + 1
			continue
		}
		op.problem = prepare(rq, op.in, op.verb, nowMs)
	}
	runTogether(rq, ops[from:], brief)
}

// runTogether has the prepared operations decided, those that found the topic closing once more,
// within bounds.
func runTogether(rq *web.Request, ops []operation, brief bool) {
	todo := make([]*operation, 0, len(ops))
	for i := range ops {
		if ops[i].problem == nil {
			todo = append(todo, &ops[i])
		}
	}
	for try := 0; len(todo) > 0; try++ {
		todo = attempt(rq, todo, brief)
		if len(todo) == 0 {
			return
		}
		if try == web.TopicTries-1 || !rq.Sleep(2*time.Millisecond<<try) {
			break
		}
	}
	for _, op := range todo {
		op.problem = refusal(timer.TopicClosed)
	}
}

// attempt has operations decided and returns those to try again: their topic was closing, or there
// is no timer with the topic's key.
func attempt(rq *web.Request, todo []*operation, brief bool) (stale []*operation) {
	todo = withoutRefused(rq, todo)
	send := make([]timer.Op, 0, len(todo))
	sent := make([]*operation, 0, len(todo))
	// Why the topic cannot be made: asking again for each operation would give the same answer.
	var refused *web.Problem
	for _, op := range todo {
		create := op.verb == vAdd || op.verb == vPut
		if create && refused != nil {
			op.problem = refused
			continue
		}
		t, p := rq.FindTopic(create)
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
		send = append(send, timer.Op{Shard: op.in.shard(rq, t), Command: &op.in.cmd, Brief: brief || op.verb == vCancel, Room: rq.ShardRoom()})
		sent = append(sent, op)
	}
	if len(send) == 0 {
		return nil
	}
	send, sent = withoutMade(rq, send, sent)
	if len(send) == 0 {
		return nil
	}
	rq.Core.Timers.DoAll(rq.Base, send)
	for i, op := range sent {
		switch {
		case send[i].Err != nil:
			op.problem = web.Fault(send[i].Err)
			rq.LogCause(op.problem)
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
func withoutRefused(rq *web.Request, todo []*operation) (left []*operation) {
	if _, here := rq.Core.Topics.Here(rq.Topic); here {
		return todo
	}
	refused := map[*operation]*web.Problem{}
	for _, op := range todo {
		if op.verb != vAdd && op.verb != vPut {
			continue
		}
		if refused[op] = refusedByNew(rq, op.in, op.verb); refused[op] == nil {
			return todo
		}
	}
	if len(refused) == 0 {
		return todo
	}
	t, p := rq.LateTopic(nil)
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
func withoutMade(rq *web.Request, send []timer.Op, sent []*operation) ([]timer.Op, []*operation) {
	var past []*operation
	for _, op := range sent {
		if maybeMade(rq, op.in, op.topic, op.verb) {
			past = append(past, op)
		}
	}
	if len(past) == 0 {
		return send, sent
	}
	each(len(past), func(i int) {
		op := past[i]
		switch done, err := madeBefore(rq, op.in, op.topic); {
		case err != nil:
			op.problem = web.Fault(err)
			rq.LogCause(op.problem)
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
func appendResult(rq *web.Request, b []byte, op *operation, brief bool) []byte {
	p := op.problem
	if p == nil {
		p = refusalOf(&op.in.cmd, &op.result)
	}
	o := web.Object{B: b}
	if p != nil {
		o.Integer("status", int64(p.Status))
		if op.in != nil && op.in.id != "" && web.ValidID(op.in.id) {
			o.Text("id", op.in.id)
		}
		o.Name("error")
		o.B = web.AppendProblem(o.B, p)
		return o.End()
	}
	o.Integer("status", int64(status(op.result.Code)))
	o.Text("id", op.in.id)
	switch {
	case op.verb == vCancel:
		o.Text("outcome", cancelOutcome(op.result.Code))
	case brief:
	case op.result.Timer == nil || !rq.Answer.Holds(len(o.B)):
		o.Boolean("truncated", true) // the change was made
	default:
		w := NewWriter(rq, op.topic)
		w.merged = op.result.Code == timer.Merged
		o.Name("timer")
		o.B = w.Append(o.B, op.result.Timer)
	}
	return o.End()
}
