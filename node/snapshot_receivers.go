package node

import (
	"errors"
	"slices"
	"sync"
	"time"

	"carillon/timer"
	"carillon/transport/peer"
)

// How many parts of broken streams are kept for another try, and for how long. A sender
// tries again within seconds, if it still leads.
const (
	keptReceivers    = 8
	receiverIdleTime = 2 * time.Minute
)

// snapshotReceivers has one for each node that sends a snapshot. It is kept for a while when its
// stream breaks off.
type snapshotReceivers struct {
	mu     sync.Mutex
	byNode map[uint64]*snapshotReceiver
	idle   []*snapshotReceiver // those whose stream broke off, in that order
	closed bool
}

// incoming is a snapshot on its way into the host. shard.Incoming is one.
type incoming interface {
	Have() int64
	Write([]byte) (int, error)
	Commit() error
	Abort()
}

// snapshotReceiver takes the snapshot of one node. It implements peer.Sink.
type snapshotReceiver struct {
	owner  *snapshotReceivers
	from   uint64
	header string
	in     incoming
	busy   bool
	ended  bool
	expiry *time.Timer // of an idle one
}

func (rs *snapshotReceivers) open(from uint64, header []byte, receive func() (incoming, error)) (peer.Sink, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if old := rs.byNode[from]; old != nil {
		switch {
		case old.busy:
			return nil, errors.New("a snapshot from this node is being received already")
		case old.header == string(header):
			rs.awakenLocked(old)
			return old, nil
		}
		rs.dropLocked(old)
	}
	if rs.closed {
		return nil, timer.ErrStopped
	}
	in, err := receive()
	if err != nil {
		return nil, err
	}
	s := &snapshotReceiver{owner: rs, from: from, header: string(header), in: in, busy: true}
	if rs.byNode == nil {
		rs.byNode = map[uint64]*snapshotReceiver{}
	}
	rs.byNode[from] = s
	return s, nil
}

func (rs *snapshotReceivers) awakenLocked(s *snapshotReceiver) {
	s.busy = true
	s.expiry.Stop()
	rs.idle = slices.DeleteFunc(rs.idle, func(other *snapshotReceiver) bool { return other == s })
}

// dropLocked gives an idle one up, and its file.
func (rs *snapshotReceivers) dropLocked(s *snapshotReceiver) {
	rs.awakenLocked(s)
	s.in.Abort()
	delete(rs.byNode, s.from)
}

// close gives all idle ones up; there will be no others.
func (rs *snapshotReceivers) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	for len(rs.idle) > 0 {
		rs.dropLocked(rs.idle[0])
	}
}

func (s *snapshotReceiver) Have() int64 { return s.in.Have() }

// Write implements peer.Sink. After an error the file is of no use any more.
func (s *snapshotReceiver) Write(chunk []byte) error {
	_, err := s.in.Write(chunk)
	if err != nil {
		s.ended = true
		s.in.Abort()
	}
	return err
}

func (s *snapshotReceiver) Commit() error {
	s.ended = true
	return s.in.Commit()
}

// Close implements peer.Sink: the part that is there is kept for another try.
func (s *snapshotReceiver) Close() {
	rs := s.owner
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if s.ended {
		delete(rs.byNode, s.from)
		return
	}
	s.busy = false
	s.expiry = time.AfterFunc(receiverIdleTime, s.expire)
	rs.idle = append(rs.idle, s)
	if len(rs.idle) > keptReceivers || rs.closed {
		rs.dropLocked(rs.idle[0])
	}
}

// expire gives up the part that nobody has continued.
func (s *snapshotReceiver) expire() {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	if slices.Contains(s.owner.idle, s) {
		s.owner.dropLocked(s)
	}
}
