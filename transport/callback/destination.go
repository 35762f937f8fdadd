package callback

import (
	"container/list"
	"slices"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"carillon/internal/delivery"
	"carillon/internal/order"
	"carillon/transport/callback/address"
	"carillon/transport/callback/slots"
)

// maxGates bounds the breakers of one destination; further scopes share the
// unnamed one.
const maxGates = 1024

// breakerScope is one breaker scope at a destination, the slots.Breaker of its calls. All but
// logged is guarded by the pool's lock.
type breakerScope struct {
	dest    *destination
	scope   string
	circuit *breaker
	permits int // out now
	lastUse time.Time

	retryAt  time.Time   // of the refusal that was given last; zero: leave was given since
	alarm    *time.Timer // looks at a half-open breaker again
	alarmSet bool

	logged loggedState // of breakerLog
}

func (s *breakerScope) Allow() (done func(error)) {
	done, s.retryAt = s.circuit.allow()
	return done
}

func (s *breakerScope) Blocked() (blocked bool) {
	s.retryAt, blocked = s.circuit.blocked()
	return blocked
}

// destination is one receiver. All fields but line, client and those of sync/atomic are guarded by
// the pool's lock.
type destination struct {
	pool  *Pool
	key   address.Key // Scope ""
	label string

	slots   slots.Destination // its calls, and the waiters for one
	gates   map[string]*breakerScope
	lastUse time.Time
	recent  *list.Element            // in pool.recent; nil: the pool does not keep it
	place   order.Spot[*destination] // in pool.idle

	line    line                 // of the calls to be made
	client  *fasthttp.HostClient // its connections
	dropped atomic.Bool          // The pool has forgotten it.
	latency atomic.Int64         // moving mean of call times, ns
	failure atomic.Pointer[failure]
	inRow   atomic.Int64 // calls that failed since one succeeded, not with 410
	topics  atomic.Pointer[callers]
}

// maxCallers bounds the topics of callers.
const maxCallers = 8

// callers are the first topics whose timers called a destination, and whether there were more. It
// never changes: each new topic makes another one.
type callers struct {
	topics []string
	more   bool
}

// calledBy keeps the topic of a call: O(maxCallers).
func (d *destination) calledBy(topic string) {
	for topic != "" {
		before := d.topics.Load()
		if before != nil && (before.more || slices.Contains(before.topics, topic)) {
			return
		}
		next := &callers{}
		if before != nil {
			*next = *before
		}
		if len(next.topics) == maxCallers {
			next.more = true
		} else {
			next.topics = append(slices.Clip(next.topics), topic)
		}
		if d.topics.CompareAndSwap(before, next) {
			return
		}
	}
}

// failure is how a call failed.
type failure struct {
	text string
	at   time.Time
}

// gateFor returns the scope's breaker. Another policy makes another breaker: the old one counted by
// other rules.
func (d *destination) gateFor(scope string, policy Breaker) *breakerScope {
	g := d.gates[scope]
	if g == nil && len(d.gates) >= maxGates && scope != "" {
		if g = d.gates[""]; g != nil {
			return g
		}
		scope, policy = "", Breaker{}.withDefaults()
	}
	if g == nil {
		g = &breakerScope{dest: d, scope: scope}
		g.circuit = newBreaker(&d.pool.config, policy, g.report)
		d.gates[scope] = g
	} else if g.circuit.policy != policy {
		g.circuit = newBreaker(&d.pool.config, policy, g.report)
		g.report(false)
	}
	return g
}

// idle reports that nothing depends on the destination being kept.
func (d *destination) idle() bool { return d.slots.Calls() == 0 && !d.slots.Waits() }

func (d *destination) state() delivery.BreakerState {
	worst := delivery.BreakerClosed
	for _, g := range d.gates {
		worst = max(worst, g.circuit.state())
	}
	return worst
}

// fresh reports that none of its breakers would be forgotten with it.
func (d *destination) fresh() bool {
	for _, g := range d.gates {
		if !g.circuit.fresh() {
			return false
		}
	}
	return true
}

// dropIdleGates forgets breakers that nobody used since the given time.
func (d *destination) dropIdleGates(since time.Time) {
	for scope, g := range d.gates {
		if g.permits == 0 && g.lastUse.Before(since) && !d.slots.WaitsFor(g) && g.circuit.fresh() {
			delete(d.gates, scope)
		}
	}
}

// observe adds one call to the moving latency, weight one eighth.
func (d *destination) observe(took time.Duration) {
	for {
		old := d.latency.Load()
		mean := int64(took)
		if old != 0 {
			mean = old + (int64(took)-old)/8
		}
		if d.latency.CompareAndSwap(old, mean) {
			return
		}
	}
}
