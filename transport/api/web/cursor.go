package web

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A cursor is base64url of: version byte, the place in the listing, checksum. The checksum covers
// the listing's filters too, so that a cursor works with the query it came from and no other. It
// holds nothing secret and gives no right: it is only the place to continue at.
const (
	CursorTimers  byte = 1
	cursorTopics  byte = 2
	CursorHistory byte = 3

	CursorDestinations byte = 4

	MaxCursorBytes = 512
)

// NameCursor is the place behind a name, in a listing of names that begin with a prefix.
func NameCursor(name, prefix string) string {
	return SealCursor(append([]byte{cursorTopics}, name...), xxhash.Sum64String(prefix))
}

func ParseNameCursor(s, prefix string) (string, bool) {
	b, ok := OpenCursor(s, cursorTopics, xxhash.Sum64String(prefix))
	return string(b), ok && ValidTopic(string(b))
}

// SealCursor is the cursor of a place: its kind, and what the kind makes of it.
func SealCursor(b []byte, listing uint64) string {
	b = binary.LittleEndian.AppendUint64(b, cursorSum(b, listing))
	return base64.RawURLEncoding.EncodeToString(b)
}

// OpenCursor is the place of a cursor of this kind and listing.
func OpenCursor(s string, kind byte, listing uint64) ([]byte, bool) {
	if len(s) > MaxCursorBytes || strings.ContainsAny(s, "\r\n") { // the decoder skips line ends
		return nil, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 9 || b[0] != kind {
		return nil, false
	}
	body, sum := b[:len(b)-8], b[len(b)-8:]
	return body[1:], binary.LittleEndian.Uint64(sum) == cursorSum(body, listing)
}

func cursorSum(body []byte, listing uint64) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(listing)
	_, _ = d.Write(body)
	return d.Sum64()
}
