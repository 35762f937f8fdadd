package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
)

const (
	snapshotMagic   = "CARSNAP1"
	snapshotVersion = 1
	snapshotSuffix  = ".snap"

	// snapshotChunkBytes is the data in each chunk but the last, which may hold less.
	snapshotChunkBytes  = 256 << 10
	chunkHeaderBytes    = 4 + 8
	snapshotFixedBytes  = 8 + 4 + 4 + 8 + 8 + 4 // header without conf and hash
	snapshotFooterBytes = 4 + 5*8
	footerMark          = 0xFFFFFFFF // where a chunk's length would stand
	maxConfBytes        = 1 << 20
)

// SnapshotMeta describes a snapshot file.
type SnapshotMeta struct {
	Shard uint32
	Index uint64 // raft index up to which it covers the log
	Term  uint64
	Hash  uint64 // of the state, as the host computes it; opaque here
	Conf  []byte // membership at Index; opaque here, at most 1 MiB
}

// FileName is the name of the snapshot's file: shard, index and term in hexadecimal.
func (m SnapshotMeta) FileName() string {
	return fmt.Sprintf("%08x-%016x-%016x%s", m.Shard, m.Index, m.Term, snapshotSuffix)
}

// SnapshotInfo is a listing's entry for a snapshot, which is not opened for it.
type SnapshotInfo struct {
	Name  string
	Shard uint32
	Index uint64
	Term  uint64
	Bytes int64 // size of the file
}

func parseSnapshotName(name string) (SnapshotInfo, bool) {
	i := SnapshotInfo{Name: name}
	var numbers [3]uint64
	for k, digits := range strings.SplitN(strings.TrimSuffix(name, snapshotSuffix), "-", len(numbers)) {
		n, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return i, false
		}
		numbers[k] = n
	}
	i.Shard, i.Index, i.Term = uint32(numbers[0]), numbers[1], numbers[2]
	return i, SnapshotMeta{Shard: i.Shard, Index: i.Index, Term: i.Term}.FileName() == name
}

// Snapshots lists the complete snapshots in dir by shard, the newest of each first.
// A missing directory is an empty one.
func Snapshots(fsys vfs.FS, dir string) ([]SnapshotInfo, error) {
	list, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wal: list snapshots in %s: %w", dir, err)
	}
	var out []SnapshotInfo
	for _, e := range list {
		if i, ok := parseSnapshotName(e.Name); ok && !e.Dir {
			i.Bytes = e.Bytes
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b SnapshotInfo) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(b.Index, a.Index), cmp.Compare(b.Term, a.Term))
	})
	return out, nil
}

// PrepareSnapshotDir makes dir if it is missing, removes the temporary files of snapshots that were
// never committed, and makes the names of the others durable: the list of Snapshots then outlives a
// power cut, also where the process before could not sync the directory. Call it at start, before
// any CreateSnapshot.
func PrepareSnapshotDir(fsys vfs.FS, dir string) error {
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return fmt.Errorf("wal: snapshots in %s: %w", dir, err)
	}
	if err := removeMatching(fsys, dir, isUnfinished); err != nil {
		return err
	}
	if err := vfs.ResyncDir(fsys, dir); err != nil {
		return fmt.Errorf("wal: snapshots in %s: %w", dir, err)
	}
	return nil
}

// isUnfinished reports whether a name is that of a snapshot before its Commit.
func isUnfinished(name string) bool {
	return strings.Contains(name, snapshotSuffix+".") && strings.HasSuffix(name, vfs.TempSuffix)
}

// SnapshotConf returns the Conf of the snapshot of that file name.
func SnapshotConf(fsys vfs.FS, dir, name string) ([]byte, error) {
	f, err := OpenSnapshot(fsys, dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Meta().Conf, nil
}

func removeMatching(fsys vfs.FS, dir string, match func(name string) bool) error {
	list, err := fsys.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("wal: list snapshots in %s: %w", dir, err)
	}
	removed := false
	for _, e := range list {
		if e.Dir || !match(e.Name) {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, e.Name)); err != nil {
			return fmt.Errorf("wal: remove snapshot: %w", err)
		}
		removed = true
	}
	if !removed {
		return nil
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("wal: remove snapshots in %s: %w", dir, err)
	}
	return nil
}

// encodeSnapshotHeader returns the header's bytes and its hash, which seeds all others.
func encodeSnapshotHeader(m SnapshotMeta) ([]byte, uint64) {
	b := make([]byte, 0, snapshotFixedBytes+len(m.Conf)+8)
	b = append(b, snapshotMagic...)
	b = binary.LittleEndian.AppendUint32(b, snapshotVersion)
	b = binary.LittleEndian.AppendUint32(b, m.Shard)
	b = binary.LittleEndian.AppendUint64(b, m.Index)
	b = binary.LittleEndian.AppendUint64(b, m.Term)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Conf)))
	b = append(b, m.Conf...)
	sum := xxhash.Sum64(b)
	return binary.LittleEndian.AppendUint64(b, sum), sum
}

// snapshotFooter closes a snapshot; only a file that has it is whole.
type snapshotFooter struct {
	chunks      uint64
	bytes       uint64 // of data
	stateHash   uint64 // SnapshotMeta.Hash
	contentHash uint64 // xxh64 of all data
}

func (f snapshotFooter) encode(seed uint64) []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, snapshotFooterBytes), footerMark)
	for _, v := range [...]uint64{f.chunks, f.bytes, f.stateHash, f.contentHash} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint64(b, hashSeeded(seed, b))
}

func decodeSnapshotFooter(b []byte, seed uint64) (f snapshotFooter, err error) {
	body := b[:snapshotFooterBytes-8]
	if binary.LittleEndian.Uint32(b) != footerMark {
		return f, errTruncated
	}
	if hashSeeded(seed, body) != binary.LittleEndian.Uint64(b[len(body):]) {
		return f, errChecksum
	}
	return snapshotFooter{
		chunks:      binary.LittleEndian.Uint64(b[4:]),
		bytes:       binary.LittleEndian.Uint64(b[12:]),
		stateHash:   binary.LittleEndian.Uint64(b[20:]),
		contentHash: binary.LittleEndian.Uint64(b[28:]),
	}, nil
}

func hashSeeded(seed uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(b)
	return d.Sum64()
}
