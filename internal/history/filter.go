package history

import "math/bits"

// filter is a Bloom filter: it can rule out that a key is in a file. With 10 bits a key
// about one in a hundred is let through that is not there.
type filter []byte

const (
	filterBitsPerKey = 10
	filterProbes     = 7
)

func newFilter(keys int) filter { return make(filter, max(64, (keys*filterBitsPerKey+7)/8)) }

func (f filter) add(key uint64) {
	h, step := spread(key)
	for range filterProbes {
		n := f.slot(h)
		f[n>>3] |= 1 << (n & 7)
		h += step
	}
}

func (f filter) has(key uint64) bool {
	h, step := spread(key)
	for range filterProbes {
		n := f.slot(h)
		if f[n>>3]>>(n&7)&1 == 0 {
			return false
		}
		h += step
	}
	return true
}

// slot maps a hash onto the filter's bits without a division.
func (f filter) slot(h uint64) uint64 {
	hi, _ := bits.Mul64(h, uint64(len(f))*8)
	return hi
}

func spread(key uint64) (h, step uint64) {
	hi, lo := bits.Mul64(key^0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
	h = hi ^ lo
	hi, lo = bits.Mul64(h^0x8EBC6AF09C88C6E3, 0x589965CC75374CC3)
	return h, hi ^ lo | 1
}

// The keys of a file's filter: its topics, its ids, and the timers of its attempts.
func topicKey(topic uint32) uint64               { return uint64(topic) | 1<<62 }
func idKey(hash uint32) uint64                   { return uint64(hash) | 1<<63 }
func attemptKey(shard uint32, seq uint64) uint64 { return uint64(shard)<<seqBits | seq }

// idHash stands for a timer's id in the index; equal ids of two topics differ.
func idHash(topic uint32, id []byte) uint32 {
	h := uint64(topic) + 0x9E3779B97F4A7C15
	for len(id) >= 8 {
		h = fold(h ^ (uint64(id[0]) | uint64(id[1])<<8 | uint64(id[2])<<16 | uint64(id[3])<<24 | uint64(id[4])<<32 | uint64(id[5])<<40 |
			uint64(id[6])<<48 | uint64(id[7])<<56))
		id = id[8:]
	}
	for _, c := range id {
		h = fold(h ^ uint64(c) ^ 1<<32)
	}
	return uint32(h ^ h>>32)
}

func fold(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15)
	return hi ^ lo
}
