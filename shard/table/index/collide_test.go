package index

import (
	"encoding/binary"
	"math/bits"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// collidingKeys makes ids with one xxh64 hash. The first of an id's two words is random; the second
// follows from it and from the hash. One id in fifty thousand has only valid characters.
func collidingKeys(n int) (ids []string) {
	const (
		p1, p2   = 11400714785074694791, 14029467366897019727
		p4, p5   = 9650029242287828579, 2870177450012600261
		inverse1 = 614540362697595703
		inverse2 = 839798700976720815
	)
	round := func(x uint64) uint64 { return bits.RotateLeft64(x*p2, 31) * p1 }
	unround := func(x uint64) uint64 { return bits.RotateLeft64(x*inverse1, -31) * inverse2 }
	var begin uint64 = p5
	begin += 16
	afterFirst := func(word uint64) uint64 { return bits.RotateLeft64(begin^round(word), 27)*p1 + p4 }
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:@-"
	var good [256]bool
	for _, c := range []byte(letters) {
		good[c] = true
	}
	wanted := afterFirst(binary.LittleEndian.Uint64([]byte("abcdefgh"))) ^ round(binary.LittleEndian.Uint64([]byte("ijklmnop")))
	var id [16]byte
	for x := uint64(0); len(ids) < n; x++ {
		for i, left := 0, x; i < 8; i++ {
			id[i] = letters[left&63]
			left >>= 6
		}
		second := unround(wanted ^ afterFirst(binary.LittleEndian.Uint64(id[:8])))
		binary.LittleEndian.PutUint64(id[8:], second)
		ok := true
		for _, c := range id[8:] {
			ok = ok && good[c]
		}
		if ok {
			ids = append(ids, string(id[:]))
		}
	}
	return ids
}

// TestKeysDoNotCollideOnPurpose: ids and callbacks made to have one xxh64 hash do not collide in an
// index, where each add would otherwise visit all of them.
func TestKeysDoNotCollideOnPurpose(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	x, other := New(), New()
	keys := collidingKeys(500)
	places, callbacks := map[uint32]bool{}, map[uint32]bool{}
	for _, key := range keys {
		if xxhash.Sum64String(key) != xxhash.Sum64String(keys[0]) {
			t.Fatalf("%s has another hash than %s: the test is about nothing", key, keys[0])
		}
		places[x.Hash(1, []byte(key))] = true
		callbacks[x.Hash(0, []byte(key))] = true
	}
	if len(places) < 490 || len(callbacks) < 490 {
		t.Errorf("%d keys of one hash have %d places in space 1, %d in space 0", len(keys), len(places), len(callbacks))
	}
	if other.Hash(1, []byte(keys[0])) == x.Hash(1, []byte(keys[0])) {
		t.Error("two indexes give a key one place: it is no secret")
	}
}
