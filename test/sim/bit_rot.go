package sim

import (
	"io"
	"path/filepath"
	"slices"
	"time"

	"carillon/shard/record"
	"carillon/timer"
	"carillon/wal"
)

// reached is the progress of a replica. An applied entry is on its disk, so the next process on
// that disk has it in its log (I10).
type reached struct{ replica, applied uint64 }

// restored is the newest snapshot from a peer that became a replica's state, and the progress
// before it.
type restored struct {
	index  uint64
	before reached
	floor  uint64 // applied before the first of several in a row, with nothing applied between
}

// mayForget excuses one loss: the file with this name, which is about to be damaged, is a snapshot
// from a peer that the node has promised to nobody yet. Its log must still hold all before it.
func (n *node) mayForget(name string) {
	list, err := wal.Snapshots(n.copyOf(), filepath.Join(dataDir, "snapshots"))
	if err != nil {
		n.w.violate("rot", "%v", err)
	}
	for _, s := range list {
		if s.Name != name {
			continue
		}
		id, r := timer.ShardID(s.Shard), n.restored[s.Shard]
		if r.index == s.Index && n.reached[id].applied == s.Index && !n.promised(id, s.Index) {
			n.reached[id] = r.before
			n.w.note(n, "may forget", uint64(id), s.Index, "")
		}
	}
}

// forgot reports whether a start may end its log of a group at an entry, though more was applied:
// it could not read the snapshots from peers that had the rest, and had promised none of them.
func (n *node) forgot(id timer.ShardID, last uint64) bool {
	r := n.restored[id]
	if !n.hadReadErrors() || r.index != n.reached[id].applied || last < r.floor || n.promised(id, last+1) {
		return false
	}
	n.reached[id].applied = last
	n.w.note(n, "forgot", uint64(id), last, "")
	return true
}

// promised reports whether a node without a process has promised a snapshot from a peer: its log
// names it, or the leader counts on it.
func (n *node) promised(id timer.ShardID, index uint64) bool {
	replica := n.reached[id].replica
	if leader := n.w.leader(id); leader != nil {
		_, s := leader.host.Inspect(id)
		behind, active := s.Behind[replica]
		if active && leader.host.Progress(id).Last-behind >= index {
			return true
		}
	}
	log := markInLog{replica: replica, index: index}
	stream, err := wal.Open(n.copyOf(), filepath.Join(dataDir, "wal", "0"), wal.Options{SegmentBytes: n.w.swarm.segmentBytes}, func(_ wal.Position, r wal.Record) error {
		if r.Shard != uint32(id) {
			return nil
		}
		return record.Fold(r, &log)
	})
	if err != nil {
		n.w.violate("rot", "the log of node %d: %v", n.id, err)
	}
	_ = stream.Close()
	return log.found
}

// markInLog reads a replica's log and finds whether it names a snapshot: by a mark, or by a commit
// index that reaches it.
type markInLog struct {
	replica, index uint64
	found          bool
}

// Create implements record.Folder.
func (l *markInLog) Create(record.Mark) error { l.found = false; return nil }

// Tombstone implements record.Folder.
func (l *markInLog) Tombstone(uint64) error { l.found = false; return nil }

// HardState implements record.Folder.
func (l *markInLog) HardState(h record.HardState) error {
	l.found = l.found || h.Commit >= l.index
	return nil
}

// Entries implements record.Folder.
func (l *markInLog) Entries([]record.Entry) error { return nil }

// Snapshot implements record.Folder.
func (l *markInLog) Snapshot(m record.Mark) error {
	l.found = l.found || m.Replica == l.replica && m.Index >= l.index
	return nil
}

// remembers checks after a start that the disk still holds the replicas.
func (n *node) remembers() {
	if n.reached == nil {
		n.reached = make([]reached, n.w.most()+1)
		n.restored = make([]restored, n.w.most()+1)
	}
	for i, had := range n.reached {
		// without entries its creation may not have been on disk yet
		if had.replica != 0 && had.applied > 1 && n.host.Progress(timer.ShardID(i)).Replica == 0 {
			n.w.violate("I10", "node %d: replica %x of group %d, which had applied entry %d, is gone after a start", n.id, had.replica, i, had.applied)
		}
		if p := n.host.Progress(timer.ShardID(i)); had.replica != 0 && p.Replica == had.replica && p.Last < had.applied && !n.forgot(timer.ShardID(i), p.Last) {
			n.w.violate("I10", "node %d: the log of group %d ends at entry %d after a start, but %d was applied before", n.id, i, p.Last, had.applied)
		}
	}
	for i := range n.w.shards() + 1 {
		id := timer.ShardID(i)
		gave, p := n.votes[id], n.host.Progress(id)
		if gave.replica != 0 && p.Replica == gave.replica && (p.HardTerm < gave.term || p.HardTerm == gave.term && p.Vote != gave.vote) {
			n.w.violate("I10", "node %d, group %d: term %d, vote %x after a start, but it voted for %x in term %d", n.id, i, p.HardTerm, p.Vote, gave.vote, gave.term)
		}
	}
}

