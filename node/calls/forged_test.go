package calls

import (
	"testing"

	"carillon/test/sim/forged"
)

// TestTextsAreNoReceipts: nothing that a client can write is a lease.
func TestTextsAreNoReceipts(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	given := (&Receipt{Shard: 1, Topic: 2, Handle: 3, Seq: 4, Fence: 5}).Seal(secret)
	if _, ok := OpenReceipt(secret, given); !ok {
		t.Fatal("a receipt is none")
	}
	other := (&Receipt{Shard: 1, Topic: 2, Handle: 3, Seq: 4, Fence: 5}).Seal([]byte("another cluster's"))
	for name, text := range forged.Texts() {
		for _, try := range []string{text, other, given + text, text + given, given[:len(given)-1]} {
			if r, ok := OpenReceipt(secret, try); ok {
				t.Errorf("%s: %q is the lease %+v", name, try, r)
			}
		}
	}
}
