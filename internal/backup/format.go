package backup

import (
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"

	"carillon/timer"
)

const (
	magic   = "CARBKUP1"
	version = 1

	maxPayload  = 1 << 20
	headerBytes = 1 + 4 // of a record: kind, length
	sumBytes    = 8
	dataPerPart = 256 << 10
)

// Kinds of records.
const (
	kindHead = 1 + iota // JSON: Head
	kindBegin
	kindPart
	kindEnd
	kindLast    // end of the file: number of records before it, SHA-256 of all bytes before it
	kindFailure // instead of kindLast: the reason why the backup is incomplete
)

// Head is the first record. It describes the file.
type Head struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
	Shards    int    `json:"shards"`
	Level     uint32 `json:"feature_level"` // the cluster's feature level
	Release   string `json:"release"`       // of the node that wrote the file
	TimeMs    int64  `json:"time_ms"`       // begin of the backup, Unix ms
	// Key is the envelope of the key that encrypts the states; see package secret. Empty: they are
	// not encrypted.
	Key string `json:"key,omitempty"`
}

// State describes a state; it is the record in front of it.
type State struct {
	Group timer.ShardID // 0: the meta group
	Index uint64        // index of the last applied entry; 0: unknown
	Size  uint64        // in bytes; 0: unknown
	Hash  uint64        // hash of the state, which the state contains too
}

func (s *State) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(s.Group))
	for _, v := range [...]uint64{s.Index, s.Size, s.Hash} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func decodeState(b []byte) (s State, err error) {
	if len(b) != 4+3*8 {
		return s, errors.New("the beginning of a state has another length")
	}
	s.Group = timer.ShardID(binary.LittleEndian.Uint32(b))
	s.Index, s.Size, s.Hash = binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:]), binary.LittleEndian.Uint64(b[20:])
	return s, nil
}

// checksum covers a record and its number, so that records cannot be exchanged.
func checksum(number uint64, header, payload []byte) uint64 {
	d := xxhash.NewWithSeed(number)
	_, _ = d.Write(header)
	_, _ = d.Write(payload)
	return d.Sum64()
}
