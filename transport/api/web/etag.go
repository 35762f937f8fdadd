package web

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
)

// NeverVersion is a version that no timer has: asking for it never matches.
const NeverVersion = math.MaxUint32

// ParseETag reads "<version>". A number that no timer can have becomes one that never matches; 0,
// which would mean any version to the engine, is such a number.
func ParseETag(b []byte) (uint32, bool) {
	if len(b) < 3 || b[0] != '"' || b[len(b)-1] != '"' {
		return 0, false
	}
	digits := string(b[1 : len(b)-1])
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	if err != nil || n == 0 {
		n = NeverVersion
	}
	return uint32(n), true
}

// AppendETag writes a timer's version as an ETag.
func AppendETag(b []byte, version uint32) []byte {
	return append(strconv.AppendUint(append(b, '"'), uint64(version), 10), '"')
}

// A topic's ETag is "<id>-<version>": the id is of its life, so that a topic that was deleted and
// made again has no version that it had.
func AppendTopicETag(b []byte, t *timer.Topic) []byte {
	b = strconv.AppendUint(append(b, '"'), uint64(t.ID), 10)
	return append(strconv.AppendUint(append(b, '-'), uint64(t.Version), 10), '"')
}

// ParseTopicETag reads the text of an ETag in quotes. One that no topic can have never matches.
func ParseTopicETag(text []byte) (id timer.TopicID, version uint32) {
	first, second, _ := bytes.Cut(text[1:len(text)-1], []byte{'-'})
	n, ok := strictjson.ParseInteger(first)
	v, good := strictjson.ParseInteger(second)
	if !ok || !good || n < 1 || n > math.MaxUint32 || v < 1 || v > NeverVersion {
		return 0, NeverVersion
	}
	return timer.TopicID(n), uint32(v)
}

// ETagName is the header.
var ETagName = []byte("ETag")
