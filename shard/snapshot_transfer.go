package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/raftlog"
	"carillon/shard/record"
	"carillon/timer"
	"carillon/wal"
)

// A replica that needs entries which are no longer in memory gets a snapshot. Raft's message names
// the snapshot, and the state is streamed apart from it (Peers.SendSnapshot to Host.Receive). The
// receiver writes the state to a file, reads it back and checks it, and only then passes the
// message to raft.

// SnapshotStream is a snapshot on its way to another node.
type SnapshotStream struct {
	Header []byte // identifies the stream: equal headers are the same stream
	Size   int64
	Open   func() (SnapshotSource, error)
	Done   func(error) // called once, when the receiver has taken it or it failed
}

// SnapshotSource reads a snapshot's state from any offset. wal.SnapshotReader implements it.
type SnapshotSource interface {
	io.Reader
	SeekTo(offset int64) error
	Close() error
}

// snapshots are those that a group sends to other nodes, and receives from them.
type snapshots struct {
	wanted   bool              // a follower or a backup needs one
	failed   error             // of the last one that was written, until a backup is told
	incoming *receivedSnapshot // from a peer, for raft to install
	installs uint64            // snapshots from peers that became the state
}

// offer answers raft's request for a snapshot to send. A snapshot is good if the log in memory
// continues from it, and it has the current membership. Otherwise a new one is made, and raft asks
// again.
func (s *snapshots) offer(r *replica) (*pb.Snapshot, error) {
	f := &r.files
	if r.wrong.why != nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	if !f.Readable() || f.Newest.Index < r.store.Offset || f.Newest.Index < r.membership.index {
		s.wanted = true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(f.Newest.Index), Term: new(f.Newest.Term), ConfState: f.Newest.Conf}}, nil
}

// send streams the snapshot that raft's message names.
func (s *snapshots) send(r *replica, m *pb.Message) {
	from, to := m.GetFrom(), m.GetTo()
	stream, err := s.stream(r, m, func(size int64, err error) {
		r.w.box.post(&shipped{group: r, from: from, to: to, size: size, err: err})
	})
	if err != nil {
		r.raft.ReportSnapshot(to, raft.SnapshotFailure)
		return
	}
	r.w.host.cfg.Peers.SendSnapshot(nodeOf(to), stream)
}

// stream makes a stream of the snapshot that a message names. done is called when the
// stream has ended.
func (s *snapshots) stream(r *replica, m *pb.Message, done func(size int64, err error)) (*SnapshotStream, error) {
	meta := wal.SnapshotMeta{Shard: uint32(r.shard), Index: m.Snapshot.GetMetadata().GetIndex(), Term: m.Snapshot.GetMetadata().GetTerm()}
	h := r.w.host
	file, err := wal.OpenSnapshot(h.cfg.FS, h.snapshotDir(), meta.FileName())
	if err != nil {
		h.cfg.Logger.Error("a snapshot for another node cannot be read; a new one is made", "shard", uint32(r.shard), "error", err)
		r.files.Newest.Conf, s.wanted = nil, true
		return nil, err
	}
	size, hash := file.Size(), file.Meta().Hash
	_ = file.Close()
	return &SnapshotStream{
		Header: appendTransferHeader(nil, &transferHeader{group: r.shard, message: m, hash: hash, epoch: r.files.Newest.Epoch}),
		Size:   size,
		Open: func() (SnapshotSource, error) {
			file, err := wal.OpenSnapshot(h.cfg.FS, h.snapshotDir(), meta.FileName())
			if err != nil {
				return nil, err // not a nil reader in an interface, which is not nil
			}
			return &ownSnapshot{file, r}, nil
		},
		Done: func(err error) { done(size, err) },
	}, nil
}

// ownSnapshot is a snapshot of this node that another one is sent, or a backup. Where it turns out
// to be damaged, the group makes another: else those who need it would get the same one for ever.
type ownSnapshot struct {
	*wal.SnapshotReader
	group *replica
}

func (o *ownSnapshot) Read(p []byte) (int, error) {
	n, err := o.SnapshotReader.Read(p)
	return n, o.check(err)
}

func (o *ownSnapshot) SeekTo(offset int64) error { return o.check(o.SnapshotReader.SeekTo(offset)) }

