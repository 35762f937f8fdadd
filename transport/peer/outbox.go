package peer

import "sync"

// outbox is the bounded queue of frames that wait for a connection's writer. All that
// wait leave together.
type outbox struct {
	max  int           // bytes
	wake chan struct{} // holds one when there is something to take

	mu      sync.Mutex
	room    sync.Cond // of pushWait: taken or closed
	pieces  [][]byte  // frames that are not sealed; a frame is whole in a piece
	bytes   int       // in pieces
	frames  int
	taken   uint64 // how often pieces were taken
	closed  bool
	waiting int // in pushWait
}

// pieceBytes is the size of the memory that small frames are gathered in. A larger frame
// has a piece of its own size.
const pieceBytes = 64 << 10

var piecePool = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

func newPiece(size int) []byte {
	if size <= pieceBytes {
		return piecePool.Get().(*[pieceBytes]byte)[:0]
	}
	return make([]byte, 0, size)
}

func freePieces(pieces [][]byte) {
	for _, piece := range pieces {
		if cap(piece) == pieceBytes {
			piecePool.Put((*[pieceBytes]byte)(piece[:pieceBytes]))
		}
	}
}

func newOutbox(maxBytes int) *outbox {
	o := &outbox{max: maxBytes, wake: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

// push adds a frame (head and body are its payload) unless the queue is full or closed.
// It never blocks. The frame is with the writer once taken() > batch.
func (o *outbox) push(kind byte, head, body []byte) (batch uint64, ok bool) {
	o.mu.Lock()
	if o.closed || o.fullLocked(len(head)+len(body)) {
		o.mu.Unlock()
		return 0, false
	}
	return o.pushUnlock(kind, head, body), true
}

// pushWait waits for room; false means closed.
func (o *outbox) pushWait(kind byte, head, body []byte) bool {
	o.mu.Lock()
	for !o.closed && o.fullLocked(len(head)+len(body)) {
		o.waiting++
		o.room.Wait()
		o.waiting--
	}
	if o.closed {
		o.mu.Unlock()
		return false
	}
	o.pushUnlock(kind, head, body)
	return true
}

// fullLocked lets one frame into an empty queue of any size, since its size was checked.
func (o *outbox) fullLocked(n int) bool {
	return o.bytes > 0 && o.bytes+frameHeaderBytes+n > o.max
}

func (o *outbox) pushUnlock(kind byte, head, body []byte) uint64 {
	first := o.bytes == 0
	size := frameHeaderBytes + len(head) + len(body)
	last := len(o.pieces) - 1
	if last < 0 || cap(o.pieces[last])-len(o.pieces[last]) < size {
		o.pieces = append(o.pieces, newPiece(size))
		last++
	}
	o.pieces[last] = appendFrame(o.pieces[last], kind, head, body)
	o.bytes += size
	o.frames++
	batch := o.taken
	o.mu.Unlock()
	if first { // else a wake-up is on its way already
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return batch
}

// take gives all that waits. The caller frees the pieces; spare is a slice to reuse.
func (o *outbox) take(spare [][]byte) [][]byte {
	o.mu.Lock()
	pieces := o.pieces
	o.pieces, o.bytes, o.frames = spare[:0], 0, 0
	o.taken++
	if o.waiting > 0 {
		o.room.Broadcast()
	}
	o.mu.Unlock()
	return pieces
}

// close drops the waiting frames and reports whether there were any, the first time.
func (o *outbox) close() (dropped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	dropped = o.frames > 0
	freePieces(o.pieces)
	o.closed, o.pieces, o.bytes, o.frames = true, nil, 0, 0
	o.room.Broadcast()
	return dropped
}

// left reports whether a frame of this batch may have reached the wire.
func (o *outbox) left(batch uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.taken > batch
}
