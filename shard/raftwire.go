package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// How raft's messages travel between hosts (docs/formats/peer.md). Written by hand: raft's own protobuf costs several times as much,
// and an append is what a replicated operation mostly consists of.

// Bits of a message: which fields follow.
const (
	messageReject = 1 << iota
	messageLog    // log term and index
	messageCommit
	messageHint
	messageContext
	messageEntries // contiguous, from index+1 on
	messageSnapshot

	messageBits = 1<<iota - 1
)

var errMessage = errors.New("malformed message")

// appendMessage encodes a message. One that carries a snapshot tells only which: the state travels by itself.
func appendMessage(b []byte, m *pb.Message) []byte {
	var bits byte
	set := func(on bool, bit byte) {
		if on {
			bits |= bit
		}
	}
	set(m.GetReject(), messageReject)
	set(m.LogTerm != nil || m.Index != nil, messageLog)
	set(m.Commit != nil, messageCommit)
	set(m.RejectHint != nil, messageHint)
	set(len(m.Context) > 0, messageContext)
	set(len(m.Entries) > 0, messageEntries)
	set(m.Snapshot != nil, messageSnapshot)
	b = append(b, byte(m.GetType()), bits)
	b = binary.AppendUvarint(b, m.GetTo())
	b = binary.AppendUvarint(b, m.GetFrom())
	b = binary.AppendUvarint(b, m.GetTerm())
	if bits&messageLog != 0 {
		b = binary.AppendUvarint(b, m.GetLogTerm())
		b = binary.AppendUvarint(b, m.GetIndex())
	}
	if bits&messageCommit != 0 {
		b = binary.AppendUvarint(b, m.GetCommit())
	}
	if bits&messageHint != 0 {
		b = binary.AppendUvarint(b, m.GetRejectHint())
	}
	if bits&messageContext != 0 {
		b = appendBlock(b, string(m.Context))
	}
	if bits&messageEntries != 0 {
		b = appendMessageEntries(b, m)
	}
	if bits&messageSnapshot != 0 {
		meta := m.Snapshot.GetMetadata()
		b = binary.AppendUvarint(b, meta.GetIndex())
		b = binary.AppendUvarint(b, meta.GetTerm())
		b = appendConf(b, meta.GetConfState())
	}
	return b
}

func appendMessageEntries(b []byte, m *pb.Message) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.Entries)))
	for i, e := range m.Entries {
		if e.GetIndex() != m.GetIndex()+1+uint64(i) {
			panic(fmt.Sprintf("shard: entry %d of a message is number %d after %d", i, e.GetIndex(), m.GetIndex()))
		}
		b = binary.AppendUvarint(b, e.GetTerm())
		b = append(b, byte(e.GetType()))
		b = binary.AppendUvarint(b, uint64(len(e.Data)))
		b = append(b, e.Data...)
	}
	return b
}

// decodeMessage reads what appendMessage wrote. Entries and context point into the bytes.
func decodeMessage(b []byte) (*pb.Message, error) {
	if len(b) < 2 || b[1]&^messageBits != 0 {
		return nil, errMessage
	}
	kind, bits, r := pb.MessageType(b[0]), b[1], recordReader{rest: b[2:]}
	m := &pb.Message{Type: &kind, To: new(r.uvarint()), From: new(r.uvarint()), Term: new(r.uvarint())}
	if bits&messageReject != 0 {
		m.Reject = new(true)
	}
	if bits&messageLog != 0 {
		m.LogTerm, m.Index = new(r.uvarint()), new(r.uvarint())
	}
	if bits&messageCommit != 0 {
		m.Commit = new(r.uvarint())
	}
	if bits&messageHint != 0 {
		m.RejectHint = new(r.uvarint())
	}
	if bits&messageContext != 0 {
		m.Context = r.bytes()
	}
	if bits&messageEntries != 0 {
		m.Entries = r.entries(m.GetIndex())
	}
	if bits&messageSnapshot != 0 {
		m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(r.uvarint()), Term: new(r.uvarint()), ConfState: r.conf()}}
	}
	if r.bad || len(r.rest) != 0 {
		return nil, errMessage
	}
	return m, nil
}

// entries reads a list of entries that follow an index. Every entry takes three bytes at least, which bounds the list.
func (r *recordReader) entries(after uint64) []*pb.Entry {
	n := r.uvarint()
	if n > uint64(len(r.rest))/3 {
		r.bad, r.rest = true, nil
		return nil
	}
	held := make([]heldEntry, n)
	out := make([]*pb.Entry, n)
	for i := range held {
		h := &held[i]
		h.index, h.term, h.kind = after+1+uint64(i), r.uvarint(), pb.EntryType(r.byte())
		h.entry.Index, h.entry.Term, h.entry.Type, h.entry.Data = &h.index, &h.term, &h.kind, r.bytes()
		out[i] = &h.entry
	}
	return out
}

// heldEntry keeps an entry and what it points to in one piece.
type heldEntry struct {
	entry       pb.Entry
	index, term uint64
	kind        pb.EntryType
}
