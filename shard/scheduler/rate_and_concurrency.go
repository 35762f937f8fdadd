package scheduler

import (
	"math"
	"sync"
	"time"

	"carillon/internal/order"
	"carillon/timer"
)

// Shares knows how much of a topic's limits, which hold for the whole cluster, this node may use
// now. Its methods are called on workers, often.
//
// Invariant: the concurrent leases taken on all nodes never exceed the topic's limit; see
// ring.LimitAllocator.
type Shares interface {
	// Rate returns this node's part of the topic's rate: deliveries a second, and the burst that
	// may come in one instant.
	Rate(t *timer.Topic) (perSecond float64, burst int)
	// Concurrency returns this node's part of the limit, in concurrent leases. now is the host's
	// monotonic clock.
	Concurrency(t *timer.Topic, limit int, now time.Duration) int
	// Abandoned reports that this node stops counting a lease that may still be held; another node
	// must count it. It lowers this node's part by one until the other nodes have reported again.
	Abandoned(id timer.TopicID)
}

// Unlimited is the Shares of a host without peers.
type Unlimited struct{}

func (Unlimited) Rate(t *timer.Topic) (float64, int) {
	return t.Policy.Rate.PerSecond, t.Policy.Rate.Burst
}
func (Unlimited) Concurrency(_ *timer.Topic, n int, _ time.Duration) int { return n }
func (Unlimited) Abandoned(timer.TopicID)                                {}

// LimitPoll is how long a refused queue waits at most before it asks again without being notified.
const (
	LimitPoll = 100 * time.Millisecond
	ratePoll  = time.Second // … when a rate refuses of which no other node has a part
)

// Limits are the limits of a node's topics, shared by the schedulers of all workers. Each topic
// with a queue or a lease that counts has one; where keys have limits its timers without a key have
// another, under an id of its own (timer.Topic.Keyless).
type Limits struct {
	mu     sync.Mutex
	topics map[timer.TopicID]*limit
	shares Shares
	// manual: see Config.ManualClock. No other node has a part, so a refused queue is notified, or
	// knows when it may ask again. It does not poll: time would have to pass for that.
	manual bool
}

// NewLimits returns Limits without topics. Without shares the node may use each limit in full.
func NewLimits(shares Shares) *Limits {
	if shares == nil {
		shares = Unlimited{}
	}
	return &Limits{topics: map[timer.TopicID]*limit{}, shares: shares}
}

// NewManualLimits returns the Limits of a node with a manual clock.
func NewManualLimits() *Limits {
	l := NewLimits(nil)
	l.manual = true
	return l
}

// untilNotified is the wait of a queue that need not ask again by itself.
const untilNotified time.Duration = 1<<63 - 1

// Held returns how many leases of a topic with a limit this node counts: those that it took or
// found, and that have not ended.
func (l *Limits) Held(id timer.TopicID) int {
	return l.read(id, func(b *limit) int { return b.leases })
}

// KeyWeights returns the weights, together, of a topic's keys with something due on this node, if
// the topic has a limit and its keys take turns.
func (l *Limits) KeyWeights(id timer.TopicID) int {
	return l.read(id, func(b *limit) int { return b.weights })
}

func (l *Limits) read(id timer.TopicID, what func(*limit) int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.topics[id]
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return what(b)
}

// limit counts the use of one topic's limits by this node, over all its shards: concurrent leases
// and deliveries a second.
type limit struct {
	owner *Limits
	id    timer.TopicID

	mu      sync.Mutex
	weights int                     // of the keys with something due, of all queues
	users   int                     // queues that joined
	leases  int                     // not ended, or granted to a queue in advance
	lent    int                     // … the latter
	line    order.Line[*limiterUse] // waiting queues
	topic   *timer.Topic            // from the last acquire
	bucket  bucket
}

// bucket is the token bucket of a limit, guarded by limit.mu.
type bucket struct {
	begun     bool
	brims     bool // at the last fill it had no room for one token more
	tokens    float64
	perSecond float64       // at the last fill
	at        time.Duration // time of the last fill; monotonic
	brimmedAt time.Duration // when a token was last taken from one that brimmed; monotonic
}

// limiterUse is one queue's use of its topic's limit.
type limiterUse struct {
	limit   *limit
	notify  func() // a lease was granted, or it is time to ask again; called from any goroutine, must not block
	turn    order.Turn[*limiterUse]
	part    order.Share // of the turns, by keys
	weights int         // that limit.weights has of it
	lent    int         // granted in advance: the queue may lease so many timers
	want    int         // it stays in line until so many are
}

// join registers a queue at its topic's limit.
func (l *Limits) join(id timer.TopicID, notify func()) *limiterUse {
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
	p := &limiterUse{limit: b, notify: notify}
	p.turn = order.Turn[*limiterUse]{Of: p, Share: &p.part}
	return p
}

// setWeights counts the weights of a queue's keys that have something due.
func (u *limiterUse) setWeights(n int) {
	u.limit.mu.Lock()
	defer u.limit.mu.Unlock()
	u.limit.weights += n - u.weights
	u.weights = n
}

