package timer

import "github.com/cespare/xxhash/v2"

// KeyOf is the part of an id that decides its shard: the text in its leading braces, otherwise all
// of it. hasKey reports whether there were braces. The id has been validated.
func KeyOf[T string | []byte](id T) (key T, hasKey bool) {
	if len(id) > 0 && id[0] == '{' {
		for end := 1; end < len(id); end++ {
			if id[end] == '}' {
				return id[1:end], true
			}
		}
	}
	return id, false
}

// ShardOf is the shard of a timer in a cluster of p timer shards: 1 + xxh64(topic, 0, key or id)
// mod p; but an id made by the server carries its shard, see NewID.
func ShardOf(t *Topic, id string, p int) ShardID {
	return ShardID(1 + PlaceOf(t, id)%uint64(p))
}

// PlaceOf is the number that decides the shard of a timer, whatever the number of shards.
func PlaceOf(t *Topic, id string) uint64 {
	if n, ok := shardOfID(id); ok {
		return uint64(n - 1)
	}
	key, _ := KeyOf(id)
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(t.Name)
	_, _ = d.Write([]byte{0})
	_, _ = d.WriteString(key)
	return d.Sum64()
}
