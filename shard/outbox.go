package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"carillon/shard/table"
	"carillon/timer"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Peers carries what this host has for others. The methods do not block and may drop what they are
// given: raft and the reports of ended calls are repeated until they are heard.
type Peers interface {
	// Send hands over a frame for a node, for its Host.Deliver. It belongs to Peers from then on.
	Send(node uint64, frame []byte)
	// SendSnapshot begins to stream a snapshot to a node's Host.Receive, and calls its Done once,
	// from any goroutine.
	SendSnapshot(node uint64, s *SnapshotStream)
}

// noPeers is the Peers of a host that is alone.
type noPeers struct{}

func (noPeers) Send(uint64, []byte) {}
func (noPeers) SendSnapshot(_ uint64, s *SnapshotStream) {
	s.Done(errors.New("shard: there is no transport"))
}

// A frame: version, then messages, each with kind, group and length.
const (
	frameVersion  = 1
	frameFlush    = 4 << 20  // beyond this a frame leaves before its turn ends
	maxPeerQueued = 64 << 20 // bytes of frames that a worker has not taken yet; more are dropped
)

const (
	raftMessage   = 1 + iota
	reportMessage // a call that a former leader of the group had started has ended
	stateMessage  // what a replica's state was after an entry; see comparison
	refillMessage // a replica in quarantine asks for another's state

	overMessage = 8 // to a former leader: the lease that it reports on is over
)

// outgoing is a turn's frame for one node.
type outgoing struct {
	node    uint64
	frame   []byte
	entries int // bytes of it that are about entries, at most
	usual   int // bytes of the last frame but for entries: room for as much is made for the next
}

// open is the place in a turn's frame for a node where a message's body goes; close ends it. There
// is room for so many bytes of entries.
func (w *worker) open(node uint64, kind byte, id timer.ShardID, entries int) *outgoing {
	var o *outgoing
	for i := range w.outbox {
		if w.outbox[i].node == node {
			o = &w.outbox[i]
			break
		}
	}
	if o == nil {
		w.outbox = append(w.outbox, outgoing{node: node})
		o = &w.outbox[len(w.outbox)-1]
	}
	if len(o.frame) == 0 {
		o.frame = append(make([]byte, 0, min(max(o.usual, 64), frameFlush)+entries), frameVersion)
	} else if entries > 0 {
		o.frame = slices.Grow(o.frame, entries+messageHead)
	}
	o.entries += entries
	o.frame = append(o.frame, kind)
	o.frame = binary.AppendUvarint(o.frame, uint64(id))
	o.frame = append(o.frame, 0, 0, 0, 0)
	return o
}

func (o *outgoing) close(w *worker, body int) {
	binary.LittleEndian.PutUint32(o.frame[body-4:], uint32(len(o.frame)-body))
	if len(o.frame) > frameFlush {
		o.leave(w)
	}
}

func (o *outgoing) leave(w *worker) {
	o.usual = max(0, len(o.frame)-o.entries)
	w.host.cfg.Peers.Send(o.node, o.frame)
	o.frame, o.entries = nil, 0
}

// sendAll lets this turn's frames go.
func (w *worker) sendAll() {
	for i := range w.outbox {
		if o := &w.outbox[i]; len(o.frame) > 0 {
			o.leave(w)
		}
	}
}

// send hands a message to a peer.
func (g *group) send(m *pb.Message) {
	if m.GetType() == pb.MsgSnap {
		g.sendSnapshot(m)
		return
	}
	if !mayCome(m.GetType()) {
		return // raft, already a follower, passes a question on to the leader; who asked is told when its new role is collected
	}
	o := g.w.open(nodeOf(m.GetTo()), raftMessage, g.id, entriesRoom(m))
	body := len(o.frame)
	o.frame = appendMessage(o.frame, m)
	o.close(g.w, body)
}

// nodeOf is the node of a replica.
func nodeOf(replica uint64) uint64 { return replica >> 24 }