// leave undoes join.
func (u *limiterUse) leave(now time.Duration) {
	u.setWeights(0)
	u.release(now)
	b := u.limit
	b.owner.mu.Lock()
	defer b.owner.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	b.forget()
}

// forget drops an unused limit. Both locks are held.
func (l *limit) forget() {
	if l.users == 0 && l.leases == 0 && l.owner.topics[l.id] == l {
		delete(l.owner.topics, l.id)
	}
}

// acquire asks for one lease. If refused, the queue waits in line and asks again after wait at the
// latest. turns is its part of them; 0: as any other. want is how many more it could use before it
// asks again: they are granted in advance. With one alone, a queue with many turns would be out of
// line for most of them, while others are in it.
func (u *limiterUse) acquire(t *timer.Topic, turns, want int, now time.Duration) (ok bool, wait time.Duration) {
	b := u.limit
	b.mu.Lock()
	b.topic, u.part.Weight, u.want = t, turns, want
	var told []*limiterUse
	if u.lent == 0 {
		if !u.turn.In() {
			b.line.Push(&u.turn)
		}
		told, wait = b.serve(now, u)
	}
	if ok = u.lent > 0; ok {
		u.grant(-1)
	}
	b.mu.Unlock()
	notifyAll(told)
	return ok, wait
}

// grant counts leases that are granted to the queue, or used or returned by it. The lock is held.
func (u *limiterUse) grant(n int) {
	u.lent += n
	u.limit.lent += n
}

// keep undoes an acquire whose lease was not used: the queue's next acquire gets it.
func (u *limiterUse) keep() {
	u.limit.mu.Lock()
	defer u.limit.mu.Unlock()
	u.grant(1)
}

// spend uses a lease that was kept.
func (u *limiterUse) spend() {
	u.limit.mu.Lock()
	defer u.limit.mu.Unlock()
	u.grant(-1)
}

// granted reports that the queue has a lease that it has not used yet.
func (u *limiterUse) granted() bool {
	u.limit.mu.Lock()
	defer u.limit.mu.Unlock()
	return u.lent > 0
}

// inSight reports that the queue is in line, and other queues have leases that they do not use yet.
func (u *limiterUse) inSight() bool {
	u.limit.mu.Lock()
	defer u.limit.mu.Unlock()
	return u.turn.In() && u.limit.lent > 0
}

// beginEmpty has a new limit's bucket begin as one that was empty at a moment, not full.
func (l *limit) beginEmpty(t *timer.Topic, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.bucket.begun {
		perSecond, _ := l.owner.shares.Rate(t)
		l.bucket = bucket{begun: true, at: at, perSecond: perSecond}
	}
}

// rests reports that the limit's bucket is full, so that a new one is the same. A queue without a
// limit rests, too.
func (u *limiterUse) rests(now time.Duration) bool {
	if u == nil {
		return true
	}
	b := u.limit
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topic == nil || b.topic.Policy.Rate.PerSecond <= 0 {
		return true
	}
	_, burst := b.owner.shares.Rate(b.topic)
	return b.bucket.full(now, float64(max(burst, 1)))
}

// release leaves the line and returns what was granted: the queue has nothing to lease now.
func (u *limiterUse) release(now time.Duration) {
	b := u.limit
	b.mu.Lock()
	if u.lent == 0 && !u.turn.In() {
		b.mu.Unlock()
		return
	}
	if u.turn.In() {
		b.line.Leave(&u.turn)
	}
	b.leases -= u.lent
	b.bucket.tokens += float64(u.lent)
	u.grant(-u.lent)
	told, _ := b.serve(now, nil)
	b.mu.Unlock()
	notifyAll(told)
}

// lend counts a lease that was not acquired: it was taken before the topic had a limit, or by a
// former leader.
func (l *limit) lend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases++
}

// end counts the end of a lease of a moment. If its call never started, its token is returned too.
func (l *limit) end(now, takenAt time.Duration, delivered bool) {
	l.mu.Lock()
	l.leases--
	if !delivered {
		l.bucket.giveBack(takenAt)
	}
	told, _ := l.serve(now, nil)
	idle := l.users == 0 && l.leases == 0
	l.mu.Unlock()
	notifyAll(told)
	if idle {
		l.owner.mu.Lock()
		l.mu.Lock()
		l.forget()
		l.mu.Unlock()
		l.owner.mu.Unlock()
	}
}

func notifyAll(list []*limiterUse) {
	for _, p := range list {
		p.notify()
	}
}

// shut returns the limit that refuses this queue one more lease, and when to look again.
func (u *limiterUse) shut(now time.Duration) (cause timer.WaitCause, wait time.Duration) {
	b := u.limit
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.lent > 0 || b.topic == nil {
		return timer.NoWait, 0
	}
	ok, wait := b.room(now)
	switch most := b.topic.Policy.Concurrency; {
	case ok:
		return timer.NoWait, 0
	case most > 0 && b.leases >= b.owner.shares.Concurrency(b.topic, most, now):
		return timer.WaitConcurrency, wait
	}
	return timer.WaitRate, wait
}

