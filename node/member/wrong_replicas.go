package member

import (
	"encoding/binary"
	"slices"
	"time"

	"carillon/internal/placement"
	"carillon/ring"
	"carillon/timer"
	"carillon/timer/encoding"
)

// With each heartbeat a node reports which of its replicas have a wrong state, so that the
// controller has them replaced (docs/adr/0056).

const (
	// wrongFrame begins the control frames that carry it. Releases that do not know it drop them.
	wrongFrame = 0xB3
	maxWrong   = 1024 // the rest is reported once these are replaced
)

// encodeWrong is a node's frame; nil: it has nothing to report.
func encodeWrong(list []placement.WrongReplica) []byte {
	if len(list) == 0 {
		return nil
	}
	list = list[:min(len(list), maxWrong)]
	out := binary.AppendUvarint([]byte{wrongFrame}, uint64(len(list)))
	for _, r := range list {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(r.Group)), r.Replica)
	}
	return out
}

// decodeWrong reads what follows wrongFrame. It skips fields that later releases may add.
func decodeWrong(in []byte) (list []placement.WrongReplica, ok bool) {
	r := encoding.Reader{Rest: in}
	for range r.Count(maxWrong, 2, "replicas") {
		list = append(list, placement.WrongReplica{Group: timer.ShardID(r.Number(1<<32-1, "group")), Replica: r.Uvarint()})
	}
	return list, r.Fault == ""
}

// wrongReport is a node's latest list of its wrong replicas.
type wrongReport struct {
	at   time.Duration
	list []placement.WrongReplica
}

// recordWrong records a node's report of its own replicas.
func (l *liveness) recordWrong(now time.Duration, node uint64, list []placement.WrongReplica) {
	list = slices.DeleteFunc(list, func(r placement.WrongReplica) bool { return ring.NodeOfReplica(r.Replica) != node })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes[node] == nil {
		return // it has sent no heartbeat
	}
	if l.wrong == nil {
		l.wrong = map[uint64]wrongReport{}
	}
	l.wrong[node] = wrongReport{now, list}
}

func (l *liveness) allWrong(now time.Duration) (list []placement.WrongReplica) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, report := range l.wrong {
		if now-report.at >= suspectAfter {
			delete(l.wrong, node)
			continue
		}
		list = append(list, report.list...)
	}
	return list
}
