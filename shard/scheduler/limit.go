package scheduler

import (
	"sync"
	"time"

	"carillon/timer"
)

// Shares says how much of what a topic may do in the whole cluster this node may do now. Its
// methods are called on workers, often.
//
// Invariant: of leases at once, the sum over all nodes of what has been taken is at most the whole
// at any time; see ring.Shares.
type Shares interface {
	// Rate is the part of the topic's rate: so many deliveries a second now, and so many of them in
	// one instant.
	Rate(t *timer.Topic) (perSecond float64, burst int)
	// Concurrency is how many of so many leases at once may be this node's. now is the host's
	// monotonic clock.
	Concurrency(t *timer.Topic, limit int, now time.Duration) int
	// Abandoned says that a lease which this node does not count any more may still be one, and is
	// another's to count: what this node may have goes down by it, until the others have said anew
	// what they have.
	Abandoned(id timer.TopicID)
}

// Unlimited is the Shares of a host that is alone.
type Unlimited struct{}

func (Unlimited) Rate(t *timer.Topic) (float64, int) {
	return t.Policy.Rate.PerSecond, t.Policy.Rate.Burst
}
func (Unlimited) Concurrency(_ *timer.Topic, n int, _ time.Duration) int { return n }
func (Unlimited) Abandoned(timer.TopicID)                                {}

// LimitPoll is when a queue that was refused asks again, though nothing has been given back that it
// was told of.
const (
	LimitPoll = 100 * time.Millisecond
	ratePoll  = time.Second // … for a delivery that the rate does not bring sooner
)

// Limits are those of this node's topics: what the schedulers of all workers share. There is one
// for each topic that has a queue or a lease.
type Limits struct {
	mu     sync.Mutex
	topics map[timer.TopicID]*limit
	shares Shares
}

// NewLimits are limits of which no topic has one yet. Without shares the node has all for itself.
func NewLimits(shares Shares) *Limits {
	if shares == nil {
		shares = Unlimited{}
	}
	return &Limits{topics: map[timer.TopicID]*limit{}, shares: shares}
}

// Held is how many leases of a topic with a limit this node has taken, or has found, that have not
// ended.
func (l *Limits) Held(id timer.TopicID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.topics[id]
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leases
}

// limit is what one topic may do on this node, over all its shards here: leases at once, and
// deliveries a second.
type limit struct {
	owner *Limits
	id    timer.TopicID

	mu     sync.Mutex
	users  int           // places
	leases int           // that have not ended, or are lent
	line   []*limiterUse // who waits, in order; no place twice
	topic  *timer.Topic  // as it was last asked for
	bucket bucket
}

// bucket holds what may be delivered at once; it fills by time. It belongs to its limit.
type bucket struct {
	begun     bool
	tokens    float64
	perSecond float64       // as it was last looked at
	at        time.Duration // when that was; monotonic
}

// limiterUse is a queue's standing at its topic's limit.
type limiterUse struct {
	limit  *limit
	tell   func() // a lease was lent; called from any goroutine, must not block
	inLine bool
	lent   bool // it may lease one timer
}

// join gives a queue its place.
func (l *Limits) join(id timer.TopicID, tell func()) *limiterUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.topics[id]
	if b == nil {
		b = &limit{owner: l, id: id}
		l.topics[id] = b
	}
	b.mu.Lock()
	b.users++
	b.mu.Unlock()
	return &limiterUse{limit: b, tell: tell}
}

// leave ends a place.
func (p *limiterUse) leave(now time.Duration) {
	p.release(now)
	b := p.limit
	b.owner.mu.Lock()
	defer b.owner.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	b.forget()
}

// forget drops a limit that nobody uses. Both locks are held.
func (b *limit) forget() {
	if b.users == 0 && b.leases == 0 && b.owner.topics[b.id] == b {
		delete(b.owner.topics, b.id)
	}
}

// acquire asks for leave to lease one timer; without it, the place is in line, and wait says when
// to ask again at the latest.
func (p *limiterUse) acquire(t *timer.Topic, now time.Duration) (ok bool, wait time.Duration) {
	b := p.limit
	b.mu.Lock()
	b.topic = t
	if p.lent {
		p.lent = false
		b.mu.Unlock()
		return true, 0
	}
	if !p.inLine {
		p.inLine = true
		b.line = append(b.line, p)
	}
	told, wait := b.serve(now, p)
	ok = p.lent
	p.lent = false
	b.mu.Unlock()
	tellAll(told)
	return ok, wait
}