// places is how many more leases the limit lets the queue have now, one at least: who is refused that
// one waits in line. A queue without a limit may have any number.
func (u *limiterUse) places(now time.Duration) int {
	if u == nil {
		return math.MaxInt32
	}
	b := u.limit
	b.mu.Lock()
	defer b.mu.Unlock()
	n := math.MaxInt32
	if b.topic == nil {
		return n
	}
	if ok, _ := b.room(now); !ok {
		return max(1, u.lent)
	}
	p := &b.topic.Policy
	if p.Concurrency > 0 {
		n = b.owner.shares.Concurrency(b.topic, p.Concurrency, now) - b.leases
	}
	if p.Rate.PerSecond > 0 {
		n = min(n, int(b.bucket.tokens))
	}
	return max(1, n+u.lent)
}

// serve grants leases to waiting queues in order, while there is room. It returns the queues to
// notify, without asker, and when to look again. O(log n) of the queues for each lease that is
// granted, at most mostAhead for each queue.
func (l *limit) serve(now time.Duration, asker *limiterUse) (told []*limiterUse, wait time.Duration) {
	for l.line.Len() > 0 {
		ok, wait := l.room(now)
		if !ok {
			if l.owner.manual && asker == nil && wait < untilNotified { // they do not poll: they learn when to ask again
				for i := range l.line.Len() {
					told = append(told, l.line.At(i))
				}
			}
			return told, wait
		}
		p := l.line.First()
		l.line.Serve(&p.turn)
		p.grant(1)
		l.leases++
		if p.lent < p.want {
			l.line.Push(&p.turn)
		}
		if l.topic.Policy.Rate.PerSecond > 0 {
			l.bucket.take()
		}
		if p != asker && p.lent == 1 {
			told = append(told, p)
		}
	}
	return told, 0
}

// room reports whether one more lease is within the limits. If not, wait is when to look again.
func (l *limit) room(now time.Duration) (ok bool, wait time.Duration) {
	p, shares := &l.topic.Policy, l.owner.shares
	if p.Concurrency > 0 && l.leases >= shares.Concurrency(l.topic, p.Concurrency, now) {
		if l.owner.manual {
			return false, untilNotified
		}
		return false, LimitPoll
	}
	if p.Rate.PerSecond <= 0 {
		return true, 0
	}
	perSecond, burst := shares.Rate(l.topic)
	if wait := l.owner.fill(&l.bucket, now, perSecond, burst); wait > 0 || burst <= 0 {
		if wait == 0 {
			wait = LimitPoll
		}
		poll := ratePoll
		if burst < p.Rate.Burst {
			poll = LimitPoll // other nodes have a part; this node's may change by then
		}
		if l.owner.manual {
			poll = wait
		}
		return false, min(max(wait, time.Millisecond), poll)
	}
	return true, 0
}

// fill fills a bucket and returns how long until it has a token. A manual clock knows whole
// milliseconds only: a token that comes within the present one is there already, and the bucket
// owes the rest of the time.
func (l *Limits) fill(b *bucket, now time.Duration, perSecond float64, burst int) time.Duration {
	wait := b.fill(now, perSecond, float64(max(burst, 1)))
	if l.manual {
		wait = wait.Truncate(time.Millisecond)
	}
	return wait
}

// fill adds the tokens since the last fill and returns how long until one is available.
func (b *bucket) fill(now time.Duration, perSecond, most float64) (wait time.Duration) {
	if !b.begun {
		b.begun, b.tokens, b.at = true, most, now
	}
	// At the rate of the last fill; a change of rate applies from the next one.
	b.tokens = min(most, b.tokens+max(0, (now-b.at).Seconds())*b.perSecond)
	b.at, b.perSecond, b.brims = max(b.at, now), perSecond, b.tokens > most-1
	const slack = 1e-9 // rounding errors of sums
	if b.tokens >= 1-slack {
		return 0
	}
	if perSecond <= 0 {
		return LimitPoll
	}
	return time.Duration(math.Ceil(min((1-slack/2-b.tokens)/perSecond*1e9, float64(time.Hour))))
}

// full reports that a fill would fill it. It changes nothing: a fill holds from then on for the
// rate of that moment.
func (b *bucket) full(now time.Duration, most float64) bool {
	return !b.begun || b.tokens+max(0, (now-b.at).Seconds())*b.perSecond >= most
}

// take takes a token. fill has found that there is one.
func (b *bucket) take() {
	b.tokens--
	if b.brims {
		b.brims, b.brimmedAt = false, b.at
	}
}

// noToken is when a lease took its token that has taken none of a bucket: it is from before the
// policy that the bucket is for.
const noToken time.Duration = -1

// giveBack returns a token that was not used. If others were taken meanwhile from a bucket that
// brimmed, it would have overflowed: with it, more than a burst would go at once.
func (b *bucket) giveBack(takenAt time.Duration) {
	if takenAt >= b.brimmedAt {
		b.tokens++
	}
}
