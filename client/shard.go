package client

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// ShardOf is the shard of a timer, 1 to shards, in a cluster of so many: 1 + xxh64(topic, 0, key or
// id) mod shards. An id that the cluster made names its shard itself.
func ShardOf(topic, id string, shards int) int {
	if n := shardInID(id); n > 0 {
		return 1 + (n-1)%shards
	}
	if end := strings.IndexByte(id, '}'); end > 0 && id[0] == '{' {
		id = id[1:end] // the key
	}
	var room [272]byte // the longest topic and id fit
	text := append(append(append(room[:0], topic...), 0), id...)
	return 1 + int(xxh64(text)%uint64(shards))
}

// shardInID reads the shard from an id that the cluster made: "s", four hex digits, "-", and 20
// characters of base 32. It returns 0 for any other id.
func shardInID(id string) (n int) {
	if len(id) != 26 || id[0] != 's' || id[5] != '-' || strings.Trim(id[6:], "0123456789abcdefghijklmnopqrstuv") != "" {
		return 0
	}
	for _, c := range []byte(id[1:5]) {
		digit := strings.IndexByte("0123456789abcdef", c)
		if digit < 0 {
			return 0
		}
		n = n<<4 | digit
	}
	return n
}

// The constants of xxHash.
const (
	prime1 uint64 = 0x9E3779B185EBCA87
	prime2 uint64 = 0xC2B2AE3D27D4EB4F
	prime3 uint64 = 0x165667B19E3779F9
	prime4 uint64 = 0x85EBCA77C2B2AE63
	prime5 uint64 = 0x27D4EB2F165667C5
)

// xxh64 is the 64-bit xxHash with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md). It is
// here because the package imports the standard library alone.
func xxh64(b []byte) uint64 {
	size := uint64(len(b))
	h := prime5
	if len(b) >= 32 {
		var one, two uint64 = prime1, prime2
		lanes := [4]uint64{one + two, two, 0, -one}
		for ; len(b) >= 32; b = b[32:] {
			for i := range lanes {
				lanes[i] = round(lanes[i], binary.LittleEndian.Uint64(b[8*i:]))
			}
		}
		h = bits.RotateLeft64(lanes[0], 1) + bits.RotateLeft64(lanes[1], 7) + bits.RotateLeft64(lanes[2], 12) + bits.RotateLeft64(lanes[3], 18)
		for _, lane := range lanes {
			h = (h^round(0, lane))*prime1 + prime4
		}
	}
	h += size
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^round(0, binary.LittleEndian.Uint64(b)), 27)*prime1 + prime4
	}
	if len(b) >= 4 {
		h = bits.RotateLeft64(h^uint64(binary.LittleEndian.Uint32(b))*prime1, 23)*prime2 + prime3
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

func round(lane, input uint64) uint64 { return bits.RotateLeft64(lane+input*prime2, 31) * prime1 }