func (o *ownSnapshot) check(err error) error {
	if _, damaged := errors.AsType[*wal.CorruptionError](err); damaged {
		o.group.w.box.post(&damagedSnapshot{o.group, o.Meta().Index, err})
	}
	return err
}

// damagedSnapshot gives a group's newest snapshot up.
type damagedSnapshot struct {
	group *replica
	index uint64
	err   error
}

func (d *damagedSnapshot) handle(w *worker) {
	r := d.group
	if r.files.Newest.Index == d.index && r.files.Readable() {
		w.host.cfg.Logger.Error("a snapshot is damaged; a new one is made", "shard", uint32(r.shard), "error", d.err)
		r.files.Newest.Conf, r.snapshots.wanted = nil, true
	}
}

// shipped is the end of a snapshot's stream.
type shipped struct {
	group    *replica
	from, to uint64
	size     int64
	err      error
}

func (s *shipped) handle(w *worker) {
	r := s.group
	if s.err == nil {
		w.host.cfg.Observer.SnapshotSent(s.size)
	}
	if r.raft == nil || r.id != s.from || !r.leader {
		return
	}
	status := raft.SnapshotFinish
	if s.err != nil {
		status = raft.SnapshotFailure
		w.host.cfg.Logger.Warn("a snapshot did not reach another node; it is sent again", "shard", uint32(r.shard), "node", w.host.nodeName(nodeOf(s.to)), "error", s.err)
	}
	r.raft.ReportSnapshot(s.to, status)
	w.touch(r)
}

// transferHeader is the header of a stream: raft's message, the state's hash and the epoch of its
// membership.
type transferHeader struct {
	group   timer.ShardID
	message *pb.Message
	hash    uint64
	epoch   uint32
}

// The first byte of a header.
const transferVersion = 1

func appendTransferHeader(b []byte, s *transferHeader) []byte {
	b = append(b, transferVersion)
	b = binary.LittleEndian.AppendUint64(b, s.hash)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(s.group)), uint64(s.epoch))
	return raftlog.AppendMessage(b, s.message)
}

func decodeTransferHeader(b []byte) (*transferHeader, error) {
	if len(b) == 0 || b[0] != transferVersion {
		return nil, raftlog.ErrMessage
	}
	r := record.Read(b[1:])
	s := &transferHeader{hash: r.U64(), group: timer.ShardID(r.Number(1<<32-1, "group")), epoch: uint32(r.Number(1<<32-1, "epoch"))}
	if r.Fault != "" {
		return nil, raftlog.ErrMessage
	}
	var err error
	if s.message, err = raftlog.DecodeMessage(r.Rest); err != nil {
		return nil, err
	}
	if s.message.GetType() != pb.MsgSnap || s.message.Snapshot == nil {
		return nil, raftlog.ErrMessage
	}
	return s, nil
}

// Receive begins to receive a snapshot that another node streams.
func (f snapshotFiles) Receive(from uint64, header []byte, size int64) (*Incoming, error) {
	select {
	case <-f.h.started:
	default:
		return nil, timer.ErrRecovering
	}
	s, err := decodeTransferHeader(header)
	if err != nil || int(s.group) >= len(f.h.all()) || nodeOf(s.message.GetFrom()) != from {
		return nil, fmt.Errorf("shard: snapshot stream: %w", raftlog.ErrMessage)
	}
	if nodeOf(s.message.GetTo()) != f.h.cfg.Node {
		return nil, fmt.Errorf("shard: snapshot stream: it is for node %d", nodeOf(s.message.GetTo()))
	}
	meta := s.message.Snapshot.GetMetadata()
	in := &Incoming{host: f.h, header: s, size: size}
	in.mark = record.Mark{Replica: s.message.GetTo(), Index: meta.GetIndex(), Term: meta.GetTerm(), Conf: meta.GetConfState(), Hash: s.hash, Epoch: s.epoch}
	in.meta = wal.SnapshotMeta{Shard: uint32(s.group), Index: in.mark.Index, Term: in.mark.Term, Hash: s.hash, Conf: record.AppendMark(nil, in.mark)}
	if !f.h.stream.HasRoom(uint64(max(size, 0)), f.h.stream.SnapshotFloor()) {
		return nil, fmt.Errorf("shard: no room for a snapshot of %d bytes: %d are free", size, f.h.stream.Disk().Free)
	}
	if in.file, err = wal.CreateSnapshot(f.h.cfg.FS, f.snapshotDir(), in.meta); err != nil {
		return nil, err
	}
	in.file.KeepFree(f.h.stream.SnapshotFloor())
	return in, nil
}

