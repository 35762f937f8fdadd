package calls

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// Receipt names a lease for the consumer that has it. Its fields are no secret; the sum at its end
// can only be made with the cluster's secret. A shard gives each lease a number of its own, under
// any leader, so a receipt never comes to mean another lease. Where the timer is when there are
// more shards is in its place.
type Receipt struct {
	Shard  timer.ShardID
	Place  uint64 // see timer.Op
	Topic  timer.TopicID
	Handle timer.Handle
	Seq    uint64
	Fence  uint64

	Attempt PulledAttempt // zero: it is not reported
}

const (
	receiptVersion  = 2
	tracedReceipt   = 3 // the same, and behind it the attempt
	receiptMACBytes = 16
	maxReceiptText  = 512                    // more than that of a traced timer with the longest id has
	receiptDomain   = "carillon receipt\x00" // so that the secret can be used for other things too
)

func receiptMAC(secret, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(receiptDomain))
	h.Write(body)
	return h.Sum(nil)[:receiptMACBytes]
}

// Seal writes a receipt as consumers get it: base64url.
func (r *Receipt) Seal(secret []byte) string {
	b := append(make([]byte, 0, 64), receiptVersion)
	b = encoding.AppendUvarints(b, uint64(r.Shard), uint64(r.Topic), uint64(r.Handle), r.Seq, r.Fence, r.Place)
	if a := &r.Attempt; *a != (PulledAttempt{}) {
		b[0] = tracedReceipt
		b = append(append(b, a.Trace[:]...), a.Add[:]...)
		b = binary.AppendUvarint(binary.AppendUvarint(b, a.Number), a.BegunMs)
		b = append(b, a.ID...)
	}
	return base64.RawURLEncoding.EncodeToString(append(b, receiptMAC(secret, b)...))
}

// OpenReceipt reads the receipt that a consumer sent; false when this cluster never gave it out.
func OpenReceipt(secret []byte, text string) (r Receipt, ok bool) {
	if len(text) > maxReceiptText || len(secret) == 0 {
		return r, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 1+receiptMACBytes || b[0] != receiptVersion && b[0] != tracedReceipt {
		return r, false
	}
	body, mac := b[:len(b)-receiptMACBytes], b[len(b)-receiptMACBytes:]
	if !hmac.Equal(mac, receiptMAC(secret, body)) {
		return r, false
	}
	in := encoding.Reader{Rest: body[1:]}
	r = Receipt{Shard: timer.ShardID(in.Uvarint()), Topic: timer.TopicID(in.Uvarint()), Handle: timer.Handle(in.Uvarint()), Seq: in.Uvarint(), Fence: in.Uvarint(), Place: in.Uvarint()}
	if a := &r.Attempt; b[0] == tracedReceipt {
		copy(a.Trace[:], in.Take(len(a.Trace)))
		copy(a.Add[:], in.Take(len(a.Add)))
		a.Number, a.BegunMs = in.Uvarint(), in.Uvarint()
		a.ID = string(in.Take(len(in.Rest)))
	}
	return r, in.Close() == nil
}
