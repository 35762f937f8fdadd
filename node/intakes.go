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
	intakesKept    = 8
	intakeIdleTime = 2 * time.Minute
)

// intakes are the snapshots that are coming in: one from each node, kept for a while when a stream
// breaks off.
type intakes struct {
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

// snapshotReceiver is one of them. It implements peer.Sink.
type snapshotReceiver struct {
	owner  *intakes
	from   uint64
	header string
	in     incoming
	busy   bool
	ended  bool
	expiry *time.Timer // of an idle one
}

func (i *intakes) open(from uint64, header []byte, receive func() (incoming, error)) (peer.Sink, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if old := i.byNode[from]; old != nil {
		switch {
		case old.busy:
			return nil, errors.New("a snapshot from this node is being received already")
		case old.header == string(header):
			i.awakenLocked(old)
			return old, nil
		}
		i.dropLocked(old)
	}
	if i.closed {
		return nil, timer.ErrStopped
	}
	in, err := receive()
	if err != nil {
		return nil, err
	}
	s := &snapshotReceiver{owner: i, from: from, header: string(header), in: in, busy: true}
	if i.byNode == nil {
		i.byNode = map[uint64]*snapshotReceiver{}
	}
	i.byNode[from] = s
	return s, nil
}

func (i *intakes) awakenLocked(s *snapshotReceiver) {
	s.busy = true
	s.expiry.Stop()
	i.idle = slices.DeleteFunc(i.idle, func(other *snapshotReceiver) bool { return other == s })
}

// dropLocked gives an idle one up, and its file.
func (i *intakes) dropLocked(s *snapshotReceiver) {
	i.awakenLocked(s)
	s.in.Abort()
	delete(i.byNode, s.from)
}

// close gives all idle ones up; there will be no others.
func (i *intakes) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	for len(i.idle) > 0 {
		i.dropLocked(i.idle[0])
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
	k := s.owner
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.ended {
		delete(k.byNode, s.from)
		return
	}
	s.busy = false
	s.expiry = time.AfterFunc(intakeIdleTime, s.expire)
	k.idle = append(k.idle, s)
	if len(k.idle) > intakesKept || k.closed {
		k.dropLocked(k.idle[0])
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