// Incoming is a snapshot that is being received. It is used by one goroutine.
type Incoming struct {
	host   *Host
	header *transferHeader
	mark   record.Mark
	meta   wal.SnapshotMeta
	file   *wal.SnapshotWriter
	size   int64
	have   int64
}

func (in *Incoming) Have() int64 { return in.have }

// Write takes the next bytes of the stream.
func (in *Incoming) Write(p []byte) (int, error) {
	if in.have+int64(len(p)) > in.size {
		return 0, errors.New("shard: a snapshot stream is longer than announced")
	}
	n, err := in.file.Write(p)
	in.have += int64(n)
	return n, err
}

func (in *Incoming) Abort() { in.file.Abort() }

// Commit makes the file durable, reads it back and passes it to the group. After an error the group
// does not have it, and keeps its own snapshot of that entry, if there is one.
func (in *Incoming) Commit() error {
	defer in.file.Abort() // does nothing once it is committed
	if in.have != in.size {
		return fmt.Errorf("shard: a snapshot stream ended after %d of %d bytes", in.have, in.size)
	}
	h, r := in.host, in.host.group(in.header.group)
	a := &receivedSnapshot{group: r, message: in.header.message, mark: in.mark, size: in.size}
	h.arriving.Add(in.size)
	h.memory.Add(in.size)
	defer func() {
		h.arriving.Add(-in.size)
		h.memory.Add(-in.size)
	}()
	if err := a.read(in.file); err != nil {
		return fmt.Errorf("%s: %w", in.meta.FileName(), err)
	}
	err := in.file.Commit()
	h.directory.Add(in.meta)
	if err != nil {
		return err
	}
	return r.w.box.put(a, math.MaxInt)
}

// receivedSnapshot is a snapshot that has been received whole.
type receivedSnapshot struct {
	group   *replica
	message *pb.Message
	mark    record.Mark
	size    int64
	state   any // see Host.readState
}

// read reads the file back into a new state.
func (s *receivedSnapshot) read(file *wal.SnapshotWriter) error {
	f, err := file.Seal()
	if err != nil {
		return err
	}
	defer f.Close()
	s.state, err = s.group.w.host.readState(f, s.group.shard, s.mark.Hash)
	return err
}

func (s *receivedSnapshot) handle(w *worker) {
	r := s.group
	if r.id != s.mark.Replica {
		r.leftovers.some = true
		return // the replica was removed
	}
	if r.raft == nil || s.mark.Index <= r.applied {
		return // the group has stopped, or needs it no more
	}
	before := r.raft.BasicStatus().GetCommit()
	_ = r.raft.Step(s.message)
	// Raft decides whether to take the snapshot, and shows it in its next append. If raft takes it,
	// the commit index moves to the snapshot's end or beyond. If the commit index was there before,
	// raft has not taken it: an older snapshot may follow a newer one in one turn.
	if before < s.mark.Index && r.raft.BasicStatus().GetCommit() >= s.mark.Index {
		r.snapshots.incoming = s
	}
	w.touch(r)
}

// install makes a received snapshot the group's state, as raft has decided.
func (s *snapshots) install(r *replica, taken *pb.Snapshot) record.Mark {
	a := s.incoming
	index := taken.GetMetadata().GetIndex()
	if a == nil || a.mark.Index != index || a.mark.Term != taken.GetMetadata().GetTerm() {
		panic(fmt.Sprintf("shard %d: raft restores from snapshot %d, which has not arrived", r.shard, index))
	}
	s.incoming = nil
	s.installs++
	r.w.abortSnapshot(r)
	r.machine.replace(a.state)
	r.trustAgain()
	r.place(a.mark)
	r.membership.index = index
	r.files.Restored(&a.mark)
	r.w.host.cfg.Observer.SnapshotReceived(a.size)
	return a.mark
}
