package node

import (
	"cmp"
	"encoding/binary"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/secret"
	"carillon/internal/tracing"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/callback"

	"github.com/cespare/xxhash/v2"
)

// dispatcher lets the shards call receivers: it turns a timer and its topic's policy into a request
// of the callback pool.
type dispatcher struct {
	pool  *callback.Pool
	clock timeSource
	test  *testClock // nil: there is none
	vault *vault
	// tracer reports calls to a collector; nil: none.
	tracer *tracing.Tracer
	// secret is the cluster's; nil as long as there is none.
	secret func() []byte
	// place is route.Router.PlaceOf.
	place  func(topic timer.TopicID, id string) uint64
	topics topicFacts
	// guarded: the ports of the cluster are known, which no call may reach.
	guarded *atomic.Bool
	batches batchCounts
}

var errNoURL = errors.New("neither the timer nor its topic has a callback URL")

// Route implements shard.Dispatcher. A topic with a breaker policy of its own has its own breaker
// at each destination.
func (d *dispatcher) Route(t *timer.Topic, own *timer.Callback) (scheduler.Destination, error) {
	url := own.URL
	if url == "" {
		url = t.Policy.Callback.URL
	}
	if url == "" {
		return nil, errNoURL
	}
	key, err := callback.ParseKey(url)
	if err != nil {
		return nil, err
	}
	if t.Policy.OwnBreaker {
		key.Scope = t.Name
	}
	timeout := time.Duration(own.Under(&t.Policy.Callback).TimeoutMs) * time.Millisecond
	return destination{key: key, long: timeout > callback.LongCall, needs: needs(own.Headers)}, nil
}

// destination is where a timer's calls go. Long ones go apart from others, since their slots are
// fewer, and so do those that need keys.
type destination struct {
	key   callback.Key
	long  bool
	needs string // ids of the keys that the timer's own headers are sealed with
}

// Tenant implements scheduler.Dispatcher.
func (d *dispatcher) Tenant(t *timer.Topic) string {
	return d.topics.fact(t, d.vault.keys.Load()).tenant
}

// Acquire implements scheduler.Dispatcher.
func (d *dispatcher) Acquire(dest scheduler.Destination, t *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict) {
	to := dest.(destination)
	switch {
	case !d.guarded.Load():
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: 20 * time.Millisecond}
	case t.Policy.Report && d.secret() == nil: // its receivers could not report
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: time.Second}
	case d.locked(t, to.needs):
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: keyAgain}
	}
	b := t.Policy.Breaker
	p, v := d.pool.Acquire(callback.Call{
		Key: to.key, Limit: t.Policy.DestinationConcurrency, Breaker: callback.Breaker{
			Failures: b.Failures,
			Window:   time.Duration(b.WindowMs) * time.Millisecond,
			Open:     time.Duration(b.OpenMs) * time.Millisecond,
			Probes:   b.Probes,
		},
		Tenant: d.Tenant(t), Number: uint64(t.ID), Long: to.long,
	}, a)
	if v.Kind != delivery.Granted {
		return nil, v
	}
	return p, v
}

// State implements scheduler.Dispatcher.
func (d *dispatcher) State(dest scheduler.Destination, _ *timer.Topic) delivery.State {
	return d.pool.State(dest.(destination).key)
}

// Start implements scheduler.Dispatcher.
func (d *dispatcher) Start(p delivery.Permit, j *scheduler.Delivery, done func(delivery.Outcome)) {
	r, err := d.request(j)
	if err != nil {
		p.Cancel()
		go done(d.unopened(err)) // not on the shard's own goroutine
		return
	}
	if d.test != nil {
		d.test.calls.Add(1)
	}
	p.(callback.Permit).Start(r, func(out callback.Outcome) {
		d.trace(&j.Job, r.WebhookID, r, &out)
		done(out.Outcome)
	})
}

// trace reports the attempt of a timer whose trace is reported; the timer's call may be of many.
func (d *dispatcher) trace(job *table.Job, webhookID string, r *callback.Request, out *callback.Outcome) {
	if out.NotSent || !d.tracer.Traces(job.Trace) {
		return
	}
	d.tracer.Attempt(&tracing.Attempt{
		Trace: job.Trace, Span: spanOf(webhookID, job.Fence), Number: job.Attempts, Method: cmp.Or(r.Method, "POST"), URL: r.URL,
		Topic: r.Topic, Timer: job.ID, WebhookID: webhookID, Status: out.Status, Err: out.Err, Begun: out.Started, Took: out.Took,
	})
	out.TraceID = &job.Trace.ID
}

// request lays the timer's own callback settings over the topic's. The error is that of a secret
// which cannot be opened.
func (d *dispatcher) request(j *scheduler.Delivery) (*callback.Request, error) {
	c := j.Own.Under(&j.Topic.Policy.Callback)
	place := func(header string) secret.Place { return secret.OfTopic(j.Topic.Name, header) }
	if j.Own.HasHeaders {
		place = func(header string) secret.Place { return secret.OfTimer(uint32(j.Topic.ID), header) }
	}
	job := &j.Job
	r := &callback.Request{
		URL: c.URL, Method: c.Method, ContentType: contentType(job), Body: job.Payload,
		Timeout: time.Duration(c.TimeoutMs) * time.Millisecond,
		Topic:   j.Topic.Name, Timer: job.ID, DueMs: job.DueMs, AskedMs: job.AskedMs, Attempt: job.Attempts, Fence: job.Fence,
		WebhookID: webhookID(j.Shard, job), CloudEvent: j.Topic.Policy.CloudEvents,
		Deadline: j.Deadline, KeepAnswer: !j.Topic.Policy.NoAnswers,
	}
	if j.Topic.Policy.Report {
		receipt := receipt{shard: j.Shard, place: d.place(j.Topic.ID, job.ID), topic: j.Topic.ID, handle: job.Handle, seq: job.Seq, fence: job.Fence}
		r.Receipt = receipt.seal(d.secret())
	}
	if job.Trace != nil {
		r.TraceParent, r.TraceState = job.Trace.Parent(spanOf(r.WebhookID, job.Fence)), job.Trace.State
	}
	var err error
	if r.Headers, err = d.openHeaders(place, c.Headers); err != nil {
		return nil, err
	}
	fact := d.topics.fact(j.Topic, d.vault.keys.Load())
	r.Secrets, r.SigningKeys = fact.secrets, fact.keys
	return r, fact.failed
}

func contentType(job *table.Job) string {
	switch {
	case job.ContentType != "":
		return job.ContentType
	case job.PayloadKind == timer.JSONPayload:
		return "application/json"
	case job.PayloadKind == timer.BinaryPayload:
		return "application/octet-stream"
	}
	return ""
}

// webhookID has the shard that gave the timer its number. It is the same for all attempts of one version of one timer, and another for any other.
func webhookID(id timer.ShardID, job *table.Job) string {
	if job.Origin != 0 {
		id = job.Origin
	}
	b := make([]byte, 0, 40)
	b = append(b, "msg_"...)
	b = timer.AppendUID(b, id, job.Seq, job.Tag)
	b = append(b, '_')
	return string(strconv.AppendUint(b, uint64(job.Version), 10))
}

// spanOf is the span of an attempt: another one for each lease of each version, and not zero, which
// is no span.
func spanOf(webhookID string, fence uint64) (span [8]byte) {
	d := xxhash.NewWithSeed(fence)
	_, _ = d.WriteString(webhookID)
	binary.BigEndian.PutUint64(span[:], max(d.Sum64(), 1))
	return span
}
