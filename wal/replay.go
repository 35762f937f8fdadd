package wal

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	laneBytes = 256 << 10 // records that a lane gets at a time
	laneQueue = 4         // … and how often ahead of its replay
)

// replayer gives the records of a scan to replay: on the scan's own goroutine, or on those of
// lanes, so that several shards are replayed at once. A shard has one lane and its records keep
// their order; the order between lanes is undefined.
type replayer struct {
	replay func(Position, Record) error
	lanes  []*lane // nil: replay runs where the scan does
	all    sync.WaitGroup
	failed atomic.Bool // a lane has: the scan may stop
	count  uint64
}

// lane is the records of some shards on their way to replay.
type lane struct {
	next *batch // is being filled
	full chan *batch
	free chan *batch

	// Of the first record that replay refused. The lane's own until all lanes have ended.
	err    error
	number uint64
}

// batch holds copies of records.
type batch struct {
	items []laneItem
	data  []byte
}

type laneItem struct {
	pos    Position
	number uint64 // of the record, in the order of the log
	record Record
}

func newReplayer(lanes int, replay func(Position, Record) error) *replayer {
	p := &replayer{replay: replay}
	if lanes < 2 || replay == nil {
		return p
	}
	for range lanes {
		l := &lane{next: &batch{}, full: make(chan *batch, laneQueue), free: make(chan *batch, laneQueue+2)}
		p.lanes = append(p.lanes, l)
		p.all.Go(func() { p.run(l) })
	}
	return p
}

// frame takes a frame's records from the scan.
func (rp *replayer) frame(gen uint64, _ string, _ int64, h header, records []byte) error {
	pos := Position{Gen: gen, Seq: h.seq}
	for rp.replay != nil && len(records) > 0 {
		var r Record
		r, records, _ = nextRecord(records) // whole: the scan checked
		rp.count++
		if rp.lanes != nil {
			rp.lanes[int(r.Shard)%len(rp.lanes)].put(laneItem{pos, rp.count, r})
			continue
		}
		if err := rp.replay(pos, r); err != nil {
			return replayError(pos, err)
		}
	}
	if rp.failed.Load() {
		return errReplay
	}
	return nil
}

func replayError(pos Position, err error) error {
	return fmt.Errorf("wal: replay frame %d: %w", pos.Seq, err)
}

// put adds a record to the lane's next batch.
func (l *lane) put(it laneItem) {
	n := len(it.record.Data)
	if len(l.next.items) > 0 && len(l.next.data)+n > laneBytes {
		l.hand()
	}
	b := l.next
	b.data = slices.Grow(b.data, max(n, laneBytes-len(b.data)))
	at := len(b.data)
	b.data = append(b.data, it.record.Data...)
	it.record.Data = b.data[at:len(b.data):len(b.data)]
	b.items = append(b.items, it)
}

// hand gives the lane the gathered batch, and waits while it is too far behind.
func (l *lane) hand() {
	l.full <- l.next
	select {
	case l.next = <-l.free:
	default:
		l.next = &batch{}
	}
}

// run replays until the lane is closed. After an error it takes batches and drops them.
func (rp *replayer) run(l *lane) {
	for b := range l.full {
		for i := range b.items {
			it := &b.items[i]
			if l.err != nil {
				break
			}
			if err := rp.replay(it.pos, it.record); err != nil {
				l.err, l.number = replayError(it.pos, err), it.number
				rp.failed.Store(true)
			}
		}
		clear(b.items)
		b.items, b.data = b.items[:0], b.data[:0]
		l.free <- b
	}
}

// wait ends the lanes once they have replayed all that the scan gave, and returns the error of the
// record that comes first in the log: the one at which a replay on the scan's goroutine would have
// stopped.
func (rp *replayer) wait() error {
	var first *lane
	for _, l := range rp.lanes {
		l.full <- l.next
		close(l.full)
	}
	rp.all.Wait()
	for _, l := range rp.lanes {
		if l.err != nil && (first == nil || l.number < first.number) {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	return first.err
}
