package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"carillon/client"
	"carillon/loadtest/hist"
	"carillon/loadtest/sink"
)

// Receivers has the findings of a run with many receivers. Other is another topic with one receiver
// that answers: otherRate timers a second, added long before they are due.
type Receivers struct {
	Receivers int    `json:"receivers"`
	Do        string `json:"do"`

	// From the instant until nothing of it was due any more.
	DrainedSeconds float64 `json:"drained_seconds"`
	Undrained      int64   `json:"undrained"` // still due when --drain was over

	OtherBefore hist.Summary `json:"other_before_ms"` // lateness before the instant
	OtherDuring hist.Summary `json:"other_during_ms"` // lateness from the instant until the end
	OtherFired  int64        `json:"other_fired"`
	OtherLost   int64        `json:"other_lost"`
	OtherErrors int64        `json:"other_errors"` // batches of adds that failed
}

// What the receivers of a run may do.
const (
	doAnswer = "answer"
	doRefuse = "refuse" // nobody listens
	doHang   = "hang"   // take the call and never answer
	doSlow   = "slow"   // answer after slowAnswer
	doHalf   = "half"   // every second one answers; the others do one of the rest
)

var doings = []string{doAnswer, doRefuse, doHang, doSlow, doHalf}

const (
	maxReceivers     = 1 << 20
	maxReceiverConns = 32_768 // a node keeps a few thousand

	slowAnswer  = 200 * time.Millisecond
	callTimeout = 500 * time.Millisecond // of calls that are in vain
	hangTime    = 4 * callTimeout        // the call has been given up by then

	refusingPort = 1
)

// receivers are the many addresses to which the timers of a run go. Each is a receiver of its own
// to the server; all of them are this process, which listens on every address of the machine.
type receivers struct {
	count int64
	do    string
	port  int
}

// doing is what the receiver of a timer does.
func (r *receivers) doing(number int64) string {
	if r.do != doHalf {
		return r.do
	}
	receiver := number % r.count
	if receiver%2 == 0 {
		return doAnswer
	}
	return []string{doRefuse, doHang, doSlow}[receiver/2%3]
}

// cannotSucceed reports whether no call of a timer can succeed.
func (r *receivers) cannotSucceed(number int64) bool {
	doing := r.doing(number)
	return doing == doRefuse || doing == doHang
}

// appendCallback appends the fields of an add that name its receiver.
func (r *receivers) appendCallback(to []byte, number int64) []byte {
	port := r.port
	if r.doing(number) == doRefuse {
		port = refusingPort
	}
	receiver := number % r.count
	to = fmt.Appendf(to, `,"callback":{"url":"http://127.%d.%d.%d:%d/"`, 16+receiver>>16, receiver>>8&255, receiver&255, port)
	if r.cannotSucceed(number) {
		return fmt.Appendf(to, `,"timeout":%q},"retry":{"max_attempts":1}`, callTimeout)
	}
	return append(to, '}')
}

// delayAnswer waits as long with the answer to a delivery as its receiver does.
func (r *receivers) delayAnswer(number int64) {
	switch r.doing(number) {
	case doSlow:
		pause(context.Background(), slowAnswer)
	case doHang:
		pause(context.Background(), hangTime)
	}
}

// manyReceivers has the run's timers go to many receivers, and another topic's to one of them.
func (r *run) manyReceivers(listener net.Listener, one sink.Handler) (sink.Handler, error) {
	var err error
	if r.api, err = client.New(r.config.URL, client.Options{HTTP: &http.Client{Transport: &http.Transport{DialContext: r.network.dial, TLSClientConfig: r.tls.Clone()}}, Token: r.config.Token}); err != nil {
		return nil, fmt.Errorf("loadtest: %w", err)
	}
	port := 0
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		port = address.Port
	}
	r.receivers = &receivers{count: int64(r.config.Receivers), do: r.config.ReceiversDo, port: port}
	r.other = newOther(r, port)
	return func(d *sink.Delivery) int {
		if !r.other.receive(d) {
			one(d)
			r.receivers.delayAnswer(max(r.names.parseID(d.Timer), 0))
		}
		return 200
	}, nil
}

// instant is when all timers of a same-instant run are due.
func (r *run) instant() time.Time {
	d, _ := parseDelay(r.config.Delay) // validated
	return r.start.Add(d.from)
}

