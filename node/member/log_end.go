package member

import (
	"encoding/binary"
	"sync"

	"carillon/timer/encoding"
)

// With each heartbeat a node reports how many frames of its log are on disk. A process that begins
// with fewer than its node has reported runs on an older copy of the directory, or its disk has
// lost some: see knownFacts.

// logEndFrame begins the control frames that carry a log's end. Releases that do not know it drop
// them.
const logEndFrame = 0xB2

func encodeLogEnd(starts uint32, synced uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint([]byte{logEndFrame}, uint64(starts)), synced)
}

// decodeLogEnd reads what follows logEndFrame. It skips fields that later releases may add.
func decodeLogEnd(in []byte) (starts uint32, synced uint64, ok bool) {
	r := encoding.Reader{Rest: in}
	starts, synced = uint32(r.Number(1<<32-1, "starts")), r.Uvarint()
	return starts, synced, r.Fault == ""
}

// logEnds are the reported ends of other nodes' logs. Only members report, so there are few.
type logEnds struct {
	mu    sync.Mutex
	nodes map[uint64]logEndReport
}

// logEndReport is where a node's log ends, as its processes have reported.
type logEndReport struct {
	starts   uint32 // the newest that has
	end      uint64 // of its word
	formerly uint64 // of those before it
}

func (l *logEnds) record(node uint64, starts uint32, end uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	report := l.nodes[node]
	switch {
	case starts < report.starts:
		return
	case starts > report.starts:
		report = logEndReport{starts: starts, formerly: max(report.end, report.formerly)}
	}
	report.end = max(report.end, end)
	if l.nodes == nil {
		l.nodes = map[uint64]logEndReport{}
	}
	l.nodes[node] = report
}

// before is how many frames were on a node's disk, as processes before the given one have reported.
func (l *logEnds) before(node uint64, starts uint32) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	report := l.nodes[node]
	if report.starts < starts {
		return max(report.end, report.formerly)
	}
	return report.formerly
}

func (l *logEnds) forget(node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, node)
}
