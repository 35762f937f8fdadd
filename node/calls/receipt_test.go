package calls

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"carillon/timer/encoding"
)

func TestReceipt(t *testing.T) {
	plain := Receipt{Shard: 9, Topic: 3, Handle: 1 << 20, Seq: 1 << 30, Fence: 1 << 40}
	traced := Receipt{Shard: 1<<16 - 1, Place: 1<<64 - 1, Topic: 1<<32 - 1, Handle: 1<<32 - 1, Seq: 1<<64 - 1, Fence: 1<<64 - 1}
	traced.Attempt = PulledAttempt{Trace: [16]byte{1}, Add: [8]byte{2}, Number: 1000, BegunMs: 1 << 41, ID: strings.Repeat("x", encoding.MaxID)}
	for name, r := range map[string]Receipt{"plain": plain, "traced": traced} {
		t.Run(name, func(t *testing.T) { checkReceipt(t, r) })
	}
}

func checkReceipt(t *testing.T, r Receipt) {
	secret, other := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	text := r.Seal(secret)
	if strings.ContainsAny(text, "+/=") || len(text) > maxReceiptText {
		t.Errorf("receipt %q", text)
	}
	if got, ok := OpenReceipt(secret, text); !ok || got != r {
		t.Errorf("%+v %t", got, ok)
	}
	next := r
	next.Fence--
	if next.Seal(secret) == text {
		t.Error("two leases have one receipt")
	}
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			if got, ok := OpenReceipt(secret, base64.RawURLEncoding.EncodeToString(bad)); ok {
				t.Fatalf("bit %d of byte %d flipped: %+v", bit, i, got)
			}
		}
	}
	for name, c := range map[string]struct {
		secret []byte
		text   string
	}{
		"another cluster's": {other, text}, "no secret yet": {nil, text}, "empty": {secret, ""}, "cut": {secret, text[:len(text)-1]},
		"more": {secret, text + "A"}, "padded": {secret, text + "="}, "no base64": {secret, "!" + text[1:]}, "long": {secret, strings.Repeat("A", 1000)},
	} {
		if got, ok := OpenReceipt(c.secret, c.text); ok {
			t.Errorf("%s is a receipt of %+v", name, got)
		}
	}
}
