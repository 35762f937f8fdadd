package node

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carillon/shard"
)

// Bounds of a lounge: those beyond find no seat, and must ask again.
const (
	maxSeats   = 20_000
	maxWatches = 1_000
)

// lounge is where those wait who pull from topics that have nothing ready: this node's clients, and other nodes on behalf of theirs. A shard's
// leader calls when timers have become ready, and as long as they are; who has waited longest is woken first, as many as there is work for.
// To be woken is no promise: another may be quicker, and then the place in the line is kept.
type lounge struct {
	seated  atomic.Int32
	mu      sync.Mutex
	benches map[shard.TopicID]*bench
	watches int
}

// bench are those who wait for one topic.
type bench struct {
	seats   []*seat         // who came first is first
	watched map[uint64]bool // nodes that were asked to call here
}

// seat is one who waits.
type seat struct {
	topic shard.TopicID
	want  int           // timers
	since time.Time     // when its waiting began
	node  uint64        // it waits for clients there; 0: it is this node's own
	wake  chan struct{} // capacity 1
	gone  bool          // it was woken, or left
}

func newLounge() *lounge { return &lounge{benches: map[shard.TopicID]*bench{}} }

// sit takes a seat; nil when there is none.
func (l *lounge) sit(topic shard.TopicID, want int, since time.Time, node uint64) *seat {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seated.Load() >= maxSeats {
		return nil
	}
	b := l.benches[topic]
	if b == nil {
		b = &bench{watched: map[uint64]bool{}}
		l.benches[topic] = b
	}
	s := &seat{topic: topic, want: want, since: since, node: node, wake: make(chan struct{}, 1)}
	at := len(b.seats)
	for at > 0 && b.seats[at-1].since.After(since) {
		at--
	}
	b.seats = slices.Insert(b.seats, at, s)
	l.seated.Add(1)
	return s
}

// leave gives a seat up. Who was woken for nothing leaves too: the next call wakes another.
func (l *lounge) leave(s *seat) {
	if s == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.benches[s.topic]; b != nil && !s.gone {
		b.seats = slices.DeleteFunc(b.seats, func(o *seat) bool { return o == s })
		l.up(s)
	}
	l.tidyLocked(s.topic)
}

func (l *lounge) up(s *seat) {
	s.gone = true
	l.seated.Add(-1)
}

func (l *lounge) tidyLocked(topic shard.TopicID) {
	if b := l.benches[topic]; b != nil && len(b.seats) == 0 && len(b.watched) == 0 {
		delete(l.benches, topic)
	}
}

// ready wakes those for whom there is work. own: it was another node that called, which tells other nodes itself.
func (l *lounge) ready(topic shard.TopicID, timers int, own bool) {
	if l.seated.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.benches[topic]
	if b == nil {
		return
	}
	keep := b.seats[:0]
	for _, s := range b.seats {
		if timers <= 0 || own && s.node != 0 {
			keep = append(keep, s)
			continue
		}
		timers -= s.want
		l.up(s)
		s.wake <- struct{}{}
	}
	clear(b.seats[len(keep):])
	b.seats = keep
	l.tidyLocked(topic)
}

// wanted are how many timers this node's own clients wait for.
func (b *bench) wanted() (n int) {
	for _, s := range b.seats {
		if s.node == 0 {
			n += s.want
		}
	}
	return n
}

// waitedFor are the topics that this node's own clients wait for.
func (l *lounge) waitedFor() (topics []shard.TopicID) {
	if l.seated.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, b := range l.benches {
		if b.wanted() > 0 {
			topics = append(topics, id)
		}
	}
	return topics
}

// watch notes that a node is about to be asked to call here; false when it has been, or nobody waits.
func (l *lounge) watch(topic shard.TopicID, node uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.benches[topic]
	if b == nil || b.watched[node] || b.wanted() == 0 || l.watches >= maxWatches {
		return false
	}
	b.watched[node] = true
	l.watches++
	return true
}

// stillWanted is how many timers a watched node should call for; with 0 the watch is over.
func (l *lounge) stillWanted(topic shard.TopicID, node uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.benches[topic]
	n := b.wanted()
	if n == 0 {
		l.unwatchLocked(b, topic, node)
	}
	return n
}

// unwatch ends a watch.
func (l *lounge) unwatch(topic shard.TopicID, node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwatchLocked(l.benches[topic], topic, node)
}

func (l *lounge) unwatchLocked(b *bench, topic shard.TopicID, node uint64) {
	delete(b.watched, node)
	l.watches--
	l.tidyLocked(topic)
}
