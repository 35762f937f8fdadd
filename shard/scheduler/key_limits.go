package scheduler

import (
	"time"

	"carillon/timer"
)

// Limits of keys: how many timers of a key may run, and how many a second.

// keyMode is what keys are kept for, by the topic's policy.
type keyMode struct {
	serial bool
	most   int // leases of a key at once; 0: any number
	rate   timer.Rate
	fair   bool
}

func keyModeOf(t *timer.Topic) keyMode {
	if t == nil {
		return keyMode{}
	}
	p := &t.Policy
	m := keyMode{serial: p.Serial, most: p.KeyConcurrency(), fair: p.PerKey.TakeTurns()}
	if p.PerKey != nil {
		m.rate = p.PerKey.Rate
	}
	return m
}

// on reports that keys are kept.
func (m keyMode) on() bool { return m != keyMode{} }

// rated reports that keys have a rate.
func (m keyMode) rated() bool { return m.rate.PerSecond > 0 }

// keyGate is what keeps a key's timers in line.
type keyGate uint8

const (
	free  keyGate = iota // only those of the key that go first
	full                 // leases of the key
	spent                // the key's rate
	keyGates
)

// admits reports that the key's limits let one more of its timers go. If its rate does not, it asks
// again when there is a token. Where shards share its limit it waits in line, and asks for a grant
// if a timer goes now.
func (kq *keyQueues) admits(k *keyQueue, now bool) bool {
	gate, wait := kq.gateOf(k)
	if u := k.shared(); u != nil && (now || gate != free) {
		var ok bool
		if ok, wait = u.acquire(k.queue.keylessAs, 0, 1, kq.now.Mono); ok {
			u.keep()
			gate = free
		} else { // if there is room by now it will be notified
			gate, _ = kq.gateOf(k)
			gate = max(gate, full)
		}
	}
	k.setGate(gate)
	if wait > 0 && wait < untilNotified {
		kq.askAgain(k, wait)
	}
	return gate == free
}

// shared is the limit that the timers of the key share with those of other shards; nil: they do
// not.
func (k *keyQueue) shared() *limiterUse {
	if k.hash != 0 {
		return nil
	}
	return k.queue.keyless
}

func (k *keyQueue) setGate(gate keyGate) {
	if gate != k.first.gate && !k.dropped() {
		k.queue.waiting[k.first.gate] -= int(k.first.timers)
		k.first.gate = gate
		k.queue.waiting[gate] += int(k.first.timers)
	}
}

// gateOf returns what keeps the timers of a key, and for how long its rate does.
func (kq *keyQueues) gateOf(k *keyQueue) (keyGate, time.Duration) {
	mode := &k.queue.mode
	if u := k.shared(); u != nil {
		switch cause, wait := u.shut(kq.now.Mono); cause {
		case timer.NoWait:
			return free, 0
		case timer.WaitConcurrency:
			return full, wait
		default:
			return spent, wait
		}
	}
	if mode.most > 0 && int(k.leased) >= mode.most {
		return full, 0
	}
	if wait := kq.fill(k); wait > 0 {
		return spent, wait
	}
	return free, 0
}

// fill fills the bucket of a key, and returns how long until it has a token.
func (kq *keyQueues) fill(k *keyQueue) time.Duration {
	if rate := &k.queue.mode.rate; k.queue.mode.rated() {
		return kq.cfg.Limiters.fill(&k.bucket, kq.now.Mono, rate.PerSecond, rate.Burst)
	}
	return 0
}

// askAgain has a key ask again after a while, unless it asks before that.
func (kq *keyQueues) askAgain(k *keyQueue, after time.Duration) {
	at := kq.now.Mono + max(after, time.Millisecond)
	if k.askAt == 0 || at < k.askAt {
		k.askAt = at
		kq.topics.shut.push(shutKey{until: at, key: k})
	}
}

// reopen has a key ask again.
func (kq *keyQueues) reopen(k *keyQueue, at time.Duration) {
	if k.askAt != at || k.dropped() || k.queue.keys[k.hash] != k {
		return
	}
	k.askAt = 0
	if k.first.gate == spent {
		k.freeMs = kq.now.WallMs
	}
	if k.shared() != nil {
		kq.limits.restKeyless(k.queue)
	}
	kq.moveUp(k)
}

// keptDebts is how many keys of a topic are kept for their debts alone.
const keptDebts = 256

// forgetEmpty drops the queue of a key that has nothing, a full bucket and no debt. With too many
// debts a turn ends for all keys: one with a backlog has its turns however many others there are.
func (kq *keyQueues) forgetEmpty(k *keyQueue) {
	q := k.queue
	if !k.empty() || k.dropped() || q.keys[k.hash] != k {
		return
	}
	if kq.fill(k); q.mode.rated() && k.bucket.tokens < float64(q.mode.rate.Burst) {
		return
	}
	if !k.owes() {
		k.forget()
		return
	}
	k.spot.Leave()
	q.debts.Push(&k.spot)
	if q.debts.Len() > keptDebts {
		first := q.debts.First()
		q.virtual = max(q.virtual, first.ends)
		first.forget()
	}
}

