package history

import "sync"

// chunkBytes is how much memory the queue takes at a time; chunks are used again, so that a steady
// stream allocates nothing.
const (
	chunkBytes = 256 << 10
	keepChunks = 16
)

// queue gathers records between the recording goroutines and the writing one. It is bounded:
// records that do not fit are dropped.
type queue struct {
	limit int
	begun chan struct{} // capacity 1: it was empty, and is not
	full  chan struct{} // capacity 1: it should be emptied soon

	mu        sync.Mutex
	chunks    [][]byte // of whole records, in order
	free      [][]byte
	bytes     int
	watermark map[uint32]watermark // how far each shard was taken
	oldest    int64                // ends before it are not wanted any more
}

// reach notes the contents of a file.
func (q *queue) reach(shard uint32, r watermark) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.watermark[shard].covers(r.index, r.item) {
		q.watermark[shard] = r
	}
}

// expire sets the time from which ends are kept.
func (q *queue) expire(oldestMs int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.oldest = oldestMs
}

// put adds events, of each shard in order. dropped is how many did not fit.
func (q *queue) put(events []Event) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.bytes
	for from := 0; from < len(events); {
		shard := events[from].Shard
		r, any := q.watermark[shard]
		for ; from < len(events) && events[from].Shard == shard; from++ {
			e := &events[from]
			if any && r.covers(e.Index, e.Item) {
				continue // it was recorded before
			}
			r, any = watermark{e.Index, e.Item}, true
			if e.EndMs >= q.oldest && !q.add(e) {
				dropped++
			}
		}
		q.watermark[shard] = r
	}
	if before == 0 && q.bytes > 0 {
		notify(q.begun)
	}
	if before <= q.limit/4 && q.bytes > q.limit/4 {
		notify(q.full)
	}
	return dropped
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (q *queue) add(e *Event) bool {
	size := recordHead + recordFixed + len(e.ID) + len(e.Body)
	if q.bytes+size > q.limit || size > recordHead+maxRecord || !e.valid() {
		return false
	}
	last := len(q.chunks) - 1
	if last < 0 || cap(q.chunks[last])-len(q.chunks[last]) < size {
		q.chunks = append(q.chunks, q.chunk(size))
		last++
	}
	q.chunks[last] = appendEvent(q.chunks[last], e)
	q.bytes += size
	return true
}

func (q *queue) chunk(size int) []byte {
	if n := len(q.free); n > 0 && size <= chunkBytes {
		c := q.free[n-1]
		q.free = q.free[:n-1]
		return c
	}
	return make([]byte, 0, max(size, chunkBytes))
}

// take empties the queue.
func (q *queue) take() [][]byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	chunks := q.chunks
	q.chunks, q.bytes = nil, 0
	return chunks
}

// recycle brings chunks back that were written.
func (q *queue) recycle(chunks [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range chunks {
		if len(q.free) < keepChunks && cap(c) == chunkBytes {
			q.free = append(q.free, c[:0])
		}
	}
}

// Record takes the events of a log entry. It keeps none of the memory to which they point.
func (s *Store) Record(events []Event) {
	if n := s.queue.put(events); n > 0 {
		s.dropped.Add(uint64(n))
	}
}
