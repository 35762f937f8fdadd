package timers

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"carillon/internal/fan"
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

// batch is the operations of one request. It is used again by another request, empty: a request
// with a thousand operations needs a megabyte for them.
//
// Invariant: nothing keeps an input once the engine has answered.
type batch struct {
	ops    []operation
	inputs []*[inputsAtOnce]timerRequest // do not move: the engine gets pointers into them
	used   int                           // inputs
	todo   []*operation
	send   []timer.Op
	sent   []*operation // of send
}

const inputsAtOnce = 16

var batches = sync.Pool{New: func() any { return new(batch) }}

// input is a new, empty input.
func (b *batch) input() *timerRequest {
	if b.used == len(b.inputs)*inputsAtOnce {
		b.inputs = append(b.inputs, new([inputsAtOnce]timerRequest))
	}
	in := &b.inputs[b.used/inputsAtOnce][b.used%inputsAtOnce]
	b.used++
	return in
}

// release empties the batch, for another request.
func (b *batch) release() {
	for i := range b.used {
		b.inputs[i/inputsAtOnce][i%inputsAtOnce] = timerRequest{}
	}
	clear(b.ops)
	b.ops, b.used = b.ops[:0], 0
	batches.Put(b)
}

// Batch does many operations on timers of one topic, in order for each id. It is not atomic: a bad
// operation fails in its place.
func Batch(rq *web.Request) *web.Problem {
	// Each operation is an object, and some of them have more inside.
	ops := min(bytes.Count(rq.Body, []byte{'{'}), rq.Limits.BatchOps)
	waited, entered := rq.Batches.Enter(rq.Who, ops, rq.Limits.BatchWait, rq.Base.Done())
	if !entered && rq.Base.Err() != nil {
		return web.Fail(503, web.Unavailable, "this node stops; nothing was changed")
	}
	if !entered {
		return web.Failf(503, web.Overloaded, "this batch has waited for its turn for %s; nothing was changed. Send fewer at once, or ask another node", rq.Limits.BatchWait)
	}
	defer rq.Batches.Leave(ops)
	if c := rq.Conn(); waited && c != nil && c.HungUp() {
		return web.Fail(503, web.Overloaded, "the client has not waited; nothing was changed")
	}
	b := batches.Get().(*batch)
	p := b.answer(rq)
	b.release() // after a panic it is left to the collector
	return p
}

func (b *batch) answer(rq *web.Request) *web.Problem {
	ndjson, p := rq.MediaType(true)
	if p != nil {
		return p
	}
	brief := rq.Query.Boolean("brief", false)
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	read := b.readOps
	if ndjson {
		read = b.readLines
	}
	if p = read(rq, rq.Body); p != nil {
		return p
	}
	if !brief {
		rq.Room(rq.Limits.BatchAnswer)
	}
	b.run(rq, brief)
	if rq.Audits {
		rq.Outcomes = outcomesOf(b.ops)
	}
	if ndjson {
		out := rq.Out()
		for i := range b.ops {
			out = append(appendResult(rq, out, &b.ops[i], brief), '\n')
		}
		_ = rq.JSON(200, out)
		rq.Ctx.Response.Header.SetContentType("application/x-ndjson")
		return nil
	}
	o := web.Object{B: rq.Out()}
	o.List("results", len(b.ops), func(out []byte, i int) []byte { return appendResult(rq, out, &b.ops[i], brief) })
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
func (b *batch) readOps(rq *web.Request, body []byte) *web.Problem {
	r := rq.ReaderOf(body)
	given := r.Object("body", []string{"ops"}, func(int) {
		for k := r.Open('[', "ops"); r.More(k, ']'); k++ {
			if k == rq.Limits.BatchOps {
				r.Reject(tooMany(rq))
				return
			}
			start := r.Pos()
			op := b.readOp(rq, r)
			// The rest of this one: by its own grammar.
			if p := r.Problem(); p != nil && r.Skip(start) {
				op = unread(op.in, p)
			}
			b.ops = append(b.ops, op)
		}
	})
	r.End()
	if r.Err() == nil && given == 0 {
		r.Reject(web.Bad(web.BadRequest, "ops: is required"))
	}
	return r.Problem()
}

func (b *batch) readLines(rq *web.Request, body []byte) *web.Problem {
	body = bytes.TrimSuffix(body, []byte{'\n'})
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	if 1+bytes.Count(body, []byte{'\n'}) > rq.Limits.BatchOps {
		return tooMany(rq)
	}
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		r := rq.ReaderOf(line)
		op := b.readOp(rq, r)
		r.End()
		if p := r.Problem(); p != nil {
			op = unread(op.in, p)
		}
		b.ops = append(b.ops, op)
	}
	return nil
}

// readOp reads one operation and fills in its command. A fault in r means that the operation is to
// be dropped; one of the operation as a whole goes into its place.
func (b *batch) readOp(rq *web.Request, r *web.Reader) operation {
	in := b.input()
	readFields(r, in)
	if r.Err() != nil {
		return operation{in: in}
	}
	op := operation{in: in, verb: verbOf(in.op)}
	switch {
	case in.given&spec.FOp == 0:
		op.problem = web.Bad(web.BadRequest, "op: is required")
	case op.verb == noVerb:
		op.problem = web.Bad(web.BadRequest, "op: must be one of add, put, patch, cancel, fire")
	default:
		if op.problem = rq.Who.Needs(verbs[op.verb].scope); op.problem == nil {
			op.problem = in.check(op.verb, true)
		}
	}
	return op
}

