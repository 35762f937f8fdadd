package scheduler

import "carillon/internal/order"

// With per_key.fair the keys of a topic take turns, as long as their weights say.

// turnUnit is the length of a turn of weight 1.
const turnUnit = 10_000

// turnsOf is the shard's part of what the topic may do at once, where keys take turns: the weights
// of the keys with something due. 0: as any other shard.
func (k *topicKeys) turnsOf() int {
	if !k.mode.fair {
		return 0
	}
	return max(k.weights, 1)
}

// part sets the shard's part of the turns at a receiver.
func (k *topicKeys) part(p *order.Share) *order.Share {
	p.Weight = k.turnsOf()
	return p
}

// turns is the key's weight while it has something due, and takes turns.
func (k *keyQueue) turns() int {
	if !k.queue.mode.fair || k.inLine+k.heads == 0 {
		return 0
	}
	return int(k.weight)
}

// countTurns brings the sum of the topic's turns up to date, in the cluster too, after those of one
// key have changed.
func (k *keyQueue) countTurns(before int) {
	q := k.queue
	now := k.turns()
	if now == before {
		return
	}
	q.weights += now - before
	q.shareTurns()
	for q.weights == 0 && q.debts.Len() > 0 {
		q.debts.First().forget() // nobody waits: it owes nothing
	}
}

// shareTurns counts the weights of the keys with something due for the cluster.
func (q *topicQueue) shareTurns() {
	if q.limiterUse != nil {
		q.limiterUse.setWeights(q.weights)
	}
}

// setTag gives a timer that is let out its tag.
func (kq *keyQueues) setTag(l *keyLane) {
	if l.key.queue.mode.fair {
		l.tag = max(l.key.queue.virtual, l.key.ends)
	}
}

// endTurn ends a key's turn, as the head of one of its lanes is leased.
func (l *keyLane) endTurn() {
	if k, q := l.key, l.key.queue; q.mode.fair {
		q.virtual = max(q.virtual, l.tag)
		k.ends = max(k.ends, l.tag) + turnUnit/uint64(k.weight)
	}
}
