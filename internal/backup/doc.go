// Package backup reads and writes backup files: the states of all shards and of the meta group, one
// after another, in records with checksums. It does not interpret the states.
// docs/formats/backup.md describes the file.
//
// A Writer needs the memory of one record. Its output may be cut anywhere: a Reader detects that,
// and returns only verified bytes.
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

// box encrypts records. Each record's nonce is its number. The key belongs to one file and is bound
// to its head.
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

// bound is the additional data of a record's encryption: its kind and the file's head.
func (b *box) bound(kind byte) []byte { return append([]byte{kind}, b.head[:]...) }

// checksum covers a record and its number, so that records cannot be exchanged.
func checksum(number uint64, header, payload []byte) uint64 {
	d := xxhash.NewWithSeed(number)
	_, _ = d.Write(header)
	_, _ = d.Write(payload)
	return d.Sum64()
}
