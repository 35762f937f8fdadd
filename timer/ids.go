package timer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"strings"
)

// ShardID names a raft group. Group 0 is the meta group; timers live in groups 1..P.
type ShardID uint32

// TopicID identifies one life of a topic. The meta group assigns them and never reuses one: a topic
// that was deleted and created again has another id, so its former timers can be neither seen nor
// changed through it.
type TopicID uint32

// Handle is the number of a timer's slot in its table, from 1; 0 means none. It is the same on all
// replicas.
type Handle uint32

// An id made by the server is "s", a number in four hex digits, "-", and 20 characters of base 32
// (100 random bits). The number decides the shard: see PlaceOf.
const (
	idAlphabet = "0123456789abcdefghijklmnopqrstuv"
	idLen      = 1 + 4 + 1 + 20
)

// NewID makes an id that lives in the given shard from 100 of the 128 random bits.
func NewID(shard ShardID, hi, lo uint64) string {
	var b [idLen]byte
	n := uint32(shard)
	b[0], b[1], b[2], b[3], b[4], b[5] = 's', idAlphabet[n>>12&15], idAlphabet[n>>8&15], idAlphabet[n>>4&15], idAlphabet[n&15], '-'
	putBase32(b[6:16], hi)
	putBase32(b[16:26], lo)
	return string(b[:])
}

// SpreadID is NewID in a cluster of so many shards. Once there are more, its ids of one shard are
// spread over those that came of it.
func SpreadID(shard ShardID, shards int, hi, lo uint64) string {
	spread := 1
	for 2*spread*shards <= math.MaxUint16 {
		spread *= 2
	}
	return NewID(shard+ShardID(shards*(int(hi>>50)&(spread-1))), hi, lo) // of hi it uses the 50 lower bits
}

// KeyedID makes an id with the given key: the key in braces and 20 random characters.
func KeyedID(key string, hi, lo uint64) string {
	b := make([]byte, 0, len(key)+22)
	b = append(b, '{')
	b = append(b, key...)
	b = append(b, '}')
	var r [20]byte
	putBase32(r[:10], hi)
	putBase32(r[10:], lo)
	return string(append(b, r[:]...))
}

// ContentID makes the id of an add without one, in topics where equal payloads to one URL are one
// timer. With a key the id starts with it.
func ContentID(topic string, payload []byte, url, key string) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(topic), payload, []byte(url)} {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	name := "c-" + hex.EncodeToString(h.Sum(nil)[:16])
	if key != "" {
		name = "{" + key + "}" + name
	}
	return name
}

func putBase32(dst []byte, v uint64) {
	for i := range dst {
		dst[i] = idAlphabet[v&31]
		v >>= 5
	}
}

// shardOfID reads the shard from an id made by the server. No such id has shard 0: a client
// invented it, and it is hashed like any other.
func shardOfID(id string) (uint32, bool) {
	if len(id) != idLen || id[0] != 's' || id[5] != '-' {
		return 0, false
	}
	if strings.Trim(id[1:5], idAlphabet[:16]) != "" || strings.Trim(id[6:], idAlphabet) != "" {
		return 0, false
	}
	n, _ := strconv.ParseUint(id[1:5], 16, 16)
	return uint32(n), n != 0
}

// AppendUID appends a name that identifies one timer for ever: its shard, its number there, and a
// random tag that distinguishes clusters that were restored or merged.
func AppendUID(b []byte, id ShardID, seq uint64, tag uint32) []byte {
	b = appendHex(b, uint64(id), 4)
	b = append(b, '-')
	b = appendHex(b, seq, 1)
	b = append(b, '-')
	return appendHex(b, uint64(tag), 8)
}

// ParseUID reads what AppendUID wrote.
func ParseUID(s string) (id ShardID, seq uint64, tag uint32, ok bool) {
	shard, rest, _ := strings.Cut(s, "-")
	number, last, _ := strings.Cut(rest, "-")
	a, err1 := strconv.ParseUint(shard, 16, 32)
	seq, err2 := strconv.ParseUint(number, 16, 64)
	c, err3 := strconv.ParseUint(last, 16, 32)
	id, tag = ShardID(a), uint32(c)
	ok = errors.Join(err1, err2, err3) == nil && string(AppendUID(nil, id, seq, tag)) == s
	return id, seq, tag, ok
}

// appendHex appends at least width digits, without fmt: each call of a timer needs some.
func appendHex(b []byte, v uint64, width int) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		if d := v >> shift; d != 0 || shift < 4*width {
			b = append(b, idAlphabet[d&15])
		}
	}
	return b
}
