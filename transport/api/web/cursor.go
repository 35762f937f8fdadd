package web

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A cursor is base64url of: version byte, the place in the listing, checksum. The checksum covers
// the listing's filters too, so that a cursor works with the query it came from and no other. It
// holds nothing that its token does not see, and gives no right: it is only the place to continue
// at.
const (
	CursorTimers  byte = 1
	cursorTopics  byte = 2
	CursorHistory byte = 3

	CursorDestinations byte = 4
	cursorUnseen       byte = 5 // of a topic that the token does not see

	MaxCursorBytes = 512
)

// NameCursor is the place behind a name, in a listing of names that begin with a prefix.
func NameCursor(name, prefix string) string {
	return SealCursor(append([]byte{cursorTopics}, name...), xxhash.Sum64String(prefix))
}

func ParseNameCursor(s, prefix string) (string, bool) {
	p := OpenCursor(s, cursorTopics, xxhash.Sum64String(prefix))
	return string(p.Rest), p.OK && ValidTopic(string(p.Rest))
}

// SealCursor is the cursor of a place: its kind, and what the kind makes of it.
func SealCursor(b []byte, listing uint64) string {
	b = binary.LittleEndian.AppendUint64(b, cursorSum(b, listing))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Place is what a kind of cursor makes of a place, to be read number by number.
type Place struct {
	Rest []byte
	OK   bool // it has all that was asked for
}

// Uvarint takes a number off, of at most so much.
func (p *Place) Uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(p.Rest)
	if n <= 0 || v > most {
		*p = Place{}
		return 0
	}
	p.Rest = p.Rest[n:]
	return v
}

// Varint takes a number off that may be negative.
func (p *Place) Varint() int64 {
	u := p.Uvarint(math.MaxUint64)
	return int64(u>>1) ^ -int64(u&1)
}

// OpenCursor is the place of a cursor of this kind and listing.
func OpenCursor(s string, kind byte, listing uint64) (p Place) {
	if len(s) > MaxCursorBytes || strings.ContainsAny(s, "\r\n") { // the decoder skips line ends
		return p
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 9 || b[0] != kind {
		return p
	}
	body, sum := b[:len(b)-8], b[len(b)-8:]
	return Place{body[1:], binary.LittleEndian.Uint64(sum) == cursorSum(body, listing)}
}

func cursorSum(body []byte, listing uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(listing)
	_, _ = d.Write(body)
	return d.Sum64()
}
