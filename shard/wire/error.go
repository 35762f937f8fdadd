package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
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
		return AppendLowDisk(append(dst, faultLowDisk), &low)
	}
	for i, known := range faults {
		if errors.Is(err, known) {
			return append(dst, byte(faultFirst+i))
		}
	}
	return append(dst, faultFirst)
}

// errorAnswer decodes the output of appendFault; nil if there was no error.
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

// AppendFailure encodes the answer to any request that failed as a whole.
func AppendFailure(dst []byte, err error) []byte {
	if err == nil {
		err = timer.ErrUnknown
	}
	return appendFault(append(dst, version), err)
}

// answered starts reading an answer: its version, and the error if the request failed.
func answered(b []byte) (reader, error) {
	r := open(b)
	if err := r.errorAnswer(); err != nil && r.Fault == "" {
		return r, err
	}
	return r, r.Err()
}

// maxLowDiskText bounds a name or path between nodes.
const maxLowDiskText = 256

// AppendLowDisk encodes a LowDiskError for another node.
func AppendLowDisk(dst []byte, e *timer.LowDiskError) []byte {
	dst = encoding.AppendUvarints(dst, e.Node, e.Free, e.Limit)
	for _, text := range []string{e.Name, e.Path} {
		text = strings.ToValidUTF8(text[:min(len(text), maxLowDiskText)], "")
		dst = encoding.AppendBlock(dst, text)
	}
	return dst
}

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
