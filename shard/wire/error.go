package wire

import (
	"encoding/binary"
	"errors"
	"strings"

	"carillon/timer"
	"carillon/timer/encoding"
)

// The numbers of errors between nodes. A number never gets a second meaning. An unknown number is
// read as ErrUnknown, which promises nothing.
const (
	faultNone = iota
	faultNotLeader
	faultFirst // the first of faults, errors without fields

	faultLowDisk = 64
	faultLack    = 65 // as faultLowDisk, and what lacks

	faultSnapshot = 66
)

// faults are the errors that are sent, by number from faultFirst on.
var faults = [...]error{
	timer.ErrUnknown, timer.ErrNoLeader, timer.ErrOverloaded, timer.ErrMemory, timer.ErrLowDisk, timer.ErrStopped, timer.ErrRecovering, timer.ErrNoTopic, timer.ErrNotEmpty, encoding.ErrFormat,
}

// appendFault encodes an error or its absence. An error without a number is sent as ErrUnknown.
func appendFault(dst []byte, err error) []byte {
	if err == nil {
		return append(dst, faultNone)
	}
	if moved, ok := errors.AsType[timer.NotLeaderError](err); ok {
		return binary.AppendUvarint(append(dst, faultNotLeader), moved.Leader)
	}
	if low, ok := errors.AsType[timer.LowDiskError](err); ok {
		if low.Lack == "" {
			return AppendLowDisk(append(dst, faultLowDisk), &low)
		}
		c := encoding.Codec{Out: AppendLowDisk(append(dst, faultLack), &low)}
		shortText(&c, &low.Lack, "lack")
		return c.Out
	}
	if failed, ok := errors.AsType[timer.SnapshotError](err); ok {
		c := encoding.Codec{Out: append(dst, faultSnapshot)}
		snapshotError(&c, &failed)
		return c.Out
	}
	for i, known := range faults {
		if errors.Is(err, known) {
			return append(dst, byte(faultFirst+i))
		}
	}
	return append(dst, faultFirst)
}

// readFault decodes the output of appendFault; nil if there was no error.
func readFault(c *encoding.Codec) error {
	switch n := int(c.Byte()); {
	case n == faultNone:
		return nil
	case n == faultNotLeader:
		return timer.NotLeaderError{Leader: c.Uvarint()}
	case n == faultLowDisk, n == faultLack:
		var low timer.LowDiskError
		if lowDisk(c, &low); n == faultLack {
			shortText(c, &low.Lack, "lack")
		}
		return low
	case n == faultSnapshot:
		var failed timer.SnapshotError
		snapshotError(c, &failed)
		return failed
	case n-faultFirst < len(faults):
		return faults[n-faultFirst]
	}
	return timer.ErrUnknown
}

// AppendFailure encodes the answer to any request that failed as a whole.
func AppendFailure(dst []byte, err error) []byte {
	if err == nil {
		err = timer.ErrUnknown
	}
	return appendFault(append(dst, version), err)
}

// openAnswer starts reading an answer: its version, and the error if the request failed.
func openAnswer(b []byte) (c encoding.Codec, err error) {
	c = open(b)
	if err = readFault(&c); c.Fault != "" {
		err = c.Err()
	}
	return c, err
}

// AppendLowDisk encodes a LowDiskError for another node.
func AppendLowDisk(dst []byte, e *timer.LowDiskError) []byte {
	c := encoding.Codec{Out: dst}
	lowDisk(&c, e)
	return c.Out
}

func DecodeLowDisk(in []byte) (e timer.LowDiskError, err error) {
	c := encoding.Reading(in)
	lowDisk(&c, &e)
	return e, c.Err()
}

func lowDisk(c *encoding.Codec, e *timer.LowDiskError) {
	c.Uvarints(&e.Node, &e.Free, &e.Limit)
	shortText(c, &e.Name, "name")
	shortText(c, &e.Path, "path")
}

func snapshotError(c *encoding.Codec, e *timer.SnapshotError) {
	shortText(c, &e.Name, "name")
	shortText(c, &e.Path, "path")
	shortText(c, &e.Why, "error")
}

// shortText is a text of an error; what is longer than it may be is cut.
func shortText(c *encoding.Codec, text *string, what string) {
	const most = 256 // bytes
	valid := strings.ToValidUTF8((*text)[:min(len(*text), most)], "")
	if encoding.Text(c, &valid, most, what); c.Reads {
		*text = strings.ToValidUTF8(valid, "")
	}
}
