package node

import (
	"testing"

	"carillon/test/sim/forged"
)

// TestTextsAreNoReceipts: nothing that a client can write is a lease.
func TestTextsAreNoReceipts(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	given := (&receipt{shard: 1, topic: 2, handle: 3, seq: 4, fence: 5}).seal(secret)
	if _, ok := openReceipt(secret, given); !ok {
		t.Fatal("a receipt is none")
	}
	other := (&receipt{shard: 1, topic: 2, handle: 3, seq: 4, fence: 5}).seal([]byte("another cluster's"))
	for name, text := range forged.Texts() {
		for _, try := range []string{text, other, given + text, text + given, given[:len(given)-1]} {
			if r, ok := openReceipt(secret, try); ok {
				t.Errorf("%s: %q is the lease %+v", name, try, r)
			}
		}
	}
}
