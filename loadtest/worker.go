package loadtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"carillon/client"
)

const (
	// deadlineSlack is how stale a connection's deadline may be: setting it for
	// every request would cost more than building the request.
	deadlineSlack = time.Second

	// redialWait keeps a connection that is refused from spinning.
	redialWait = 100 * time.Millisecond

	// A closed loop rests as long as an answer asks for: restOfBatch where operations of a batch were
	// refused, whose results cannot ask, and mostRest at most, as the clients do.
	restOfBatch = time.Second
	mostRest    = 10 * time.Second

	// cutGrace is how long a request in flight may still take when the run is cut.
	cutGrace = time.Second
)

// source chooses calls for a worker.
type source interface {
	next(c *call, now time.Time) bool
}

// worker has one request in flight: it sends a call, waits for the answer, books it.
type worker struct {
	own      int     // the link of calls whose leader is not known
	links    []*link // by target
	leaders  *client.Leaders
	requests *requests
	source   source
	ledger   *ledger
	tally    *tally
	pace     pace
	settling *verification // books the answers, unmeasured; nil while loading

	call call
	rest time.Duration // that the node asks for with its last answer
}

// run works until the source is exhausted, the time is over or the run is cut.
func (w *worker) run(ctx context.Context) {
	for _, l := range w.links {
		stop := context.AfterFunc(ctx, l.cutDeadline)
		defer stop()
		defer l.disconnect()
	}
	intended := w.pace.first
	for ctx.Err() == nil {
		sent := time.Now()
		from := sent
		if w.pace.every > 0 {
			if w.over(intended) {
				return
			}
			from = w.await(ctx, intended)
			sent = time.Now()
			if ctx.Err() != nil {
				return
			}
			if w.over(sent) {
				w.skip(intended)
				return
			}
			intended = intended.Add(w.pace.every)
		}
		if w.over(sent) || !w.source.next(&w.call, sent) {
			return
		}
		w.rest = 0
		w.exchange(ctx, from, sent)
		if w.rest > 0 && w.pace.every == 0 {
			w.pause(ctx, min(w.rest, mostRest))
		}
		if w.settling != nil && w.settling.vain.Load() > 0 {
			pause(ctx, redialWait) // asking again at once would hardly help
		}
	}
}

// pause waits, but not past the end.
func (w *worker) pause(ctx context.Context, d time.Duration) {
	if !w.pace.end.IsZero() {
		d = min(d, time.Until(w.pace.end))
	}
	pause(ctx, d)
}

func (w *worker) over(now time.Time) bool {
	return !w.pace.end.IsZero() && !now.Before(w.pace.end)
}

// route is the link to the node that leads the shard of the call's timer, if that is known.
func (w *worker) route() (l *link, leads bool) {
	if w.leaders != nil && len(w.call.numbers) == 1 {
		if at, known := w.leaders.Node(w.requests.place(w.call.numbers[0])); known {
			return w.links[at], true
		}
	}
	return w.links[w.own], false
}

// exchange sends the current call and books its answer; latency counts from the
// first of the two times, time-outs from the second. A call that had no
// answer is booked as such: it may have taken effect.
func (w *worker) exchange(ctx context.Context, from, sent time.Time) {
	l, leads := w.route()
	w.tally.inFlight.Add(1)
	got, err := l.ask(ctx, sent, w.requests.write(&w.call, l.fixed))
	w.tally.inFlight.Add(-1)
	now := time.Now()
	if ctx.Err() != nil && errors.Is(err, errNoConnection) {
		return // the run was cut before the call was sent
	}
	if err != nil {
		if leads {
			w.leaders.Forget(w.requests.place(w.call.numbers[0]))
		}
		w.recordFailure(l, err, from, now)
		if errors.Is(err, errNoConnection) {
			pause(ctx, redialWait)
		}
		return
	}
	if tooBusy(got.status) {
		w.rest = got.retry
	}
	if w.leaders != nil && got.leader != nil {
		w.leaders.Note(string(got.leader))
	}
	if len(w.call.numbers) == 1 {
		r := w.resultOf(got)
		if r.status == 0 { // somebody else's answer: so may be all that follow on this connection
			w.recordFailure(l, errAnswer, from, now)
			return
		}
		if w.call.op == opGet && r.status == 200 {
			w.tally.read(w.requests.names, w.ledger, w.call.numbers[0], got.body)
		}
		w.recordAll(l, r, from, now)
	} else {
		w.recordBatch(l, got, from, now)
	}
	if got.close {
		l.disconnect()
	}
}