// owes reports that the last turn of a key has not ended, and others wait for theirs.
func (k *keyQueue) owes() bool {
	return k.queue.mode.fair && k.queue.weights > 0 && k.ends > k.queue.virtual
}

func (k *keyQueue) forget() {
	q := k.queue
	delete(q.keys, k.hash)
	k.spot.Leave()
	q.waiting[k.first.gate] -= int(k.first.timers) // they come back
	k.order = q.order - 1                          // dropped
}

// forgetRested drops the queues of keys whose buckets have filled, or whose turns have ended, so
// many at most, in turn. It returns how many it looked at.
func (kq *keyQueues) forgetRested(q *topicQueue, most int) (looked int) {
	for range min(q.debts.Len(), most) {
		looked++
		if q.debts.First().owes() {
			break
		}
		q.debts.First().forget()
	}
	if !q.mode.rated() {
		return looked
	}
	most = min(q.keyRing.Len(), most)
	for range most {
		kq.forgetEmpty(q.keyRing.Rotate())
	}
	return looked + most
}

// inLine counts the timers in line by what they wait for. What timers without a key share may have
// been given back by another shard since the key's gate was set.
func (kq *keyQueues) inLine(q *topicQueue) [keyGates]int {
	line := q.waiting
	if k := q.keys[0]; k != nil && k.shared() != nil {
		gate, _ := kq.gateOf(k)
		line[k.first.gate] -= int(k.first.timers)
		line[gate] += int(k.first.timers)
	}
	return line
}

// waitOf returns the reason of its key why a due timer waits. One that was let out has passed its
// key: it waits for its receiver.
func (kq *keyQueues) waitOf(q *topicQueue, h timer.Handle) timer.Wait {
	if q.keys == nil {
		return timer.Wait{}
	}
	k := q.keys[kq.hashOf(q, h)]
	if k == nil {
		return timer.Wait{}
	}
	if c := kq.refs[h]; c.lane != nil && c.lane.key == k && kq.table.Live(h, c.seq) && !c.leased && c.lane.ready && !c.lane.unqueued {
		return timer.Wait{}
	}
	gate, _ := kq.gateOf(k)
	switch head := k.first.head.handle; {
	case gate == full:
		return timer.Wait{For: timer.WaitKey, On: kq.holderOf(k)}
	case gate == spent:
		return timer.Wait{For: timer.WaitKeyRate}
	case q.mode.serial && head != 0 && head != h:
		return timer.Wait{For: timer.WaitKey, On: kq.table.ID(head)}
	}
	return timer.Wait{}
}

// holderOf returns the id of the timer whose lease has the key; "" if unknown. Of several leases
// only the last is known.
func (kq *keyQueues) holderOf(k *keyQueue) string {
	if k.active != nil {
		return kq.table.ID(k.active.handle)
	}
	if c := kq.refs[k.holder]; c.lane != nil && c.lane.key == k && c.leased {
		return kq.table.ID(k.holder)
	}
	return ""
}

// take gives the key to a head, whose lease is being proposed. moveUp must follow.
func (kq *keyQueues) take(f *activeLease) {
	l := kq.refs[f.handle].lane
	k := l.key
	f.key, f.firm, f.kept = k, l.blocking, f.kept || f.dueMs <= k.freeMs
	kq.use(l)
	k.active = f
}

// reserve gives the key to a head, whose lease for a consumer is being proposed.
func (kq *keyQueues) reserve(e entry) {
	l := kq.refs[e.handle].lane
	kq.use(l)
	l.key.holder = e.handle
	kq.refs[e.handle] = keyRef{lane: &l.key.first, seq: e.seq, leased: true}
	kq.moveUp(l.key)
}

// use counts a lease of the head of a lane.
func (kq *keyQueues) use(l *keyLane) {
	k, q := l.key, l.key.queue
	l.endTurn()
	if q.mode.rated() {
		k.bucket.take()
	}
	k.leased++
	if u := k.shared(); u != nil {
		u.spend()
	}
	gate, _ := kq.gateOf(k)
	k.setGate(gate)
	kq.clearHead(l)
	kq.rest(l)
}

// freed frees the key when a lease has ended, or was not granted. A timer that will be tried again
// still blocks the key of a serial topic.
func (kq *keyQueues) freed(f *activeLease) {
	k := f.key
	if f.key = nil; k == nil || !kq.active || k.dropped() {
		return
	}
	if k.queue.mode.rated() && !f.called {
		k.bucket.giveBack(f.takenAt)
	}
	if k.active == f {
		k.active = nil
	}
	kq.unlease(k)
	kq.block(k, f.handle)
	kq.moveUp(k)
}

// unlease counts the end of a lease.
func (kq *keyQueues) unlease(k *keyQueue) {
	k.leased--
	if k.queue.mode.most > 0 {
		k.freeMs = kq.now.WallMs
	}
}
