package backup

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

const keyBytes = 32

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

// bound is the additional data of a record's encryption: its kind and the file's head.
func (b *box) bound(kind byte) []byte { return append([]byte{kind}, b.head[:]...) }
