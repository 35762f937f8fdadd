package node

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"carillon/timer"
)

// receipt names a lease for the consumer that has it. Its fields are no secret; the sum at its end
// can only be made with the cluster's secret. A shard gives each lease a number of its own, under
// any leader, so a receipt never comes to mean another lease. Where the timer is when there are more
// shards is in its place.
type receipt struct {
	shard  timer.ShardID
	place  uint64 // see timer.Op
	topic  timer.TopicID
	handle timer.Handle
	seq    uint64
	fence  uint64
}

const (
	receiptVersion  = 2
	receiptMACBytes = 16
	maxReceiptText  = 128
	receiptDomain   = "carillon receipt\x00" // so that the secret can be used for other things too
)

func receiptMAC(secret, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(receiptDomain))
	h.Write(body)
	return h.Sum(nil)[:receiptMACBytes]
}

// seal writes a receipt as consumers get it: base64url.
func (r *receipt) seal(secret []byte) string {
	b := append(make([]byte, 0, 64), receiptVersion)
	for _, v := range [...]uint64{uint64(r.shard), uint64(r.topic), uint64(r.handle), r.seq, r.fence, r.place} {
		b = binary.AppendUvarint(b, v)
	}
	return base64.RawURLEncoding.EncodeToString(append(b, receiptMAC(secret, b)...))
}

// openReceipt reads the receipt that a consumer sent; false when this cluster never gave it out.
func openReceipt(secret []byte, text string) (r receipt, ok bool) {
	if len(text) > maxReceiptText || len(secret) == 0 {
		return r, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+receiptMACBytes || b[0] != receiptVersion {
		return r, false
	}
	body, mac := b[:len(b)-receiptMACBytes], b[len(b)-receiptMACBytes:]
	if !hmac.Equal(mac, receiptMAC(secret, body)) {
		return r, false
	}
	rest := body[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(rest)
		rest = rest[max(n, 0):]
		return v
	}
	r = receipt{shard: timer.ShardID(number()), topic: timer.TopicID(number()), handle: timer.Handle(number()), seq: number(), fence: number(), place: number()}
	return r, len(rest) == 0
}
