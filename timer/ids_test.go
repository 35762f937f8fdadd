package timer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestShardOfGolden: the shard of an id never changes; otherwise a new build would lose the timers
// of older ones.
func TestShardOfGolden(t *testing.T) {
	f := func(topic, id string, p int, want ShardID) {
		t.Helper()
		if got := ShardOf(&Topic{Name: topic}, id, p); got != want {
			t.Errorf("Place(%q, %q, %d) = %d, want %d", topic, id, p, got, want)
		}
	}
	f("orders", "a", 16, 2)
	f("orders", "order-77", 16, 6)
	f("orders", "{order-77}remind", 16, 6)
	f("orders", "a", 65535, 51541)
	f("orders", "s000a-00000000000000000000", 16, 10)
	f("orders", "sffff-00000000000000000000", 16, 15)
	f("orders", "s0000-00000000000000000000", 16, 3) // no shard 0: by hash
	f("orders", "S000a-00000000000000000000", 16, 8) // not one of ours: by hash
	for _, topic := range []string{"a", "orders"} {
		if ShardOf(&Topic{Name: topic}, "{k}x", 64) != ShardOf(&Topic{Name: topic}, "{k}y", 64) || ShardOf(&Topic{Name: topic}, "{k}", 64) != ShardOf(&Topic{Name: topic}, "k", 64) {
			t.Error("timers of one key live in different shards")
		}
	}
}

// TestSpreadID: an id is in its shard, and however many shards there are later, in each of those
// that came of it as often as in others.
func TestSpreadID(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	topic := &Topic{Name: "any"}
	for _, shards := range []int{1, 3, 4, 48, 4096, 40_000, 65_535} {
		for _, shard := range []ShardID{1, ShardID(shards+1) / 2, ShardID(shards)} {
			half := 0
			for range 1000 {
				id := SpreadID(shard, shards, r.Uint64(), r.Uint64())
				if got := ShardOf(topic, id, shards); got != shard {
					t.Fatalf("%s of shard %d of %d is in %d", id, shard, shards, got)
				}
				if ShardOf(topic, id, 8*shards) > ShardID(4*shards) {
					half++
				}
			}
			if 8*shards <= math.MaxUint16 && (half < 430 || half > 570) {
				t.Errorf("%d of 1000 ids of shard %d are in the upper half of %d shards", half, shard, 8*shards)
			}
		}
	}
}

func TestNewID(t *testing.T) {
	for _, shard := range []ShardID{1, 2, 11, 256, 65535} {
		id := NewID(shard, 0x0123456789abcdef, 0xfedcba9876543210)
		if len(id) != idLen || ShardOf(&Topic{Name: "any"}, id, 65535) != shard {
			t.Errorf("%s of shard %d is in %d", id, shard, ShardOf(&Topic{Name: "any"}, id, 65535))
		}
	}
	if got, want := NewID(11, 0x0123456789abcdef, 0xfedcba9876543210), "s000b-ffjnq4uc5qggc85r1jq5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := KeyedID("order-77", 1, 2); ShardOf(&Topic{Name: "t"}, got, 64) != ShardOf(&Topic{Name: "t"}, "{order-77}", 64) || len(got) != len("{order-77}")+20 {
		t.Error(got)
	}
	seen := map[string]bool{}
	for i := range uint64(1000) {
		seen[NewID(1, i, i<<20)] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d of 1000 differ", len(seen))
	}
}

func TestUID(t *testing.T) {
	if got := string(AppendUID(nil, 1, 1, 0xabc)); got != "0001-1-00000abc" {
		t.Error(got)
	}
	if got := string(AppendUID(nil, 65535, 1<<47, 0xffffffff)); got != "ffff-800000000000-ffffffff" {
		t.Error(got)
	}
}

func TestKeyOf(t *testing.T) {
	f := func(id, key string, has bool) {
		t.Helper()
		if k, h := KeyOf(id); k != key || h != has {
			t.Errorf("%q: %q, %t", id, k, h)
		}
	}
	f("a", "a", false)
	f("{k}x", "k", true)
	f("{k", "{k", false)
	f("{}x", "", true)
	f("x{k}", "x{k}", false)
}
