package history

import "sync"

// queue gathers records between those who record and the one who writes. It is bounded: what does not fit is dropped.
type queue struct {
	limit int
	full  chan struct{} // capacity 1: it should be emptied soon

	mu      sync.Mutex
	bytes   []byte
	reached map[uint32]reached // how far each shard was taken
	oldest  int64              // ends before it are not wanted any more
}

// verdict is what became of one event.
type verdict uint8

const (
	taken verdict = iota
	known         // recorded before, or too old
	refused
)

func newQueue(limit int) queue {
	return queue{limit: limit, full: make(chan struct{}, 1), reached: map[uint32]reached{}}
}

// reach notes what is in a file.
func (q *queue) reach(shard uint32, r reached) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.reached[shard].covers(r.index, r.item) {
		q.reached[shard] = r
	}
}

// expire says from when on ends are wanted.
func (q *queue) expire(oldestMs int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.oldest = oldestMs
}

// put adds the events of one entry of a shard. dropped is how many did not fit.
func (q *queue) put(events []Event) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.bytes)
	for i := range events {
		if q.add(&events[i]) == refused {
			dropped++
		}
	}
	if before <= q.limit/4 && len(q.bytes) > q.limit/4 {
		select {
		case q.full <- struct{}{}:
		default:
		}
	}
	return dropped
}

func (q *queue) add(e *Event) verdict {
	if r, ok := q.reached[e.Shard]; ok && r.covers(e.Index, e.Item) {
		return known
	}
	q.reached[e.Shard] = reached{e.Index, e.Item}
	if e.EndMs < q.oldest {
		return known
	}
	size := recordFixed + len(e.ID) + len(e.Body)
	if len(q.bytes)+recordHead+size > q.limit || size > maxRecord || !e.sound() {
		return refused
	}
	q.bytes = appendEvent(q.bytes, e)
	return taken
}

// take empties the queue; spare is used for what comes next.
func (q *queue) take(spare []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.bytes
	q.bytes = spare[:0]
	return b
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.bytes) == 0
}

// Record takes the events of one log entry of a shard. It keeps nothing of what they point to.
func (s *Store) Record(events []Event) {
	if n := s.queue.put(events); n > 0 {
		s.dropped.Add(uint64(n))
	}
}
