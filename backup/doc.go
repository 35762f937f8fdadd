// Package backup is the file that a backup is: the states of all shards, and of the meta group, one after the other, in records with
// checksums. It knows nothing of what a state is. docs/formats/backup.md describes the file.
//
// A Writer needs the memory of one record. What it writes can be cut anywhere: a Reader finds that out, and never gives out a byte
// that was not verified.
package backup

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"carillon/timer"
)

const (
	magic   = "CARBKUP1"
	version = 1

	maxPayload  = 1 << 20
	headerBytes = 1 + 4 // of a record: kind, length
	sumBytes    = 8
	keyBytes    = 32
	dataPerPart = 256 << 10
)

// Kinds of records.
const (
	kindHead = 1 + iota // JSON: Head
	kindBegin
	kindPart
	kindEnd
	kindLast    // of the file: number of records before it, SHA-256 of all bytes before it
	kindFailure // in the place of the last: why there is no more
)

// Head is the first record: what the file is.
type Head struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
	Shards    int    `json:"shards"`
	Level     uint32 `json:"feature_level"` // that the cluster has agreed on
	Release   string `json:"release"`       // of the node that wrote the file
	TimeMs    int64  `json:"time_ms"`       // when it began
	// Key is the envelope of the key that the states are encrypted with; see package secret. Empty: they are in the clear.
	Key string `json:"key,omitempty"`
}

// State is the beginning of one state.
type State struct {
	Group timer.ShardID // 0: the meta group
	Index uint64        // of the last entry that is in it; 0: not said
	Size  uint64        // 0: not said
	Hash  uint64        // of the state, as the state says too
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

// box encrypts records. Each has a nonce of its own, its number; the key is of one file, whose head it is bound to.
type box struct {
	aead cipher.AEAD
	head [sha256.Size]byte
}

func newBox(key, head []byte) (*box, error) {
	if len(key) != keyBytes {
		return nil, fmt.Errorf("a key of %d bytes", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &box{aead, sha256.Sum256(head)}, nil
}

func (b *box) nonce(number uint64) []byte {
	nonce := make([]byte, b.aead.NonceSize())
	binary.LittleEndian.PutUint64(nonce, number)
	return nonce
}

func (b *box) seal(dst []byte, number uint64, kind byte, plain []byte) []byte {
	return b.aead.Seal(dst, b.nonce(number), plain, b.bound(kind))
}

func (b *box) open(number uint64, kind byte, sealed []byte) ([]byte, error) {
	return b.aead.Open(sealed[:0], b.nonce(number), sealed, b.bound(kind))
}

// bound is what a record belongs to.
func (b *box) bound(kind byte) []byte { return append([]byte{kind}, b.head[:]...) }

// checksum is that of a record, which is of its place in the file too.
func checksum(number uint64, header, payload []byte) uint64 {
	d := xxhash.NewWithSeed(number)
	_, _ = d.Write(header)
	_, _ = d.Write(payload)
	return d.Sum64()
}
