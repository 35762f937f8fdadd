package loadtest

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"carillon/client"
	"carillon/loadtest/hist"
	"carillon/loadtest/sink"
)

// Timers of the other topic are due at even distances. They are added in blocks of a second's, the
// first ten seconds' at the start, so that adds of a server that hangs are no reason for
// lateness until it has done so for seven of them.
const (
	otherRate   = 100 // a second
	otherBefore = 3 * time.Second
	otherAhead  = 7 * time.Second

	// herdAhead is how early before its instant a herd may be felt: leases are taken ahead.
	herdAhead  = 500 * time.Millisecond
	otherEvery = time.Second / otherRate
)

// other is a second topic in a run with many receivers.
type other struct {
	run     *run
	api     *client.Client
	topic   string
	url     string
	prefix  []byte
	first   time.Time // due time of timer 0
	instant time.Time
	errors  atomic.Int64

	mu             sync.Mutex
	arrived        []bool // by timer
	before, during *hist.Histogram
}

func newOther(r *run, port int) *other {
	instant := r.instant()
	first := time.UnixMilli(instant.Add(-otherBefore).UnixMilli())
	if soonest := r.start.Add(time.Second); first.Before(soonest) {
		first = time.UnixMilli(soonest.UnixMilli())
	}
	return &other{run: r, api: r.api, topic: r.config.Topic + "-other", url: fmt.Sprintf("http://127.0.0.1:%d/", port),
		prefix: []byte("other-" + string(r.names.run) + "-"), first: first, instant: instant, before: hist.New(), during: hist.New()}
}

func (o *other) due(n int64) time.Time { return o.first.Add(time.Duration(n) * otherEvery) }

// add keeps the topic full until the context ends.
func (o *other) add(ctx context.Context) {
	for n := int64(0); ctx.Err() == nil; n += otherRate {
		pause(ctx, time.Until(o.due(n).Add(-otherAhead)))
		if ctx.Err() == nil && o.addSecond(ctx, n) != nil && ctx.Err() == nil {
			o.errors.Add(1)
		}
	}
}

func (o *other) addSecond(ctx context.Context, n int64) error {
	body := []byte(`{"ops":[`)
	for i := n; i < n+otherRate; i++ {
		body = fmt.Appendf(body, `{"op":"add","id":"%s%d","at_ms":%d,"callback":{"url":%q}},`, o.prefix, i, o.due(i).UnixMilli(), o.url)
	}
	body = append(body[:len(body)-1], "]}"...)
	_, err := o.api.Do(ctx, client.Request{Method: "POST", Path: client.Path("topics", o.topic, "batch"), Body: body, Repeatable: true})
	return err
}

// receive books a delivery of the topic's timers, and reports whether it is one.
func (o *other) receive(d *sink.Delivery) bool {
	text, ours := bytes.CutPrefix(d.Timer, o.prefix)
	if !ours {
		return false
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 0 {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for int64(len(o.arrived)) <= n {
		o.arrived = append(o.arrived, false)
	}
	if o.arrived[n] {
		return true
	}
	o.arrived[n] = true
	if due := o.due(n); due.Before(o.instant.Add(-herdAhead)) {
		o.before.Record(d.ArrivedUs - due.UnixMicro())
	} else if end := o.run.end.Load(); end == nil || due.Before(*end) {
		o.during.Record(d.ArrivedUs - due.UnixMicro())
	}
	return true
}

// await waits until all timers due before the end have arrived, for the grace time at most, and
// cancels the later ones.
func (o *other) await(ctx context.Context) {
	for limit := time.Now().Add(o.run.config.Grace); o.missing() > 0 && time.Now().Before(limit) && ctx.Err() == nil; {
		pause(ctx, 20*time.Millisecond)
	}
	_, _ = o.api.Do(ctx, client.Request{Method: "POST", Path: client.Path("topics", o.topic, "cancel"), Body: []byte(`{"all":true,"filter":{}}`)})
}

// missing is how many timers that were due before the end have not arrived.
func (o *other) missing() (n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := int64(0); o.due(i).Before(*o.run.end.Load()); i++ {
		if i >= int64(len(o.arrived)) || !o.arrived[i] {
			n++
		}
	}
	return n
}

func (o *other) report(into *Receivers) {
	into.OtherLost, into.OtherErrors = o.missing(), o.errors.Load()
	o.mu.Lock()
	defer o.mu.Unlock()
	into.OtherBefore, into.OtherDuring = o.before.Summary(), o.during.Summary()
	into.OtherFired = o.before.Count() + o.during.Count()
}
