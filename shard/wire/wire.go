package wire

import (
	"encoding/binary"
	"fmt"

	"carillon/timer"
	"carillon/timer/encoding"
)

// version is the first byte of every message.
const version = 1

const (
	// maxOps bounds a list of operations: as many as a request may have, or one for each shard.
	maxOps = 1 << 16
	// minOp is the minimum length of an operation: shard, flags, length, and the fixed part of a
	// command.
	minOp = 3 + 5
)

// Flags of an operation.
const (
	opBrief = 1 << iota
	opPlace // its Place follows: the sender may not know yet that there are more shards
)

// reader reads a message.
type reader struct{ encoding.Reader }

// open starts reading a message.
func open(b []byte) reader {
	r := reader{encoding.Reader{Rest: b}}
	if v := r.Byte(); v != version && r.Fault == "" {
		r.Fail(fmt.Sprintf("version %d of a message", v))
	}
	return r
}

// AppendOps encodes operations, without their Result and Err, for the node that leads their shards.
func AppendOps(dst []byte, ops []timer.Op) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(len(ops)))
	for i := range ops {
		dst = appendOp(dst, &ops[i])
	}
	return dst
}

func appendOp(dst []byte, o *timer.Op) []byte {
	if len(o.Command.ID) > encoding.MaxID {
		panic(fmt.Sprintf("shard: id of %d bytes, at most %d fit", len(o.Command.ID), encoding.MaxID))
	}
	dst = binary.AppendUvarint(dst, uint64(o.Shard))
	flags := encoding.Flag(o.Brief, opBrief) | encoding.Flag(o.Place != 0, opPlace)
	if dst = append(dst, flags); o.Place != 0 {
		dst = binary.AppendUvarint(dst, o.Place)
	}
	dst, at := encoding.OpenBlock(dst)
	dst = encoding.AppendCommand(dst, o.Command)
	encoding.CloseBlock(dst, at)
	return dst
}

// DecodeOps decodes the output of AppendOps. The commands are as complete as a table requires; the
// host checks whether their shards exist.
func DecodeOps(b []byte) ([]timer.Op, error) {
	r := open(b)
	ops := make([]timer.Op, r.Count(maxOps, minOp, "operations"))
	for i := range ops {
		if err := r.op(&ops[i]); err != nil {
			return nil, err
		}
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return ops, nil
}

func (r *reader) op(o *timer.Op) (err error) {
	o.Shard = timer.ShardID(r.Number(1<<32-1, "shard"))
	flags := r.Byte()
	if flags&^(opBrief|opPlace) != 0 {
		r.Fail("unknown flags of an operation")
	}
	o.Brief = flags&opBrief != 0
	if flags&opPlace != 0 {
		o.Place = r.Uvarint()
	}
	body := encoding.Reader{Rest: r.Block(encoding.MaxBlock, "command")}
	if r.Fault != "" {
		return r.Err()
	}
	var c encoding.Command
	body.Command(&c)
	if body.Fault != "" {
		return body.Err()
	}
	o.Command, err = c.Copy()
	return err
}
