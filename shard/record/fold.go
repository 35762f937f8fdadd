package record

import (
	"fmt"

	"carillon/wal"
)

// Folder rebuilds something of a group from its records. Its methods are called in the order of the
// log.
type Folder interface {
	// Create begins a replica that has no log yet.
	Create(m Mark) error
	// Tombstone ends the replica with this id and all before it.
	Tombstone(id uint64) error
	// HardState is raft's term, vote and commit index from here on.
	HardState(h HardState) error
	// Entries replace all entries from the first one's index on. Their data point into the record.
	Entries(entries []Entry) error
	// Snapshot is called for a snapshot that was made or, by its mark, came from a peer.
	Snapshot(m Mark) error
}

// Fold decodes a record of a group and gives it to the folder. NODE_META, which builds until
// November 2026 wrote, is passed over.
func Fold(r wal.Record, into Folder) error {
	switch r.Type {
	case wal.RecordReplicaCreate:
		return decoded(r.Data, DecodeMark, into.Create)
	case wal.RecordReplicaTombstone:
		return decoded(r.Data, DecodeTombstone, into.Tombstone)
	case wal.RecordHardState:
		return decoded(r.Data, DecodeHardState, into.HardState)
	case wal.RecordEntries:
		return decoded(r.Data, ReadEntries, into.Entries)
	case wal.RecordSnapMark:
		return decoded(r.Data, DecodeMark, into.Snapshot)
	case wal.RecordNodeMeta:
		return nil
	}
	return fmt.Errorf("record of unknown type %v", r.Type)
}

func decoded[T any](body []byte, decode func([]byte) (T, error), take func(T) error) error {
	v, err := decode(body)
	if err != nil {
		return err
	}
	return take(v)
}
