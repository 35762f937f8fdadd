package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"carillon/shard/record"
	"carillon/timer/encoding"

	pb "go.etcd.io/raft/v3/raftpb"
)

// The encoding of raft messages between hosts (docs/formats/peer.md). It is written by hand because
// raft's protobuf costs several times as much, and appends are most of the cost of a replicated
// operation.

// Bits of a message: the fields that follow.
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

// ErrMessage reports bytes that are no message.
var ErrMessage = errors.New("malformed message")

// AppendMessage encodes a message. It encodes only the metadata of a snapshot, whose state is
// streamed separately.
func AppendMessage(b []byte, m *pb.Message) []byte {
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
	b = encoding.AppendUvarints(append(b, byte(m.GetType()), bits), m.GetTo(), m.GetFrom(), m.GetTerm())
	if bits&messageLog != 0 {
		b = encoding.AppendUvarints(b, m.GetLogTerm(), m.GetIndex())
	}
	if bits&messageCommit != 0 {
		b = binary.AppendUvarint(b, m.GetCommit())
	}
	if bits&messageHint != 0 {
		b = binary.AppendUvarint(b, m.GetRejectHint())
	}
	if bits&messageContext != 0 {
		b = encoding.AppendBlock(b, m.Context)
	}
	if bits&messageEntries != 0 {
		b = appendMessageEntries(b, m)
	}
	if bits&messageSnapshot != 0 {
		meta := m.Snapshot.GetMetadata()
		b = record.AppendConf(encoding.AppendUvarints(b, meta.GetIndex(), meta.GetTerm()), meta.GetConfState())
	}
	return b
}

// MessageHead bounds the bytes of a message in a frame, without entries, context and configuration.
const MessageHead = 64

// EntriesRoom bounds the bytes of a message's entries.
func EntriesRoom(m *pb.Message) (room int) {
	if len(m.Entries) == 0 {
		return 0
	}
	for _, e := range m.Entries {
		room += len(e.Data) + binary.MaxVarintLen64 + 1 + binary.MaxVarintLen32
	}
	return room + binary.MaxVarintLen32
}

func appendMessageEntries(b []byte, m *pb.Message) []byte {
	b = binary.AppendUvarint(b, uint64(len(m.Entries)))
	for i, e := range m.Entries {
		if e.GetIndex() != m.GetIndex()+1+uint64(i) {
			panic(fmt.Sprintf("raftlog: entry %d of a message is number %d after %d", i, e.GetIndex(), m.GetIndex()))
		}
		b = record.AppendEntry(b, e)
	}
	return b
}

// HasEntries reports whether an encoded message has entries.
func HasEntries(b []byte) bool { return len(b) > 1 && b[1]&messageEntries != 0 }

// DecodeMessage decodes the output of AppendMessage. Entries and context point into b.
func DecodeMessage(b []byte) (*pb.Message, error) {
	if len(b) < 2 || b[1]&^messageBits != 0 {
		return nil, ErrMessage
	}
	bits, r := b[1], record.Read(b[2:])
	h := &heldMessage{kind: pb.MessageType(b[0]), to: r.Uvarint(), from: r.Uvarint(), term: r.Uvarint()}
	m := &h.message
	m.Type, m.To, m.From, m.Term = &h.kind, &h.to, &h.from, &h.term
	if bits&messageReject != 0 {
		h.reject = true
		m.Reject = &h.reject
	}
	if bits&messageLog != 0 {
		h.logTerm, h.index = r.Uvarint(), r.Uvarint()
		m.LogTerm, m.Index = &h.logTerm, &h.index
	}
	if bits&messageCommit != 0 {
		h.commit = r.Uvarint()
		m.Commit = &h.commit
	}
	if bits&messageHint != 0 {
		h.hint = r.Uvarint()
		m.RejectHint = &h.hint
	}
	if bits&messageContext != 0 {
		m.Context = r.Bytes()
	}
	if bits&messageEntries != 0 {
		m.Entries = readMessageEntries(&r, m.GetIndex())
	}
	if bits&messageSnapshot != 0 {
		m.Snapshot = &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(r.Uvarint()), Term: new(r.Uvarint()), ConfState: r.Conf()}}
	}
	if r.Close() != nil {
		return nil, ErrMessage
	}
	return m, nil
}

// heldMessage is a message and the values that it points to, in one allocation.
type heldMessage struct {
	message                                      pb.Message
	to, from, term, logTerm, index, commit, hint uint64
	kind                                         pb.MessageType
	reject                                       bool
}

// readMessageEntries reads the entries after an index. An entry takes at least three bytes, which
// bounds the allocation.
func readMessageEntries(r *record.Reader, after uint64) []*pb.Entry {
	n := r.Count(len(r.Rest), 3, "entries")
	held := make([]heldEntry, n)
	out := make([]*pb.Entry, n)
	for i := range held {
		h := &held[i]
		h.index, h.term, h.kind = after+1+uint64(i), r.Uvarint(), pb.EntryType(r.Byte())
		h.entry.Index, h.entry.Term, h.entry.Type, h.entry.Data = &h.index, &h.term, &h.kind, r.Bytes()
		out[i] = &h.entry
	}
	return out
}

// heldEntry is an entry and the values that it points to.
type heldEntry struct {
	entry       pb.Entry
	index, term uint64
	kind        pb.EntryType
}
