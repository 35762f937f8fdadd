// Package calls makes the calls to receivers: it turns timers and their topics' policies into
// requests of the callback pool, and what receivers answer into outcomes. It makes and opens the
// receipts by which consumers report.
package calls

import (
	"cmp"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/secret"
	"carillon/internal/tracing"
	"carillon/node/metrics"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/api"
	"carillon/transport/callback"
	"carillon/transport/callback/address"

	"github.com/cespare/xxhash/v2"
)

// Config is what a Dispatcher works with.
type Config struct {
	Pool  *callback.Pool
	NowMs func() int64 // of timers
	// Keys open secrets; nil: there are none. Lacks reports, and records, that a call needs a key
	// that this node does not have.
	Keys  func() *secret.Keys
	Lacks func(id string) bool
	// Tracer reports calls to a collector; nil: none.
	Tracer *tracing.Tracer
	// Secret is the cluster's; nil as long as there is none.
	Secret func() []byte
	// Place is where the timer of an id is: see timer.Op.
	Place func(topic timer.TopicID, id string) uint64
	// Auth names the tenant of a topic; nil: nobody is asked for a token.
	Auth *api.Auth
	// Guarded: the ports of the cluster are known, which no call may reach.
	Guarded *atomic.Bool
	// Started counts the calls of a node with a test clock; nil: it has none.
	Started *atomic.Int64
}

// Dispatcher lets the shards call receivers. It is their scheduler.Dispatcher.
type Dispatcher struct {
	Config
	topics  topicFacts
	batches batchCounts
	bodies  sync.Pool // of *[]byte: bodies of calls of many that have ended
}

// New makes a Dispatcher, and shows its counts among the metrics.
func New(c Config, shown *metrics.Metrics) *Dispatcher {
	d := &Dispatcher{Config: c, topics: topicFacts{auth: c.Auth}}
	d.batches.show(shown)
	return d
}

var errNoURL = errors.New("neither the timer nor its topic has a callback URL")

// Route implements scheduler.Dispatcher. A topic with a breaker policy of its own has its own
// breaker at each destination.
func (d *Dispatcher) Route(t *timer.Topic, own *timer.Callback) (scheduler.Destination, error) {
	url := cmp.Or(own.URL, t.Policy.Callback.URL)
	if url == "" {
		return nil, errNoURL
	}
	key, err := address.ParseKey(url)
	if err != nil {
		return nil, err
	}
	if t.Policy.OwnBreaker {
		key.Scope = t.Name
	}
	timeout := time.Duration(own.Under(&t.Policy.Callback).TimeoutMs) * time.Millisecond
	return Destination{key: key, long: timeout > callback.LongCall, needs: needs(own.Headers)}, nil
}

// Destination is where a timer's calls go. Long ones go apart from others, since their slots are
// fewer, and so do those that need keys.
type Destination struct {
	key   address.Key
	long  bool
	needs string // ids of the keys that the timer's own headers are sealed with
}

// Name is the receiver, scheme://host:port.
func (d Destination) Name() string { return d.key.String() }

func (d *Dispatcher) Tenant(t *timer.Topic) string {
	return d.topics.fact(t, d.Keys()).tenant
}

func (d *Dispatcher) Acquire(dest scheduler.Destination, t *timer.Topic, a delivery.Ask) (delivery.Permit, delivery.Verdict) {
	to := dest.(Destination)
	switch {
	case !d.Guarded.Load():
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: 20 * time.Millisecond}
	case d.barred(t, to):
		return nil, delivery.Verdict{Kind: delivery.Shut, RetryIn: keyRetry}
	}
	b := t.Policy.Breaker
	p, v := d.Pool.Acquire(callback.Call{
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

func (d *Dispatcher) State(dest scheduler.Destination, t *timer.Topic) delivery.State {
	to := dest.(Destination)
	at := d.Pool.State(to.key)
	at.Barred = d.barred(t, to)
	return at
}

// barred reports whether this node lacks a key for calls of the topic: one of its secrets, or that
// with which its receivers report.
func (d *Dispatcher) barred(t *timer.Topic, to Destination) bool {
	return t.Policy.Report && d.Secret() == nil || d.locked(t, to.needs)
}

func (d *Dispatcher) Start(p delivery.Permit, j *scheduler.Delivery, done func(delivery.Outcome)) {
	r, err := d.request(j)
	if err != nil {
		p.Cancel()
		go done(d.unopened(err)) // not on the shard's own goroutine
		return
	}
	if d.Started != nil {
		d.Started.Add(1)
	}
	var traced *table.Job
	if j.Job.Trace != nil {
		job := j.Job
		traced = &job
	}
	p.(callback.Permit).Start(r, func(out callback.Outcome) {
		if traced != nil {
			d.trace(traced, r.WebhookID, r, &out)
		}
		out.NoReceipt = r.Receipt == ""
		done(out.Outcome)
	})
}

// trace reports the attempt of a timer whose trace is reported; the timer's call may be of many.
func (d *Dispatcher) trace(job *table.Job, webhookID string, r *callback.Request, out *callback.Outcome) {
	if out.NotSent || !d.Tracer.Traces(job.Trace) {
		return
	}
	d.Tracer.Attempt(&tracing.Attempt{
		Trace: job.Trace, Span: spanOf(webhookID, job.Fence), Number: job.Attempts, Method: cmp.Or(r.Method, "POST"), URL: r.URL,
		Topic: r.Topic, Timer: job.ID, WebhookID: webhookID, Status: out.Status, Err: out.Err, Begun: out.Started, Took: out.Took,
	})
	out.TraceID = &job.Trace.ID
}

// request lays the timer's own callback settings over the topic's. The error is that of a secret
// which cannot be opened.
func (d *Dispatcher) request(j *scheduler.Delivery) (*callback.Request, error) {
	c := j.Own.Under(&j.Topic.Policy.Callback)
	place := func(header string) secret.Place { return secret.OfTopic(j.Topic.Name, header) }
	if j.Own.HasHeaders {
		place = func(header string) secret.Place { return secret.OfTimer(uint32(j.Topic.ID), header) }
	}
	job := &j.Job
	r := &callback.Request{
		URL: c.URL, Method: c.Method, ContentType: cmp.Or(job.ContentType, job.PayloadKind.ContentType()), Body: job.Payload,
		Timeout: time.Duration(c.TimeoutMs) * time.Millisecond,
		Topic:   j.Topic.Name, Timer: job.ID, DueMs: job.DueMs, AskedMs: job.AskedMs, Attempt: job.Attempts, Fence: job.Fence,
		WebhookID: webhookID(j.Shard, job), CloudEvent: j.Topic.Policy.CloudEvents,
		Deadline: j.Deadline, KeepAnswer: !j.Topic.Policy.NoAnswers,
	}
	if j.Topic.Policy.Report {
		receipt := Receipt{Shard: j.Shard, Place: d.Place(j.Topic.ID, job.ID), Topic: j.Topic.ID, Handle: job.Handle, Seq: job.Seq, Fence: job.Fence}
		r.Receipt = receipt.Seal(d.Secret())
	}
	if job.Trace != nil {
		r.TraceParent, r.TraceState = job.Trace.Parent(spanOf(r.WebhookID, job.Fence)), job.Trace.State
	}
	var err error
	if r.Headers, err = d.openHeaders(place, c.Headers); err != nil {
		return nil, err
	}
	fact := d.topics.fact(j.Topic, d.Keys())
	r.Secrets, r.SigningKeys = fact.secrets, fact.keys
	return r, fact.failed
}

// webhookID has the shard that gave the timer its number. It is the same for all attempts of one
// version of one timer, and another for any other.
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
