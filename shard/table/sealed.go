package table

import (
	"encoding/binary"
	"maps"

	"carillon/internal/secret"
	"carillon/timer/encoding"
)

// sealedBy counts the header values of a table's callback overrides by the key that sealed them. It
// lets an operator verify that a key is unused before removing it. It is derived from the overrides
// and not replicated state.
type sealedBy map[secret.KeyID]int64

// count adds by for each sealed value of an encoded callback, which has been checked before.
func (s *sealedBy) count(callback []byte, by int64) {
	for len(callback) > 0 {
		field := callback[0]
		callback = callback[1:]
		switch field {
		case encoding.CallbackURL, encoding.CallbackMethod:
			_, callback = cutBlock(callback)
		case encoding.CallbackHeaders:
			n, k := binary.Uvarint(callback)
			callback = callback[k:]
			for range n {
				_, callback = cutBlock(callback) // the header's name
				var value []byte
				value, callback = cutBlock(callback)
				if id, ok := secret.KeyIn(value); ok {
					s.add(id, by)
				}
			}
		default: // the last field is not text
			return
		}
	}
}

func (s *sealedBy) add(id secret.KeyID, by int64) {
	if *s == nil {
		*s = sealedBy{}
	}
	if (*s)[id] += by; (*s)[id] == 0 {
		delete(*s, id)
	}
}

// cutBlock splits off a length-prefixed text.
func cutBlock(b []byte) (text, rest []byte) {
	n, k := binary.Uvarint(b)
	return b[k : k+int(n)], b[k+int(n):]
}

// SealedBy adds the number of sealed header values of this table's callback overrides to all, by
// the id of the sealing key.
func (t *Table) SealedBy(all map[string]int64) map[string]int64 { return t.targets.sealed.addTo(all) }

func (s sealedBy) addTo(all map[string]int64) map[string]int64 {
	if len(s) > 0 && all == nil {
		all = map[string]int64{}
	}
	for id, n := range maps.All(s) {
		all[string(id[:])] += n
	}
	return all
}
