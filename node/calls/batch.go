package calls

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/secret"
	"carillon/node/metrics"
	"carillon/shard/scheduler"
	"carillon/timer"
	"carillon/transport/callback"
)

// batchCounts counts calls of many timers, their timers, and what answers name as failed that is no
// timer of the call.
type batchCounts struct{ calls, timers, unknown atomic.Int64 }

func (b *batchCounts) show(m *metrics.Metrics) {
	m.Count("carillon_batch_calls_total", "Calls of many timers that were made, by topics with batch.", b.calls.Load)
	m.Count("carillon_batch_timers_total", "Timers that these calls attempted.", b.timers.Load)
	m.Count("carillon_batch_unknown_failed_total", "Entries of failed in the answers to these calls that name no timer of the call: such timers count as done.", b.unknown.Load)
}

func (d *Dispatcher) StartBatch(p delivery.Permit, c *scheduler.BatchCall, done func([]delivery.Outcome)) {
	r, ids, err := d.batchRequest(c)
	if err != nil {
		p.Cancel()
		out := repeated(d.unopened(err), len(c.Jobs))
		go done(out) // not on the shard's own goroutine
		return
	}
	if d.Started != nil {
		d.Started.Add(1)
	}
	p.(callback.Permit).Start(r, func(out callback.Outcome) {
		d.bodies.Put(&r.Body)
		if !out.NotSent {
			d.batches.calls.Add(1)
			d.batches.timers.Add(int64(len(ids)))
		}
		out.NoReceipt = true
		list, unknown := outcomesOf(&out, ids, !c.Topic.Policy.NoAnswers)
		d.batches.unknown.Add(int64(unknown))
		for i := range list {
			out.Outcome = list[i]
			d.trace(&c.Jobs[i], ids[i], r, &out)
			list[i].TraceID = out.TraceID
		}
		done(list)
	})
}

func repeated(out delivery.Outcome, n int) []delivery.Outcome {
	list := make([]delivery.Outcome, n)
	for i := range list {
		list[i] = out
	}
	return list
}

// batchRequest is the request of a call of many timers, and their webhook-ids in order.
func (d *Dispatcher) batchRequest(c *scheduler.BatchCall) (*callback.Request, []string, error) {
	cb := c.Own.Under(&c.Topic.Policy.Callback)
	r := &callback.Request{
		URL: cb.URL, Method: cb.Method, ContentType: "application/json", Timeout: time.Duration(cb.TimeoutMs) * time.Millisecond,
		Topic: c.Topic.Name, WebhookID: "msg_batch_" + rand.Text(), ReadBody: true, KeepAnswer: !c.Topic.Policy.NoAnswers, Deadline: c.Deadline,
	}
	ids := make([]string, len(c.Jobs))
	for i := range c.Jobs {
		ids[i] = webhookID(c.Shard, &c.Jobs[i])
	}
	if free, _ := d.bodies.Get().(*[]byte); free != nil {
		r.Body = (*free)[:0]
	}
	r.Body = appendBatchBody(r.Body, c, ids)
	var err error
	if r.Headers, err = d.openHeaders(func(header string) secret.Place { return secret.OfTopic(c.Topic.Name, header) }, cb.Headers); err != nil {
		return nil, nil, err
	}
	fact := d.topics.fact(c.Topic, d.Keys())
	r.Secrets, r.SigningKeys = fact.secrets, fact.keys
	return r, ids, fact.failed
}

// appendBatchBody appends {"timers":[…]}. Names and ids need no escapes, by their alphabets. A part
// is never longer than table.BatchBytes has it.
func appendBatchBody(b []byte, c *scheduler.BatchCall, ids []string) []byte {
	size := 64
	for i := range c.Jobs {
		size += 400 + len(c.Jobs[i].Payload)*4/3
	}
	b = append(slices.Grow(b, size), `{"timers":[`...)
	for i := range c.Jobs {
		j := &c.Jobs[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"topic":"`...)
		b = append(b, c.Topic.Name...)
		b = append(b, `","id":"`...)
		b = append(b, j.ID...)
		b = append(b, `","webhook_id":"`...)
		b = append(b, ids[i]...)
		b = append(b, `","due_ms":`...)
		b = strconv.AppendInt(b, j.DueMs, 10)
		if j.AskedMs != 0 {
			b = strconv.AppendInt(append(b, `,"asked_ms":`...), j.AskedMs, 10)
		}
		b = append(b, `,"attempt":`...)
		b = strconv.AppendInt(b, int64(j.Attempts), 10)
		b = append(b, `,"fence":`...)
		b = strconv.AppendUint(b, j.Fence, 10)
		if key, has := timer.KeyOf(j.ID); has {
			b = append(b, `,"key":"`...)
			b = append(append(b, key...), '"')
		}
		switch j.PayloadKind {
		case timer.JSONPayload:
			b = append(append(b, `,"payload":`...), j.Payload...)
		case timer.BinaryPayload:
			b = append(b, `,"payload_base64":"`...)
			b = append(base64.StdEncoding.AppendEncode(b, j.Payload), '"')
		}
		if j.ContentType != "" {
			text, _ := json.Marshal(j.ContentType) // never fails for a string
			b = append(append(b, `,"content_type":`...), text...)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}
