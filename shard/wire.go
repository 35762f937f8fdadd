package shard

import (
	"encoding/binary"
	"fmt"

	"carillon/timer"
)

// What one node has another decide or read, as bytes: requests, and answers that carry the result or one of the package's errors.
// Every message begins with a version. Numbers are varints, texts have their length before them, commands and specs lie as in a
// batch (docs/formats/commands.md). Messages live as long as a connection: two versions meet only while a cluster is upgraded, and
// a node refuses what it does not know with ErrFormat, having done nothing.
//
// Decoders check every bound before they take memory: at most about 64 bytes for each of the input, whatever it says.
// What they return owns its memory; the input may be reused at once.
const wireVersion = 1

const (
	// maxWireOps bounds a list of operations: as many as a request has, or one for each shard.
	maxWireOps = 1 << 16
	// minWireOp is the least that an operation takes: shard, flags, length, and the fixed part of a command.
	minWireOp = 3 + 5
)

const opBrief = 1 // a flag of an operation

// wireReader reads a message.
type wireReader struct{ reader }

// openWire starts reading a message.
func openWire(b []byte) wireReader {
	r := wireReader{reader{b: b}}
	if v := r.byte(); v != wireVersion && r.fault == "" {
		r.fail(fmt.Sprintf("version %d of a message", v))
	}
	return r
}

// AppendOps encodes operations for the node that leads their shards; Results and Errs stay behind.
func AppendOps(dst []byte, ops []timer.Op) []byte {
	dst = binary.AppendUvarint(append(dst, wireVersion), uint64(len(ops)))
	for i := range ops {
		dst = appendOp(dst, &ops[i])
	}
	return dst
}

func appendOp(dst []byte, o *timer.Op) []byte {
	if len(o.Command.ID) > maxID {
		panic(fmt.Sprintf("shard: id of %d bytes, at most %d fit", len(o.Command.ID), maxID))
	}
	dst = binary.AppendUvarint(dst, uint64(o.Shard))
	var flags byte
	if o.Brief {
		flags |= opBrief
	}
	dst, at := openBlock(append(dst, flags))
	dst = appendCommand(dst, o.Command)
	closeBlock(dst, at)
	return dst
}

// DecodeOps decodes what AppendOps wrote. The commands are as whole as a table wants them; whether their shards exist is for the
// host to say.
func DecodeOps(b []byte) ([]timer.Op, error) {
	r := openWire(b)
	ops := make([]timer.Op, r.count(maxWireOps, minWireOp, "operations"))
	for i := range ops {
		if err := r.op(&ops[i]); err != nil {
			return nil, err
		}
	}
	if err := r.close(); err != nil {
		return nil, err
	}
	return ops, nil
}

func (r *wireReader) op(o *timer.Op) (err error) {
	o.Shard = timer.ShardID(r.number(1<<32-1, "shard"))
	flags := r.byte()
	if flags&^opBrief != 0 {
		r.fail("unknown flags of an operation")
	}
	o.Brief = flags&opBrief != 0
	body := reader{b: r.block(maxBlock, "command")}
	if r.fault != "" {
		return r.err()
	}
	var c change
	body.change(&c)
	if body.fault != "" {
		return body.err()
	}
	o.Command, err = c.command()
	return err
}
