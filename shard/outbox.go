package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"carillon/shard/halt"
	"carillon/shard/raftlog"
	"carillon/timer"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Peers sends messages to other nodes. Its methods do not block and may drop messages: raft repeats
// its own, and reports of ended calls are repeated until they are acknowledged.
type Peers interface {
	// Send sends a frame to the Host.Deliver of a node. Peers owns the frame from then on.
	Send(node uint64, frame []byte)
	// SendSnapshot starts to stream a snapshot to the Host.Receive of a node. It calls s.Done once,
	// on any goroutine.
	SendSnapshot(node uint64, s *SnapshotStream)
}

// noPeers is the Peers of a host without other nodes.
type noPeers struct{}

func (noPeers) Send(uint64, []byte) {}
func (noPeers) SendSnapshot(_ uint64, s *SnapshotStream) {
	s.Done(errors.New("shard: there is no transport"))
}

// A frame is a version byte and messages. A message is a kind, a group, a length and a body.
const (
	frameVersion  = 1
	frameFlush    = 4 << 20  // a larger frame is sent before the turn ends
	maxPeerQueued = 64 << 20 // bytes of unhandled peer messages at a worker; more are dropped
)

const (
	raftMessage   = 1 + iota
	reportMessage // how a call ended that a former leader started
	stateMessage  // a replica's state hash after an entry; see comparison
	termQuestion  // to a voter: whether it is in the leader's term; see reads
	termAnswer    // … it is

	overMessage = 8 // to a former leader: the lease that it reported is over
)

// outgoing is the frame of a turn for one node.
type outgoing struct {
	node    uint64
	frame   []byte
	entries int // most of its bytes that may belong to entries
	usual   int // bytes of the last frame without entries; the next one's initial capacity
}

// addMessage appends a message to this turn's frame for a node; body appends its content.
// entries is the capacity to reserve for entries, in bytes.
func (w *worker) addMessage(node uint64, kind byte, id timer.ShardID, entries int, body func(frame []byte) []byte) {
	i, known := slices.BinarySearchFunc(w.outbox, node, func(o outgoing, node uint64) int { return cmp.Compare(o.node, node) })
	if !known {
		w.outbox = slices.Insert(w.outbox, i, outgoing{node: node})
	}
	o := &w.outbox[i]
	if len(o.frame) == 0 {
		o.frame = append(make([]byte, 0, min(max(o.usual, 64), frameFlush)+entries), frameVersion)
	} else if entries > 0 {
		o.frame = slices.Grow(o.frame, entries+raftlog.MessageHead)
	}
	o.entries += entries
	o.frame = append(o.frame, kind)
	o.frame = binary.AppendUvarint(o.frame, uint64(id))
	o.frame = append(o.frame, 0, 0, 0, 0)
	at := len(o.frame)
	o.frame = body(o.frame)
	binary.LittleEndian.PutUint32(o.frame[at-4:], uint32(len(o.frame)-at))
	if len(o.frame) > frameFlush {
		o.leave(w)
	}
}

func (o *outgoing) leave(w *worker) {
	o.usual = max(0, len(o.frame)-o.entries)
	w.host.cfg.Peers.Send(o.node, o.frame)
	o.frame, o.entries = nil, 0
}

func (r *replica) send(m *pb.Message) {
	if m.GetType() == pb.MsgSnap {
		r.snapshots.send(r, m)
		return
	}
	if !mayCome(m.GetType()) {
		// Raft has just become a follower and forwards a request to the leader. The caller is
		// answered when collect handles the change of role.
		return
	}
	if !r.pipeline.holdsBack(r, m) && !r.membership.withholds(r, m) {
		r.sendNow(m)
	}
}

func (r *replica) sendNow(m *pb.Message) {
	r.w.addMessage(nodeOf(m.GetTo()), raftMessage, r.shard, raftlog.EntriesRoom(m), func(frame []byte) []byte { return raftlog.AppendMessage(frame, m) })
}

func nodeOf(replica uint64) uint64 { return replica >> 24 }

// Deliver accepts a frame from another node's Peers. The host owns the frame from then on. It drops
// messages that are malformed or not for this node, and frames that a worker has no room for
// (maxPeerQueued).
func (h *Host) Deliver(from uint64, frame []byte) {
	select {
	case <-h.started:
	default:
		return
	}
	h.InContact(from)
	if len(frame) == 0 || frame[0] != frameVersion {
		return
	}
	var few [8]*peerFrame
	parts := few[:]
	if len(h.workers) > len(few) {
		parts = make([]*peerFrame, len(h.workers))
	}
	entries, groups := 0, h.all()
	for rest := frame[1:]; len(rest) > 0; {
		kind := rest[0]
		id, n := binary.Uvarint(rest[1:])
		if n <= 0 || len(rest) < 1+n+4 {
			break
		}
		rest = rest[1+n:]
		size := binary.LittleEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			break
		}
		if id >= uint64(len(groups)) { // this node does not know yet that there are so many
			rest = rest[size:]
			continue
		}
		group := groups[id]
		if kind == reportMessage { // one that is yet to be divided has the timers of its child
			group = h.resolve(group.shard)
		}
		k := int(group.shard) % len(h.workers)
		f := parts[k]
		if f == nil {
			f = &peerFrame{from: from}
			f.messages, parts[k] = f.first[:0], f
		}
		m := peerMessage{kind: kind, group: group, body: rest[:size:size]}
		if m.hasEntries() {
			entries += int(size)
		}
		f.messages = append(f.messages, m)
		f.bytes += int(size)
		rest = rest[size:]
	}
	for k, f := range parts {
		if f != nil {
			if 2*entries < len(frame) {
				f.ownEntries()
			}
			h.workers[k].takeFrame(f)
		}
	}
}