// unread is an operation that could not be read. It has the id that was read, unless it is no JSON.
func unread(in *timerRequest, p *web.Problem) operation {
	if p.Code == web.BadJSON {
		in = nil
	}
	return operation{in: in, problem: p}
}

// run does the operations: together where it can, but one that has to read its timer first by
// itself, after those before it.
func (b *batch) run(rq *web.Request, brief bool) {
	nowMs := rq.NowMs()
	from := 0
	for i := range b.ops {
		op := &b.ops[i]
		if op.problem == nil {
			op.problem = chargeVerb(rq, op.verb)
		}
		if op.problem != nil {
			continue
		}
		if op.verb != vAdd && spec.AnyRedacted(op.in.spec.Callback.Headers) || op.in.needsStored(op.verb) {
			b.runTogether(rq, b.ops[from:i], nowMs, brief)
			op.result, op.topic, op.problem = change(rq, op.in, op.verb, brief)
			from = i + 1
			continue
		}
		op.problem = prepare(rq, op.in, op.verb, nowMs)
	}
	b.runTogether(rq, b.ops[from:], nowMs, brief)
	b.recallEnds(rq)
}

// runTogether has the prepared operations decided, those that found the topic closing once more,
// within bounds.
func (b *batch) runTogether(rq *web.Request, ops []operation, nowMs int64, brief bool) {
	b.todo = b.todo[:0]
	for i := range ops {
		if ops[i].problem == nil {
			b.todo = append(b.todo, &ops[i])
		}
	}
	todo := b.todo
	for try := 0; len(todo) > 0; try++ {
		todo = b.attempt(rq, todo, nowMs, brief)
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
func (b *batch) attempt(rq *web.Request, todo []*operation, nowMs int64, brief bool) (stale []*operation) {
	todo = withoutRefused(rq, todo)
	b.send, b.sent = slices.Grow(b.send[:0], len(todo)), slices.Grow(b.sent[:0], len(todo))
	// The topic is looked up once, unless it is not there.
	var t *timer.Topic
	// Why the topic cannot be made: asking again for each operation would give the same answer.
	var refused *web.Problem
	for _, op := range todo {
		create := op.verb == vAdd || op.verb == vPut
		if create && refused != nil {
			op.problem = refused
			continue
		}
		var p *web.Problem
		if t == nil {
			if t, p = rq.FindTopic(create); p != nil && create {
				refused = p
			}
		}
		if p == nil {
			p = op.in.bindTopic(t, op.verb)
		}
		if p != nil {
			op.problem = p
			continue
		}
		op.topic = t
		b.send = append(b.send, timer.Op{Shard: op.in.shard(rq, t), Command: &op.in.cmd, Brief: brief || op.verb == vCancel && op.in.ifMatch == 0, Room: rq.ShardRoom()})
		b.sent = append(b.sent, op)
	}
	defer clear(b.send)
	send, sent := withoutMade(rq, b.send, b.sent, nowMs)
	if len(send) == 0 {
		return nil
	}
	rq.Core.Timers.DoAll(rq.Base, send)
	for i, op := range sent {
		switch {
		case send[i].Err != nil:
			op.problem = web.Fault(send[i].Err)
			rq.LogCause(op.problem)
		case send[i].Result.Code == timer.TopicClosed || op.in.retryAsGiven(send[i].Result.Code):
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

// askedAtOnce bounds the questions to the history that one batch has at a time.
const askedAtOnce = 16

// askHistory has the history asked for each of these operations, a few at once.
func askHistory(rq *web.Request, ops []*operation, ask func(*operation) error) {
	var all fan.Group
	for lane := range min(len(ops), askedAtOnce) {
		all.Go(func() {
			for i := lane; i < len(ops); i += askedAtOnce {
				if err := ask(ops[i]); err != nil {
					ops[i].problem = web.Fault(err)
					rq.LogCause(ops[i].problem)
				}
			}
		})
	}
	all.Wait()
}

// recallEnds tells the operations that found no timer how it ended, as a single one is told.
func (b *batch) recallEnds(rq *web.Request) {
	var ended []*operation
	for i := range b.ops {
		if op := &b.ops[i]; op.problem == nil && op.topic != nil && mayHaveEnded(op.result.Code) {
			ended = append(ended, op)
		}
	}
	askHistory(rq, ended, func(op *operation) error { return op.in.endedLongAgo(rq, op.topic, &op.result, op.verb) })
}

// withoutMade answers for the adds that were made before, and leaves the rest.
func withoutMade(rq *web.Request, send []timer.Op, sent []*operation, nowMs int64) ([]timer.Op, []*operation) {
	var past []*operation
	for _, op := range sent {
		if maybeMade(op.in, op.topic, op.verb, nowMs) {
			past = append(past, op)
		}
	}
	if len(past) == 0 {
		return send, sent
	}
	askHistory(rq, past, func(op *operation) error {
		done, err := madeBefore(rq, op.in, op.topic)
		if done != nil {
			op.result = timer.Result{Code: timer.Same, Timer: done}
		}
		return err
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
	o.OptInteger("late_by_ms", op.in.lateMs(&op.result, rq.NowMs()))
	switch {
	case op.verb == vCancel:
		o.Text("outcome", cancelOutcome(op.result.Code))
	case brief:
	case op.result.Timer == nil || !rq.Answer.Holds(len(o.B)):
		o.Boolean("truncated", true) // the change was made
	default:
		w := NewWriter(op.topic)
		w.merged = op.result.Code == timer.Merged
		o.Name("timer")
		o.B = w.Append(o.B, op.result.Timer)
	}
	return o.End()
}
