package node

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"carillon/ring"
	"carillon/shard"
	"carillon/wal"
)

// identity is who owns a data directory. It is written before anything else is, and again at every start.
type identity struct {
	Version  int    `json:"version"`
	NodeID   uint64 `json:"node_id"` // 1 … 2^40−1
	Starts   uint32 `json:"starts"`  // how often a process has begun on this directory
	Founded  bool   `json:"founded"` // the meta group's replica is on disk: from here on it is damage if it is missing
	Shards   int    `json:"shards,omitempty"`
	Replicas int    `json:"replicas,omitempty"`

	ClusterID string `json:"cluster_id,omitempty"` // empty before the node has founded or joined one
	// Promise is the founding plan that this node has accepted, for life; see ring.Founding.
	Promise *ring.FoundingPlan `json:"promise,omitempty"`
	// Meta is the row of the meta group that this node's replica begins with.
	Meta *shard.Row `json:"meta,omitempty"`
}

const (
	identityFile    = "identity.json"
	identityVersion = 1
)

// claimIdentity reads the directory's identity or makes one for a fresh directory, counts this start, and writes it back.
func claimIdentity(fsys wal.FS, dir string) (identity, error) {
	id, err := readIdentity(fsys, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if id, err = newIdentity(fsys, dir); err != nil {
			return identity{}, err
		}
	case err != nil:
		return identity{}, err
	}
	id.Starts++
	return id, id.write(fsys, dir)
}

func readIdentity(fsys wal.FS, dir string) (identity, error) {
	path := filepath.Join(dir, identityFile)
	f, err := fsys.Open(path)
	if err != nil {
		return identity{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return identity{}, fmt.Errorf("node: read %s: %w", path, err)
	}
	var id identity
	if err := json.Unmarshal(data, &id); err != nil {
		return identity{}, fmt.Errorf("node: %s is damaged: %w; restore it from a backup of the directory", path, err)
	}
	if id.Version != identityVersion {
		return identity{}, fmt.Errorf("node: %s has version %d, this build reads %d", path, id.Version, identityVersion)
	}
	if id.NodeID == 0 || id.NodeID >= 1<<40 || id.ClusterID != "" && (id.Shards < 1 || id.Shards > 65535) {
		return identity{}, fmt.Errorf("node: %s is damaged: node id %d, %d shards", path, id.NodeID, id.Shards)
	}
	return id, nil
}

// newIdentity is for an empty directory only: a log without an identity is somebody's data that lost its owner.
func newIdentity(fsys wal.FS, dir string) (identity, error) {
	if _, err := fsys.Stat(filepath.Join(dir, "wal")); err == nil {
		return identity{}, fmt.Errorf("node: %s holds a log but no %s; restore the file, or start in an empty directory", dir, identityFile)
	}
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return identity{}, fmt.Errorf("node: make an identity: %w", err)
	}
	return identity{Version: identityVersion, NodeID: binary.LittleEndian.Uint64(b[:])&(1<<40-1) | 1}, nil
}

// newClusterID makes the id of a cluster.
func newClusterID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail: see crypto/rand
	return hex.EncodeToString(b[:])
}

func (id identity) write(fsys wal.FS, dir string) error {
	data, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("node: encode identity: %w", err)
	}
	if err := wal.WriteFileAtomic(fsys, filepath.Join(dir, identityFile), append(data, '\n')); err != nil {
		return fmt.Errorf("node: write identity: %w", err)
	}
	return nil
}