// withOther calls f while the other topic fires; without many receivers there is none.
func (r *run) withOther(ctx context.Context, f func()) {
	if r.receivers == nil {
		f()
		return
	}
	adding, stop := context.WithCancel(ctx)
	var adder sync.WaitGroup
	adder.Go(func() { r.other.add(adding) })
	f()
	stop()
	adder.Wait()
	r.other.await(ctx)
}

// drainReceivers waits until no timer of the instant is due any more. Receivers that refuse or hang
// show nothing, so that the server is asked.
func (r *run) drainReceivers(ctx context.Context) {
	instant := r.instant()
	pause(ctx, time.Until(instant))
	limit := instant.Add(r.config.Drain)
	for due := int64(-1); due != 0 && ctx.Err() == nil; due = r.stillDue(ctx) {
		if time.Now().After(limit) {
			r.undrained = max(due, 1)
			break
		}
		pause(ctx, 50*time.Millisecond)
	}
	end := time.Now()
	if last := r.tally.lastFiredUs.Load(); r.config.ReceiversDo == doAnswer && r.undrained == 0 && last > 0 {
		end = time.UnixMicro(last)
	}
	r.drained = end.Sub(instant)
	end = time.Now()
	r.end.Store(&end)
}

// countEarlier counts the timers that are in the run's topics before it adds any.
func (r *run) countEarlier(ctx context.Context) {
	if r.receivers != nil {
		due, dead := r.count(ctx)
		r.earlier, r.earlierDead = max(due, 0), dead
	}
}

// stillDue is how many timers of the run's topics have not ended, without earlier ones; −1: not
// known. Those of receivers that refuse or hang are dead letters by then.
func (r *run) stillDue(ctx context.Context) int64 {
	due, dead := r.count(ctx)
	if due < 0 {
		return -1
	}
	r.tally.dead.Store(max(dead-r.earlierDead, 0))
	return max(due-r.earlier, 0)
}

// count is how many timers of the run's topics have not ended, and how many are dead letters; −1:
// not known.
func (r *run) count(ctx context.Context) (due, dead int64) {
	for topic := range r.names.topics {
		body, err := r.api.Do(ctx, client.Request{Method: "GET", Path: client.Path("topics", string(r.names.appendTopic(nil, topic)))})
		var answer struct {
			Counts struct {
				Scheduled, Leased, Dead int64
			}
		}
		if err != nil || json.Unmarshal(body, &answer) != nil {
			return -1, 0
		}
		due += answer.Counts.Scheduled + answer.Counts.Leased
		dead += answer.Counts.Dead
	}
	return due, dead
}

// ofReceivers are the findings; nil: the run had one receiver.
func (r *run) ofReceivers() *Receivers {
	if r.receivers == nil {
		return nil
	}
	found := &Receivers{Receivers: r.config.Receivers, Do: r.config.ReceiversDo, DrainedSeconds: r.drained.Seconds(), Undrained: r.undrained}
	r.other.report(found)
	return found
}

// checkReceivers finds faults of what was asked about receivers.
func (c Config) checkReceivers(check func(ok bool, format string, args ...any)) {
	check(c.Receivers >= 0 && c.Receivers <= maxReceivers, "%d receivers are not within 0 to %d", c.Receivers, maxReceivers)
	check(slices.Contains(doings, c.ReceiversDo), "receivers do one of %s, not %q", strings.Join(doings, ", "), c.ReceiversDo)
	many := c.Mode == ModeFire && c.SameInstant && c.Sink == ""
	check(c.Receivers == 0 || many, "many receivers need fire, --same-instant and the built-in receiver")
}

// writeTo prints the findings below the table.
func (r *Receivers) writeTo(w io.Writer) {
	fmt.Fprintf(w, "  %d receivers (%s): nothing was due any more after %.2fs", r.Receivers, r.Do, r.DrainedSeconds)
	if r.Undrained > 0 {
		fmt.Fprintf(w, " but for %d timers", r.Undrained)
	}
	fmt.Fprintf(w, "\n  another topic, %d timers a second, before and during:\n", otherRate)
	writeRow(w, "before", r.OtherBefore)
	writeRow(w, "during", r.OtherDuring)
	if r.OtherLost+r.OtherErrors > 0 {
		fmt.Fprintf(w, "  ! of these %d did not arrive; %d requests that add some failed\n", r.OtherLost, r.OtherErrors)
	}
}
