package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
)

const forDigests = "carillon content digest 1\x00"

// Digest hashes secrets to numbers that may be stored in the clear. Equal secrets have equal
// numbers. Without the Digest's own secret nobody can test which secret a number belongs to.
type Digest struct{ macs sync.Pool }

// NewDigest makes a Digest; two of the same secret are equal.
func NewDigest(secret []byte) *Digest {
	d := &Digest{}
	d.macs.New = func() any { return hmac.New(sha256.New, secret) }
	return d
}

// Sum is the number of a text.
func (d *Digest) Sum(text string) uint64 {
	mac := d.macs.Get().(hash.Hash)
	defer d.macs.Put(mac)
	mac.Reset()
	var room [512]byte
	b := append(append(room[:0], forDigests...), text...)
	_, _ = mac.Write(b)
	return binary.LittleEndian.Uint64(mac.Sum(b[:0]))
}
