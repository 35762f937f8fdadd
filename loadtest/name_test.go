package loadtest

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"
)

var noTime time.Time

func TestIDsReadBack(t *testing.T) {
	for _, keys := range []int{0, 10} {
		n := newNames(Config{Topics: 1, Batch: 1, Payload: 200, Keys: keys, Topic: "t"}, "0a1b2c3d")
		for _, number := range []int64{0, 7, 123456789} {
			id := n.appendID(nil, number)
			if got := n.parseID(id); got != number {
				t.Errorf("parseID(%s) = %d, want %d", id, got, number)
			}
			path := n.appendPathID([]byte("/"), number)
			if back, err := url.PathUnescape(string(path)); err != nil || back != "/"+string(id) {
				t.Errorf("path %s, want that of %s", path, id)
			}
		}
	}
}

func TestForeignIDs(t *testing.T) {
	n := newNames(Config{Topics: 1, Batch: 1, Payload: 200}, "0a1b2c3d")
	for _, id := range []string{"", "{", "{k}", "lt-", "lt-0a1b2c3d", "lt-0a1b2c3d-", "lt-0a1b2c3d-x", "lt-ffffffff-1", "order-1", "lt-0a1b2c3d--1"} {
		if got := n.parseID([]byte(id)); got != -1 {
			t.Errorf("parseID(%q) = %d, want -1", id, got)
		}
	}
}

func TestPayloadHasTheSizeAndNamesItsVersion(t *testing.T) {
	l := newLedger(1_700_000_000_000)
	l.issue(50, 50)
	l.setDue(42, 1_700_000_000_123)
	for _, size := range []int{minPayloadBytes, 200, 5000} {
		n := newNames(Config{Topics: 1, Batch: 1, Payload: size}, "0a1b2c3d")
		for version := 1; version <= 2; version++ {
			body := n.appendPayload(nil, 42, version, l.dueMs(42, version))
			if len(body) != size || !json.Valid(body) {
				t.Errorf("payload of %d bytes, want %d: %s", len(body), size, body)
			}
			if got, _ := n.version(nil, body, l, 42); got != version {
				t.Errorf("version = %d, want %d", got, version)
			}
			body[size-3]++
			if got, _ := n.version(nil, body, l, 42); got != 0 {
				t.Errorf("a changed payload is taken for version %d", got)
			}
		}
	}
}

func TestSmallestPayloadFitsTheLargestNumbers(t *testing.T) {
	n := newNames(Config{Topics: 1, Batch: 1, Payload: minPayloadBytes}, "0a1b2c3d")
	if body := n.appendPayload(nil, maxTimers, 2, 99_999_999_999_999); len(body) != minPayloadBytes {
		t.Errorf("%d bytes: %s", len(body), body)
	}
}
