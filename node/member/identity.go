package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/vfs"
	"carillon/ring"
	"carillon/shard"
)

// Identity is the owner of a data directory. It is written before anything else is, and again at
// every start.
type Identity struct {
	Version int    `json:"version"`
	NodeID  uint64 `json:"node_id"` // 1 … 2^40−1
	Starts  uint32 `json:"starts"`  // how often a process has begun on this directory
	// The newest start that the cluster may have been asked to put on record; it is here before it
	// is asked.
	Asked uint32 `json:"asked,omitempty"`
	// The meta group's replica is on disk: from here on it is damage if it is missing.
	Founded bool `json:"founded"`
	Shards  int  `json:"shards,omitempty"`
	// The number of shards that the cluster was founded with; 0: Shards.
	FirstShards int `json:"first_shards,omitempty"`
	Replicas    int `json:"replicas,omitempty"`

	// Empty before the node has founded or joined one.
	ClusterID string `json:"cluster_id,omitempty"`
	// AcceptedPlan is the founding plan that this node has accepted, for life; see ring.FoundingPlan.
	AcceptedPlan *ring.FoundingPlan `json:"promise,omitempty"`
	// Meta is the row of the meta group that this node's replica begins with.
	Meta *shard.Assignment `json:"meta,omitempty"`
	// Rejoin is there until a node that replaces a damaged one has joined.
	Rejoin *Rejoin `json:"rejoin,omitempty"`

	// Sum is the xxh64 of the file as it would be without it, in hexadecimal. It comes last.
	Sum string `json:"sum,omitempty"`
}

const (
	identityFile    = "identity.json"
	identityVersion = 2
)

// lockIdentity reads the directory's identity or makes one for a fresh directory, counts this
// start, and writes it back.
func lockIdentity(fsys vfs.FS, dir string, random func([]byte)) (Identity, error) {
	if err := finishSetAside(fsys, dir); err != nil {
		return Identity{}, fmt.Errorf("node: set the damaged directory aside: %w", err)
	}
	id, err := ReadIdentity(fsys, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if id, err = newIdentity(fsys, dir, random); err != nil {
			return Identity{}, err
		}
	case err != nil:
		return Identity{}, err
	}
	id.Starts++
	// Founders and nodes that join make themselves known to all that they meet.
	if id.ClusterID == "" {
		id.Asked = id.Starts
	}
	return id, id.Write(fsys, dir)
}

// ReadIdentity reads a directory's identity; fs.ErrNotExist: there is none.
func ReadIdentity(fsys vfs.FS, dir string) (Identity, error) {
	path := filepath.Join(dir, identityFile)
	data, err := vfs.ReadFile(fsys, path, nil, 1<<20)
	if err != nil {
		return Identity{}, fmt.Errorf("node: read %s: %w", path, err)
	}
	id, err := decodeIdentity(data)
	if err != nil {
		return Identity{}, fmt.Errorf("node: %s %w", path, err)
	}
	if id.NodeID == 0 || id.NodeID >= 1<<40 || id.ClusterID != "" && (id.Shards < 1 || id.Shards > 65535) {
		return Identity{}, fmt.Errorf("node: %s is damaged: node id %d, %d shards; %s", path, id.NodeID, id.Shards, identityAdvice)
	}
	return id, nil
}

// newIdentity is for an empty directory only. A log without an identity belongs to a node whose
// identity was lost.
func newIdentity(fsys vfs.FS, dir string, random func([]byte)) (Identity, error) {
	if _, err := fsys.Stat(filepath.Join(dir, "wal")); err == nil {
		return Identity{}, fmt.Errorf("node: %s holds a log but no %s; %s", dir, identityFile, identityAdvice)
	}
	if _, err := fsys.Stat(shard.SnapshotsDir(dir)); err == nil {
		return Identity{}, fmt.Errorf("node: %s holds snapshots but no %s: a restore into it was interrupted; restore into an empty directory", dir, identityFile)
	}
	// A directory that a killed process has made may be in memory only: it must be there after a
	// power cut if its files count.
	if err := fsys.SyncDir(filepath.Dir(filepath.Clean(dir))); err != nil && !errors.Is(err, fs.ErrPermission) {
		return Identity{}, fmt.Errorf("node: make the data directory durable: %w", err)
	}
	return Identity{Version: identityVersion, NodeID: NewNodeID(random)}, nil
}

// Write makes it the directory's identity.
func (id Identity) Write(fsys vfs.FS, dir string) error {
	data, err := id.encode()
	if err != nil {
		return fmt.Errorf("node: encode identity: %w", err)
	}
	if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, identityFile), data); err != nil {
		return fmt.Errorf("node: write identity: %w", err)
	}
	return nil
}

// encode gives the file, with its sum.
func (id Identity) encode() ([]byte, error) {
	id.Version, id.Sum = identityVersion, ""
	bare, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return nil, err
	}
	id.Sum = fmt.Sprintf("%016x", xxhash.Sum64(bare))
	data, err := json.MarshalIndent(id, "", "  ")
	return append(data, '\n'), err
}

// decodeIdentity reads the file. It must be exactly what was written: no other check notices a
// changed digit.
func decodeIdentity(data []byte) (Identity, error) {
	var id Identity
	if err := json.Unmarshal(data, &id); err != nil {
		return Identity{}, fmt.Errorf("is damaged%s: %w; %s", jsonOffset(err), err, identityAdvice)
	}
	if id.Version != identityVersion && id.Sum == "" {
		return Identity{}, fmt.Errorf("has version %d, this build reads %d; start the release that wrote it", id.Version, identityVersion)
	}
	again, err := id.encode()
	if err != nil {
		return Identity{}, err
	}
	if at := differsAt(data, again); at >= 0 {
		return Identity{}, fmt.Errorf("is damaged: it differs from what was written, at offset %d or before; %s", at, identityAdvice)
	}
	return id, nil
}

// identityAdvice is what to do about an identity that is damaged or gone.
const identityAdvice = "put back the file that the newest start wrote (an older copy is refused). Else keep a copy of the directory and empty it: " +
	"in a cluster start the node while the others serve, and they fill it; of a node alone, restore a backup into it"

// jsonOffset names the offset at which a document is no longer JSON.
func jsonOffset(err error) string {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf(" at offset %d", e.Offset)
	}
	return ""
}

// differsAt is where two texts begin to differ, -1 if they do not.
func differsAt(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	if n == len(a) && n == len(b) {
		return -1
	}
	return n
}
