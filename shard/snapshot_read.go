package shard

import (
	"fmt"
	"io"

	"carillon/timer"
)

// snapshotFiles is the part of a host that reads and writes the files of snapshots.
type snapshotFiles struct{ h *Host }

// readState reads a snapshot's state and checks its hash. The state is a *Table, or the result of
// Machine.Read for the meta group. It may run concurrently with the workers.
func (f snapshotFiles) readState(r io.Reader, id timer.ShardID, hash uint64) (any, error) {
	state, has, err := f.h.groups[id].machine.read(r)
	if err != nil {
		return nil, err
	}
	if has != hash {
		return nil, fmt.Errorf("state hash %016x, expected %016x", has, hash)
	}
	return state, nil
}
