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

// open starts reading a message.
func open(b []byte) encoding.Codec {
	if len(b) == 0 || b[0] != version {
		return encoding.Codec{Reader: encoding.Reader{Fault: "version of a message"}, Reads: true}
	}
	return encoding.Reading(b[1:])
}

// request and answer write a message of one value, whose fields a function names; asked and
// answered read it.
func request[M any](dst []byte, m *M, fields func(*encoding.Codec, *M)) []byte {
	c := encoding.Codec{Out: append(dst, version)}
	fields(&c, m)
	return c.Out
}

func answer[M any](dst []byte, m *M, fields func(*encoding.Codec, *M)) []byte {
	c := encoding.Codec{Out: append(dst, version, faultNone)}
	fields(&c, m)
	return c.Out
}

func asked[M any](b []byte, fields func(*encoding.Codec, *M)) (M, error) {
	return read(open(b), fields)
}

func answered[M any](b []byte, fields func(*encoding.Codec, *M)) (none M, err error) {
	c, err := openAnswer(b)
	if err != nil {
		return none, err
	}
	return read(c, fields)
}

func read[M any](c encoding.Codec, fields func(*encoding.Codec, *M)) (m M, err error) {
	fields(&c, &m)
	if err := c.Close(); err != nil {
		return *new(M), err
	}
	return m, nil
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
	c := open(b)
	ops := make([]timer.Op, c.Count(maxOps, minOp, "operations"))
	for i := range ops {
		if err := readOp(&c, &ops[i]); err != nil {
			return nil, err
		}
	}
	if err := c.Close(); err != nil {
		return nil, err
	}
	return ops, nil
}

func readOp(r *encoding.Codec, o *timer.Op) (err error) {
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
