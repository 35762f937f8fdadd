package api

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"carillon/timer"

	"github.com/cespare/xxhash/v2"
)

// A cursor is base64url of: version byte, the place in the listing, checksum. The checksum covers
// the listing's filters too, so that a cursor works with the query it came from and no other. It
// holds nothing secret and gives no right: it only says where to go on.
const (
	cursorTimers  byte = 1
	cursorTopics  byte = 2
	cursorHistory byte = 3

	cursorDestinations byte = 4

	maxCursorBytes = 512
)

// listingSum stands for the selection of a listing of timers; the page's size is free to change
// between pages.
func listingSum(q *timer.Query) uint64 {
	b := make([]byte, 0, 128)
	b = binary.AppendUvarint(b, uint64(q.Topic))
	b = append(b, q.States, byte(q.Reason))
	if q.ByEnd {
		b = append(b, 1)
	}
	b = binary.AppendVarint(b, q.FromMs)
	b = binary.AppendVarint(b, q.ToMs)
	b = append(append(b, q.IDPrefix...), 0)
	for _, l := range q.Labels {
		b = append(append(b, l...), 0)
	}
	return xxhash.Sum64(b)
}

func timerCursor(k timer.SortKey, listing uint64) string {
	b := append(make([]byte, 0, 64), cursorTimers)
	b = binary.AppendVarint(b, k.SortMs)
	b = binary.AppendUvarint(b, k.Seq)
	b = append(b, k.ID...)
	return sealCursor(b, listing)
}

func parseTimerCursor(s string, listing uint64) (*timer.SortKey, bool) {
	b, ok := openCursor(s, cursorTimers, listing)
	if !ok {
		return nil, false
	}
	var k timer.SortKey
	var n int
	if k.SortMs, n = binary.Varint(b); n <= 0 {
		return nil, false
	}
	b = b[n:]
	if k.Seq, n = binary.Uvarint(b); n <= 0 {
		return nil, false
	}
	k.ID = string(b[n:])
	return &k, validID(k.ID)
}

func nameCursor(name, prefix string) string {
	return sealCursor(append([]byte{cursorTopics}, name...), xxhash.Sum64String(prefix))
}

func parseNameCursor(s, prefix string) (string, bool) {
	b, ok := openCursor(s, cursorTopics, xxhash.Sum64String(prefix))
	return string(b), ok && validTopic(string(b))
}

func sealCursor(b []byte, listing uint64) string {
	b = binary.LittleEndian.AppendUint64(b, cursorSum(b, listing))
	return base64.RawURLEncoding.EncodeToString(b)
}

func openCursor(s string, kind byte, listing uint64) ([]byte, bool) {
	if len(s) > maxCursorBytes || strings.ContainsAny(s, "\r\n") { // the decoder skips line ends
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