// Deliver takes a frame that another node's Peers sent. It belongs to the host from then on. What
// cannot be read, or is not for this node, is dropped; a frame also is when too much waits already.
func (h *Host) Deliver(from uint64, frame []byte) {
	select {
	case <-h.started:
	default:
		return
	}
	if len(frame) == 0 || frame[0] != frameVersion {
		return
	}
	var few [8]*peerFrame
	parts := few[:]
	if len(h.workers) > len(few) {
		parts = make([]*peerFrame, len(h.workers))
	}
	entries := 0
	for rest := frame[1:]; len(rest) > 0; {
		kind := rest[0]
		id, n := binary.Uvarint(rest[1:])
		if n <= 0 || len(rest) < 1+n+4 || id >= uint64(len(h.groups)) {
			break
		}
		rest = rest[1+n:]
		size := binary.LittleEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			break
		}
		k := int(id) % len(h.workers)
		f := parts[k]
		if f == nil {
			f = &peerFrame{from: from}
			f.messages, parts[k] = f.first[:0], f
		}
		m := peerMessage{kind: kind, group: h.groups[id], body: rest[:size:size]}
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

// ownEntries puts messages that have entries into memory of their own. Entries stay until they are
// on disk, and the whole frame would stay with them, of which most is something else.
func (f *peerFrame) ownEntries() {
	for i := range f.messages {
		if m := &f.messages[i]; m.hasEntries() {
			m.body = bytes.Clone(m.body)
		}
	}
}

func (m *peerMessage) hasEntries() bool {
	return m.kind == raftMessage && len(m.body) > 1 && m.body[1]&messageEntries != 0
}

func (w *worker) takeFrame(f *peerFrame) {
	if w.peerBytes.Add(int64(f.bytes)) > maxPeerQueued {
		w.peerBytes.Add(int64(-f.bytes))
		return
	}
	w.box.post(f)
}

// peerFrame is one worker's part of a frame.
type peerFrame struct {
	from     uint64
	messages []peerMessage
	first    [2]peerMessage // room for so many: most frames have no more
	bytes    int
}

type peerMessage struct {
	kind  byte
	group *group
	body  []byte
}

func (f *peerFrame) handle(w *worker) {
	w.peerBytes.Add(int64(-f.bytes))
	for i := range f.messages {
		m := &f.messages[i]
		switch m.kind {
		case raftMessage:
			m.group.hear(f.from, m.body)
		case reportMessage:
			m.group.hearReport(f.from, m.body)
		case overMessage:
			m.group.hearOver(m.body)
		case stateMessage:
			m.group.hearState(f.from, m.body)
		case refillMessage:
			m.group.hearRefillRequest(f.from, m.body)
		}
	}
}

// hear takes one of raft's messages from a peer.
func (g *group) hear(from uint64, body []byte) {
	m, err := decodeMessage(body)
	if err != nil || g.raft == nil || m.GetTo() != g.replica || nodeOf(m.GetFrom()) != from || !mayCome(m.GetType()) {
		return
	}
	if g.hasLost(m) {
		return
	}
	g.sendCommitHint(m)
	if waitsForDisk(m.GetType()) {
		if g.w.full() {
			return
		}
		g.w.heard += len(body) + partOverhead
	}
	_ = g.raft.Step(m) // what it refuses is old, or from a replica that it does not know
	g.w.touch(g)
}

// hasLost halts the host when a leader shows that this replica lacks what it had acknowledged. A
// heartbeat's commit is never beyond what its receiver has said to have on disk; if it is, damage
// took the log's end, where it cannot be told from a write that was never finished. The replica may
// have voted and counted for a majority by what it lost, so it must not go on; raft itself would
// panic.
func (g *group) hasLost(m *pb.Message) bool {
	if m.GetType() != pb.MsgHeartbeat || m.GetTerm() < g.term || m.GetCommit() <= g.store.last() {
		return false
	}
	g.w.host.halt(&HaltError{LostEnd, fmt.Errorf("shard %d: this node had acknowledged entries up to %d, but its log ends at entry %d: the end of the log was damaged",
		g.id, m.GetCommit(), g.store.last())})
	return true
}

// waitsForDisk says whether a message's answer has to wait until something is on disk.
func waitsForDisk(t pb.MessageType) bool {
	return t == pb.MsgApp || t == pb.MsgVote || t == pb.MsgPreVote
}

// mayCome says which messages a peer may send: those that raft sends to others, but a snapshot,
// which comes with its state.
func mayCome(t pb.MessageType) bool {
	switch t {
	case pb.MsgSnap, pb.MsgProp, pb.MsgTransferLeader, pb.MsgReadIndex, pb.MsgReadIndexResp:
		return false
	}
	return t >= 0 && t <= pb.MsgPreVoteResp && !raft.IsLocalMsg(t)
}

// Unreachable says that frames to a node were lost: what was sent to it is probed for anew.
func (h *Host) Unreachable(node uint64) { h.tell(&peerLost{node: node}) }

// peerLost tells the groups that a node does not hear.
type peerLost struct {
	node uint64
	gone bool // its process has ended
}

func (p *peerLost) handle(w *worker) {
	for _, g := range w.groups {
		if g.raft == nil {
			continue
		}
		if id := g.replicaOn(p.node); id != 0 && g.leader {
			g.raft.ReportUnreachable(id)
			w.touch(g)
		}
		if p.gone {
			g.leaderGone(p.node)
		}
	}
}

// leaderGone is told that a node's process has ended: if it led, there is no need to wait for the
// silence to last. The first in the row that is left stands at once, the others wait as ever.
func (g *group) leaderGone(node uint64) {
	if g.scheduler != nil {
		g.scheduler.ScanAgain()
	}
	if nodeOf(g.raft.BasicStatus().Lead) != node {
		return
	}
	if err := g.raft.ForgetLeader(); err != nil {
		return
	}
	g.w.touch(g)
	for _, m := range g.row.Members {
		if m.Node == node || m.Learner {
			continue
		}
		if m.Replica == g.replica {
			g.standAt = g.w.now.Mono + 2*tickInterval // the others have forgotten it too by then
		}
		return
	}
}

// tell posts an event to every worker.
func (h *Host) tell(e event) {
	for _, w := range h.workers {
		w.box.post(e)
	}
}

// goneOwners remembers the processes of other nodes that are known to have ended.
type goneOwners struct {
	mu     sync.Mutex                        // of writers
	starts atomic.Pointer[map[uint64]uint32] // by node: this start and all before it; never changed in place
}

// Gone says that a process, and so all before it on that node, has ended: its calls are over, and
// its leases with them.
func (h *Host) Gone(owner table.Incarnation) {
	if h.isGone(owner) {
		return
	}
	h.gone.mu.Lock()
	defer h.gone.mu.Unlock()
	next := map[uint64]uint32{}
	if old := h.gone.starts.Load(); old != nil {
		for node, start := range *old {
			next[node] = start
		}
	}
	next[owner.Node()] = max(next[owner.Node()], owner.Start())
	h.gone.starts.Store(&next)
	h.tell(&peerLost{node: owner.Node(), gone: true})
}

func (h *Host) isGone(owner table.Incarnation) bool {
	known := h.gone.starts.Load()
	if known == nil || owner == 0 {
		return false
	}
	start, ok := (*known)[owner.Node()]
	return ok && owner.Start() <= start
}
