package loadtest

import (
	"bytes"
	"strconv"

	"carillon/loadtest/sink"
)

// names spells ids, topics and payloads from timers' numbers and reads them
// back, so that nothing has to be looked up by string.
type names struct {
	run    []byte // distinguishes this run's timers from others'
	topic  string
	topics int64
	keys   int64
	batch  int64
	size   int // payload bytes
	pad    []byte
}

func newNames(c Config, run string) *names {
	pad := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz"), c.Payload/36+1)
	return &names{run: []byte(run), topic: c.Topic, topics: int64(c.Topics), keys: int64(c.Keys),
		batch: int64(c.Batch), size: c.Payload, pad: pad}
}

// topicOf chooses by block of one batch, since a request has one topic.
func (n *names) topicOf(number int64) int64 { return number / n.batch % n.topics }

// appendTopic appends a topic's name: the plain one if there is only one.
func (n *names) appendTopic(to []byte, topic int64) []byte {
	to = append(to, n.topic...)
	if n.topics > 1 {
		to = append(to, '-')
		to = strconv.AppendInt(to, topic, 10)
	}
	return to
}

// appendID appends {k7}lt-<run>-<number>, the key only if keys were asked for.
func (n *names) appendID(to []byte, number int64) []byte {
	return n.appendKeyed(to, number, "{", "}")
}

// appendPathID is appendID with the braces escaped, for a path.
func (n *names) appendPathID(to []byte, number int64) []byte {
	return n.appendKeyed(to, number, "%7B", "%7D")
}

func (n *names) appendKeyed(to []byte, number int64, open, end string) []byte {
	if n.keys > 0 {
		to = append(append(to, open...), 'k')
		to = strconv.AppendInt(to, number%n.keys, 10)
		to = append(to, end...)
	}
	to = append(to, "lt-"...)
	to = append(to, n.run...)
	to = append(to, '-')
	return strconv.AppendInt(to, number, 10)
}

// parseID returns the number in an id, -1 if the id is not of this run.
func (n *names) parseID(id []byte) int64 {
	if len(id) > 0 && id[0] == '{' {
		end := bytes.IndexByte(id, '}')
		if end < 0 {
			return -1
		}
		id = id[end+1:]
	}
	rest, found := bytes.CutPrefix(id, []byte("lt-"))
	if !found {
		return -1
	}
	if rest, found = bytes.CutPrefix(rest, n.run); !found || len(rest) < 2 || rest[0] != '-' {
		return -1
	}
	return sink.Decimal(rest[1:])
}

// isOurs reports whether a delivery whose id is not that of any timer is of this run all the same,
// by the beginning of its id or body.
func (n *names) isOurs(id, body []byte) bool {
	if at := bytes.IndexByte(id, '}'); at >= 0 {
		id = id[at+1:]
	}
	id, _ = bytes.CutPrefix(id, []byte("lt-"))
	body, _ = bytes.CutPrefix(body, []byte(`{"timer":"`))
	return bytes.HasPrefix(id, n.run) || bytes.HasPrefix(body, n.run)
}

// appendPayload appends {"timer":"<run>.<number>.<version>.<due>","pad":"…"}, of
// the configured size exactly.
func (n *names) appendPayload(to []byte, number int64, version int, dueMs int64) []byte {
	from := len(to)
	to = append(to, `{"timer":`...)
	to = n.appendName(to, number, version, dueMs)
	to = append(to, `,"pad":"`...)
	to = append(to, n.pad[:n.size-(len(to)-from)-2]...)
	return append(to, `"}`...)
}

func (n *names) appendName(to []byte, number int64, version int, dueMs int64) []byte {
	to = append(to, '"')
	to = append(to, n.run...)
	to = append(to, '.')
	to = strconv.AppendInt(to, number, 10)
	to = append(to, '.')
	to = strconv.AppendInt(to, int64(version), 10)
	to = append(to, '.')
	to = strconv.AppendInt(to, dueMs, 10)
	return append(to, '"')
}

// version returns which version of the timer a delivered payload is, by comparing it byte for byte
// with the written ones; 0 if it is none.
func (n *names) version(scratch, body []byte, l *ledger, number int64) (int, []byte) {
	for version := 1; version <= 2; version++ {
		scratch = n.appendPayload(scratch[:0], number, version, l.dueMs(number, version))
		if bytes.Equal(scratch, body) {
			return version, scratch
		}
	}
	return 0, scratch
}

// versionIn is the version whose name is in the text, 0 if there is none.
func (n *names) versionIn(text []byte, l *ledger, number int64) int {
	var room [96]byte
	for version := 1; version <= 2; version++ {
		if bytes.Contains(text, n.appendName(room[:0], number, version, l.dueMs(number, version))) {
			return version
		}
	}
	return 0
}
