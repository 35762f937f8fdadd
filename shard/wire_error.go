package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// NotLeaderError refuses what only the leader of a shard can do: nothing was done. To those who do not look closer it is an ErrNoLeader.
type NotLeaderError struct {
	Leader uint64 // the node that leads, as far as this one knows; 0 unknown
}

func (e NotLeaderError) Error() string {
	if e.Leader == 0 {
		return "this node does not lead the shard, and knows of nobody who does"
	}
	return fmt.Sprintf("this node does not lead the shard; node %010x may", e.Leader)
}

// Is makes it an ErrNoLeader.
func (NotLeaderError) Is(target error) bool { return target == ErrNoLeader }

// The numbers of errors between nodes. They are never given a second meaning; a number that a node does not know is ErrUnknown to
// it, which promises nothing.
const (
	faultNone = iota
	faultNotLeader
	faultFirst // of those without a value of their own: wireFaults

	faultLowDisk = 64
)

// wireFaults are the errors that travel, by number from faultFirst on.
var wireFaults = [...]error{
	ErrUnknown, ErrNoLeader, ErrOverloaded, ErrMemory, ErrLowDisk, ErrStopped, ErrRecovering, ErrNoTopic, ErrNotEmpty, ErrFormat,
}

// appendFault writes an error, or that there is none. What has no number travels as ErrUnknown.
func appendFault(dst []byte, err error) []byte {
	if err == nil {
		return append(dst, faultNone)
	}
	if moved, ok := errors.AsType[NotLeaderError](err); ok {
		return binary.AppendUvarint(append(dst, faultNotLeader), moved.Leader)
	}
	if low, ok := errors.AsType[LowDiskError](err); ok {
		return low.Append(append(dst, faultLowDisk))
	}
	for i, known := range wireFaults {
		if errors.Is(err, known) {
			return append(dst, byte(faultFirst+i))
		}
	}
	return append(dst, faultFirst)
}

// errorAnswer reads what appendFault wrote; nil when there was no error.
func (r *reader) errorAnswer() error {
	switch n := int(r.byte()); {
	case n == faultNone:
		return nil
	case n == faultNotLeader:
		return NotLeaderError{Leader: r.uvarint()}
	case n == faultLowDisk:
		return r.lowDisk()
	case n-faultFirst < len(wireFaults):
		return wireFaults[n-faultFirst]
	}
	return ErrUnknown
}

// AppendFailure encodes an answer, to any of the requests, that is an error as a whole.
func AppendFailure(dst []byte, err error) []byte {
	if err == nil {
		err = ErrUnknown
	}
	return appendFault(append(dst, wireVersion), err)
}

// answered starts reading an answer: its version, and the error that it is instead of one.
func answered(b []byte) (reader, error) {
	r := openWire(b)
	if err := r.errorAnswer(); err != nil && r.fault == "" {
		return r, err
	}
	return r, r.err()
}