// keep takes back what was taken and not used yet: the place's next try has it.
func (p *limiterUse) keep() {
	p.limit.mu.Lock()
	defer p.limit.mu.Unlock()
	p.lent = true
}

// release leaves the line, and returns what was lent: the queue has nothing to lease now.
func (p *limiterUse) release(now time.Duration) {
	b := p.limit
	b.mu.Lock()
	if !p.lent && !p.inLine {
		b.mu.Unlock()
		return
	}
	if p.inLine {
		p.inLine = false
		for i, o := range b.line {
			if o == p {
				b.line = append(b.line[:i:i], b.line[i+1:]...)
				break
			}
		}
	}
	if p.lent {
		p.lent = false
		b.leases--
		b.bucket.tokens++
	}
	told, _ := b.serve(now, nil)
	b.mu.Unlock()
	tellAll(told)
}

// lend counts a lease that this node's leads did not ask for: it was taken before the limit was
// there, or by a former leader.
func (b *limit) lend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leases++
}

// end counts a lease that has ended. Of one whose call was never started the delivery does not
// count either.
func (b *limit) end(now time.Duration, delivered bool) {
	b.mu.Lock()
	b.leases--
	if !delivered {
		b.bucket.tokens++
	}
	told, _ := b.serve(now, nil)
	idle := b.users == 0 && b.leases == 0
	b.mu.Unlock()
	tellAll(told)
	if idle {
		b.owner.mu.Lock()
		b.mu.Lock()
		b.forget()
		b.mu.Unlock()
		b.owner.mu.Unlock()
	}
}

func tellAll(list []*limiterUse) {
	for _, p := range list {
		p.tell()
	}
}

// shut is the limit that keeps a place from one more lease.
func (p *limiterUse) shut(now time.Duration) timer.WaitCause {
	b := p.limit
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.lent || b.topic == nil {
		return timer.NoWait
	}
	if most := b.topic.Policy.Concurrency; most > 0 && b.leases >= b.owner.shares.Concurrency(b.topic, most, now) {
		return timer.WaitConcurrency
	}
	if ok, _ := b.room(now); !ok {
		return timer.WaitRate
	}
	return timer.NoWait
}

// serve lends to those in line as far as there is room. asker need not be told.
func (b *limit) serve(now time.Duration, asker *limiterUse) (told []*limiterUse, wait time.Duration) {
	for len(b.line) > 0 {
		ok, wait := b.room(now)
		if !ok {
			return told, wait
		}
		p := b.line[0]
		b.line[0] = nil
		if b.line = b.line[1:]; len(b.line) == 0 {
			b.line = nil
		}
		p.inLine, p.lent = false, true
		b.leases++
		if b.topic.Policy.Rate.PerSecond > 0 {
			b.bucket.tokens--
		}
		if p != asker {
			told = append(told, p)
		}
	}
	return told, 0
}

// room says whether one more lease is within the limits, and if not when to look again.
func (b *limit) room(now time.Duration) (ok bool, wait time.Duration) {
	p, shares := &b.topic.Policy, b.owner.shares
	if p.Concurrency > 0 && b.leases >= shares.Concurrency(b.topic, p.Concurrency, now) {
		return false, LimitPoll
	}
	if p.Rate.PerSecond <= 0 {
		return true, 0
	}
	perSecond, burst := shares.Rate(b.topic)
	if wait := b.bucket.fill(now, perSecond, float64(max(burst, 1))); wait > 0 || burst <= 0 {
		if wait == 0 {
			wait = LimitPoll
		}
		poll := ratePoll
		if burst < p.Rate.Burst {
			poll = LimitPoll // others have a part: it may be this node's turn, or the end of it, by then
		}
		return false, min(max(wait, time.Millisecond), poll)
	}
	return true, 0
}

// fill adds what time has brought and says how long it takes until there is one to take.
func (b *bucket) fill(now time.Duration, perSecond, most float64) (wait time.Duration) {
	if !b.begun {
		b.begun, b.tokens, b.at = true, most, now
	}
	b.tokens = min(most, b.tokens+max(0, (now-b.at).Seconds())*b.perSecond) // as it was then: that it has changed since is seen at each look
	b.at, b.perSecond = max(b.at, now), perSecond
	const slack = 1e-9 // of adding up fractions
	if b.tokens >= 1-slack {
		return 0
	}
	if perSecond <= 0 {
		return LimitPoll
	}
	return time.Duration(min((1-b.tokens)/perSecond*1e9, float64(time.Hour))) + 1
}