// resultOf reads the answer to a call of one operation. Its status is 0 when the answer is about
// another timer, or when a read does not show the written version.
func (w *worker) resultOf(got answer) result {
	r := result{status: got.status, answer: got.text()}
	switch {
	case w.call.op == opCancel:
		r.outcome = outcomeOf(got.body)
	case got.status >= 200 && got.status <= 299 && !w.requests.isAbout(w.call.numbers[0], got.body):
		r.status = 0
	}
	return r
}

func (w *worker) recordFailure(l *link, err error, from, now time.Time) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.tally.timeouts.Add(1)
	} else {
		w.tally.broken.Add(1)
	}
	w.tally.failed(l.target.address + ": " + err.Error())
	l.disconnect()
	w.recordAll(l, result{}, from, now)
}

func (w *worker) record(number int64, r result, now time.Time) bool {
	if w.settling != nil {
		return w.settling.record(w.tally, number, r)
	}
	return w.tally.record(w.ledger, w.call.op, number, r, now)
}

// recordAll books the same end for every operation of the call.
func (w *worker) recordAll(l *link, r result, from, now time.Time) {
	failed := int64(0)
	for _, number := range w.call.numbers {
		if !w.record(number, r, now) {
			failed++
		}
	}
	if failed > 0 {
		w.complain(l, r)
	}
	w.measure(failed, r.status != 0, from, now)
}

// recordBatch books a batch by its results; those that the answer lacks are
// unknown.
func (w *worker) recordBatch(l *link, got answer, from, now time.Time) {
	if got.status != 200 {
		w.recordAll(l, result{status: got.status, answer: got.text()}, from, now)
		return
	}
	failed := int64(0)
	book := func(index int, r result) {
		if index >= len(w.call.numbers) {
			return
		}
		if tooBusy(r.status) {
			w.rest = restOfBatch
		}
		number := w.call.numbers[index]
		if r.id != "" && !w.requests.isID(number, r.id) {
			r = result{} // the answer about another timer
		}
		if !w.record(number, r, now) {
			failed++
			r.answer = got.body[max(bytes.Index(got.body, []byte(`"error":`)), 0):]
			w.complain(l, r)
		}
	}
	for index := scanResults(got.body, book); index < len(w.call.numbers); index++ {
		book(index, result{})
	}
	w.measure(failed, true, from, now)
}

// tooBusy reports that the same may be asked for again, a little later.
func tooBusy(status int) bool { return status == 429 || status == 503 }

// complain keeps the server's answer to an operation that failed, if it is the first.
func (w *worker) complain(l *link, r result) {
	if w.tally.first.Load() != nil || r.status == 202 {
		return
	}
	text := "an answer that lacks operations or is about others"
	if r.status != 0 {
		text = fmt.Sprintf("answered %d: %s", r.status, r.answer[:min(len(r.answer), 4*firstErrorRunes)])
	}
	w.tally.failed(fmt.Sprintf("%s: %v %s", l.target.address, w.call.op, text))
}

// measure counts the call's operations if they fall into the measured time. A
// request without an answer has no latency; it is an error.
func (w *worker) measure(failed int64, answered bool, from, now time.Time) {
	if w.settling != nil {
		w.settling.ended(failed == int64(len(w.call.numbers)))
		return
	}
	if from.Before(w.pace.measure) {
		return
	}
	w.tally.errors.Add(failed)
	w.tally.ops.Add(int64(len(w.call.numbers)) - failed)
	if answered {
		w.tally.latency.Record(now.Sub(from).Microseconds())
	}
}

// pause waits, less if the run is cut.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