// replace gives a machine up. A machine of the same name with an empty disk and a new id takes its
// place.
func (n *node) replace() {
	w := n.w
	n.gone = true
	n.stop(true)
	fresh := w.newNode(n.name)
	w.after(w.chance.between(time.Second, 10*time.Second), func() {
		// it may have been started meanwhile, or is held down on purpose
		if !fresh.up && !fresh.held {
			w.join(fresh)
		}
	})
}

// bitRot damages a file at rest, once in a machine's life and only when nothing else is wrong: a
// minority may lose its data. The next process there does without the damaged data, or is replaced.
// It never serves damaged data.
func (w *World) bitRot() {
	n := w.any()
	if n.rotten || w.swarm.nodes < 3 || !w.whole() {
		return
	}
	files := n.durableFiles()
	if len(files) == 0 {
		return
	}
	n.rots(files[w.chance.IntN(len(files))])
}

// rots damages a file of a machine at rest.
func (n *node) rots(f durableFile) {
	w := n.w
	n.stop(false)
	n.rotten = true
	w.counts.Rots++
	w.note(n, "rot", uint64(f.upTo), 0, f.path)
	n.mayForget(filepath.Base(f.path))
	err := n.disk.Damage(f.path, func(b []byte) []byte { return w.spoil(b, f) })
	if err != nil {
		w.violate("rot", "%v", err)
	}
}

// spoil cuts a file inside its last frame, or flips a bit, overwrites some bytes or loses sectors in
// its durable part.
func (w *World) spoil(b []byte, f durableFile) []byte {
	r, upTo := w.chance, f.upTo
	if f.cut {
		if end := written(b); int64(end) <= w.swarm.segmentBytes && end > 0 {
			b = b[:end-1-r.IntN(8)] // a frame has more bytes before its last that is not zero
		}
		return b
	}
	at := r.IntN(upTo)
	switch r.IntN(3) {
	case 0:
		b[at] ^= 1 << r.IntN(8)
	case 1:
		for end := min(upTo, at+1+r.IntN(200)); at < end; at++ {
			b[at] = byte(r.Uint32())
		}
	default:
		const sector = 512
		at -= at % sector
		clear(b[at:min(upTo, at+sector*(1+r.IntN(4)))])
	}
	return b
}

// durableFile is a file and the length of its part that was surely on disk, or the newest segment of
// a log, to be cut.
type durableFile struct {
	path string
	upTo int
	cut  bool
}

// durableFiles are the log's segments and the snapshots. Of the newest segment only the first
// quarter counts: only a later frame distinguishes a damaged frame from an unfinished write. But it
// may be cut, within the prepared space: that is no unfinished write.
func (n *node) durableFiles() (list []durableFile) {
	const least = 4096
	segments := n.files(filepath.Join(dataDir, "wal", "0"), true)
	for i, path := range segments {
		size := n.content(path)
		if i == len(segments)-1 {
			if size > 0 {
				list = append(list, durableFile{path: path, cut: true})
			}
			if size < least {
				continue
			}
			size /= 4
		}
		if size > 0 {
			list = append(list, durableFile{path: path, upTo: size})
		}
	}
	for _, path := range n.files(filepath.Join(dataDir, "snapshots"), false) {
		if size := n.content(path); size > 0 && filepath.Ext(path) == ".snap" {
			list = append(list, durableFile{path: path, upTo: size})
		}
	}
	return list
}

// files lists the files in dir, sorted; with deep also those in its generation directories.
func (n *node) files(dir string, deep bool) (list []string) {
	entries, err := n.disk.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name)
		switch {
		case e.Dir && deep && e.Name != "spare": // spare holds no frames
			list = append(list, n.files(path, false)...)
		case !e.Dir && !deep && filepath.Ext(e.Name) != ".broken":
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}

// content is the length of a file without its trailing zeros.
func (n *node) content(path string) int {
	f, err := n.disk.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return 0
	}
	return written(b)
}

// written is the length of content without its trailing zeros.
func written(b []byte) int {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return len(b)
}
