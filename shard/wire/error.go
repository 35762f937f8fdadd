package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"carillon/timer"
	"carillon/timer/encoding"
)

// The numbers of errors between nodes. They are never given a second meaning; a number that a node
// does not know is ErrUnknown to it, which promises nothing.
const (
	faultNone = iota
	faultNotLeader
	faultFirst // of those without a value of their own: faults

	faultLowDisk = 64
)

// faults are the errors that travel, by number from faultFirst on.
var faults = [...]error{
	timer.ErrUnknown, timer.ErrNoLeader, timer.ErrOverloaded, timer.ErrMemory, timer.ErrLowDisk, timer.ErrStopped, timer.ErrRecovering, timer.ErrNoTopic, timer.ErrNotEmpty, encoding.ErrFormat,
}

// appendFault writes an error, or that there is none. What has no number travels as ErrUnknown.
func appendFault(dst []byte, err error) []byte {
	if err == nil {
		return append(dst, faultNone)
	}
	if moved, ok := errors.AsType[timer.NotLeaderError](err); ok {
		return binary.AppendUvarint(append(dst, faultNotLeader), moved.Leader)
	}
	if low, ok := errors.AsType[timer.LowDiskError](err); ok {
		return AppendLowDisk(append(dst, faultLowDisk), &low)
	}
	for i, known := range faults {
		if errors.Is(err, known) {
			return append(dst, byte(faultFirst+i))
		}
	}
	return append(dst, faultFirst)
}

// errorAnswer reads what appendFault wrote; nil when there was no error.
func (r *reader) errorAnswer() error {
	switch n := int(r.Byte()); {
	case n == faultNone:
		return nil
	case n == faultNotLeader:
		return timer.NotLeaderError{Leader: r.Uvarint()}
	case n == faultLowDisk:
		return r.lowDisk()
	case n-faultFirst < len(faults):
		return faults[n-faultFirst]
	}
	return timer.ErrUnknown
}

// AppendFailure encodes an answer, to any of the requests, that is an error as a whole.
func AppendFailure(dst []byte, err error) []byte {
	if err == nil {
		err = timer.ErrUnknown
	}
	return appendFault(append(dst, version), err)
}

// answered starts reading an answer: its version, and the error that it is instead of one.
func answered(b []byte) (reader, error) {
	r := open(b)
	if err := r.errorAnswer(); err != nil && r.Fault == "" {
		return r, err
	}
	return r, r.Err()
}

// maxLowDiskText bounds a name or path between nodes.
const maxLowDiskText = 256

// AppendLowDisk encodes it for another node.
func AppendLowDisk(dst []byte, e *timer.LowDiskError) []byte {
	for _, n := range []uint64{e.Node, e.Free, e.Limit} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, text := range []string{e.Name, e.Path} {
		text = strings.ToValidUTF8(text[:min(len(text), maxLowDiskText)], "")
		dst = encoding.AppendBlock(dst, text)
	}
	return dst
}

// DecodeLowDisk reads what AppendLowDisk wrote.
func DecodeLowDisk(in []byte) (timer.LowDiskError, error) {
	r := &reader{encoding.Reader{Rest: in}}
	e := r.lowDisk()
	if r.Fault != "" {
		return timer.LowDiskError{}, fmt.Errorf("%w: %s", encoding.ErrFormat, r.Fault)
	}
	return e, nil
}

func (r *reader) lowDisk() timer.LowDiskError {
	text := func(what string) string { return strings.ToValidUTF8(string(r.Block(maxLowDiskText, what)), "") }
	return timer.LowDiskError{Node: r.Uvarint(), Free: r.Uvarint(), Limit: r.Uvarint(), Name: text("name"), Path: text("path")}
}
