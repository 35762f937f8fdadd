package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"carillon/timer"
)

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
	timer.ErrUnknown, timer.ErrNoLeader, timer.ErrOverloaded, timer.ErrMemory, timer.ErrLowDisk, timer.ErrStopped, timer.ErrRecovering, timer.ErrNoTopic, timer.ErrNotEmpty, ErrFormat,
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
	for i, known := range wireFaults {
		if errors.Is(err, known) {
			return append(dst, byte(faultFirst+i))
		}
	}
	return append(dst, faultFirst)
}

// errorAnswer reads what appendFault wrote; nil when there was no error.
func (r *wireReader) errorAnswer() error {
	switch n := int(r.byte()); {
	case n == faultNone:
		return nil
	case n == faultNotLeader:
		return timer.NotLeaderError{Leader: r.uvarint()}
	case n == faultLowDisk:
		return r.lowDisk()
	case n-faultFirst < len(wireFaults):
		return wireFaults[n-faultFirst]
	}
	return timer.ErrUnknown
}

// AppendFailure encodes an answer, to any of the requests, that is an error as a whole.
func AppendFailure(dst []byte, err error) []byte {
	if err == nil {
		err = timer.ErrUnknown
	}
	return appendFault(append(dst, wireVersion), err)
}

// answered starts reading an answer: its version, and the error that it is instead of one.
func answered(b []byte) (wireReader, error) {
	r := openWire(b)
	if err := r.errorAnswer(); err != nil && r.fault == "" {
		return r, err
	}
	return r, r.err()
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
		dst = appendBlock(dst, text)
	}
	return dst
}

// DecodeLowDisk reads what AppendLowDisk wrote.
func DecodeLowDisk(in []byte) (timer.LowDiskError, error) {
	r := &wireReader{reader{b: in}}
	e := r.lowDisk()
	if r.fault != "" {
		return timer.LowDiskError{}, fmt.Errorf("%w: %s", ErrFormat, r.fault)
	}
	return e, nil
}

func (r *wireReader) lowDisk() timer.LowDiskError {
	text := func(what string) string { return strings.ToValidUTF8(string(r.block(maxLowDiskText, what)), "") }
	return timer.LowDiskError{Node: r.uvarint(), Free: r.uvarint(), Limit: r.uvarint(), Name: text("name"), Path: text("path")}
}