// ownEntries copies the messages that contain entries. Entries stay in memory until they are on
// disk, and would keep the whole frame, most of which is other messages.
func (f *peerFrame) ownEntries() {
	for i := range f.messages {
		if m := &f.messages[i]; m.hasEntries() {
			m.body = bytes.Clone(m.body)
		}
	}
}

func (m *peerMessage) hasEntries() bool {
	return m.kind == raftMessage && raftlog.HasEntries(m.body)
}

func (w *worker) takeFrame(f *peerFrame) {
	if w.peerBytes.Add(int64(f.bytes)) > maxPeerQueued {
		w.peerBytes.Add(int64(-f.bytes))
		return
	}
	w.box.post(f)
}

// peerFrame is the part of a frame that goes to one worker.
type peerFrame struct {
	from     uint64
	messages []peerMessage
	first    [2]peerMessage // storage of messages: most frames have no more
	bytes    int
}

type peerMessage struct {
	kind  byte
	group *replica
	body  []byte
}

func (f *peerFrame) handle(w *worker) {
	w.peerBytes.Add(int64(-f.bytes))
	for i := range f.messages {
		m := &f.messages[i]
		switch m.kind {
		case raftMessage:
			m.group.receive(f.from, m.body)
		case termQuestion, termAnswer:
			m.group.receiveTerm(m.kind, f.from, m.body)
		case stateMessage:
			m.group.compare.receive(m.group, f.from, m.body)
		default:
			m.group.machine.receive(m.kind, f.from, m.body)
		}
	}
}

// receive handles a raft message from a peer.
func (r *replica) receive(from uint64, body []byte) {
	m, err := raftlog.DecodeMessage(body)
	if err != nil || r.raft == nil || m.GetTo() != r.id || nodeOf(m.GetFrom()) != from || !mayCome(m.GetType()) {
		return
	}
	if r.hasLost(m) || r.saysNothing(m) {
		return
	}
	r.membership.sendCommitHint(r, m)
	r.election.asked(r, m)
	if waitsForDisk(m.GetType()) {
		if r.w.full() {
			return
		}
		r.w.budget.heard += len(body) + partOverhead
	}
	_ = r.raft.Step(m) // raft refuses old messages, and those of replicas that it does not know
	r.w.touch(r)
}

// saysNothing reports that m is a follower's answer without an index to the leader of its own term.
// A follower that was paused answers the old leader's messages so, to tell it of the term. Raft would
// take it for a follower whose log is empty, and send it a snapshot.
func (r *replica) saysNothing(m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && m.GetIndex() == 0 && !m.GetReject() && m.GetTerm() <= r.term
}

// hasLost halts the host if a heartbeat shows that this replica lacks entries that it acknowledged.
// A heartbeat's commit index never exceeds the entries that its receiver has acknowledged as
// durable. If it does, damage took the end of the log, where it looks like an unfinished write. The
// replica may have lost a vote, and entries that were counted for a majority, so it must stop.
// Raft itself would panic.
func (r *replica) hasLost(m *pb.Message) bool {
	if m.GetType() != pb.MsgHeartbeat || m.GetTerm() < r.term || m.GetCommit() <= r.store.Last() {
		return false
	}
	r.w.host.halt(&halt.Error{Reason: halt.LostEnd, Err: fmt.Errorf("shard %d: this node had acknowledged entries up to %d, but its log ends at entry %d: the end of the log was damaged",
		r.shard, m.GetCommit(), r.store.Last())})
	return true
}

// waitsForDisk reports whether the response to a message must wait for a write to disk.
func waitsForDisk(t pb.MessageType) bool {
	return t == pb.MsgApp || t == pb.MsgVote || t == pb.MsgPreVote
}

// mayCome reports whether a peer may send a message of this type: all types that raft sends to
// others except MsgSnap, which arrives with its state.
func mayCome(t pb.MessageType) bool {
	switch t {
	case pb.MsgSnap, pb.MsgProp, pb.MsgTransferLeader, pb.MsgReadIndex, pb.MsgReadIndexResp:
		return false
	}
	return t >= 0 && t <= pb.MsgPreVoteResp && !raft.IsLocalMsg(t)
}
