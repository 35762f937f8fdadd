package wire

import (
	"encoding/binary"

	"carillon/timer"
	"carillon/timer/encoding"
)

// Bounds of the messages about pulls.
const (
	maxWirePull  = 1 << 10 // timers
	minCandidate = 4
	minPulled    = 16
)

// AppendCandidatesRequest encodes a request for the first timers of a topic that a node has ready.
func AppendCandidatesRequest(dst []byte, topic timer.TopicID, most int) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(topic))
	return binary.AppendUvarint(dst, uint64(min(max(most, 0), maxWirePull)))
}

// DecodeCandidatesRequest decodes the output of AppendCandidatesRequest.
func DecodeCandidatesRequest(b []byte) (topic timer.TopicID, most int, err error) {
	r := open(b)
	topic = timer.TopicID(r.Number(1<<32-1, "topic"))
	most = int(r.Number(maxWirePull, "limit"))
	return topic, most, r.Close()
}

// AppendCandidates encodes the answer.
func AppendCandidates(dst []byte, list []timer.Candidate) []byte {
	dst = append(dst, version, faultNone)
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, o := range list {
		dst = append(binary.AppendUvarint(dst, uint64(o.Shard)), o.Priority)
		dst = binary.AppendVarint(dst, o.DueMs)
		dst = binary.AppendUvarint(dst, uint64(o.Bytes))
	}
	return dst
}

// DecodeCandidates decodes the output of AppendCandidates or AppendFailure.
func DecodeCandidates(b []byte) ([]timer.Candidate, error) {
	r, err := answered(b)
	if err != nil {
		return nil, err
	}
	var list []timer.Candidate
	for n := r.Count(maxWirePull, minCandidate, "offers"); n > 0 && r.Fault == ""; n-- {
		o := timer.Candidate{Shard: timer.ShardID(r.Number(1<<32-1, "shard")), Priority: r.Byte(), DueMs: r.Varint()}
		o.Bytes = int(r.Number(1<<31-1, "size"))
		list = append(list, o)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return list, nil
}

// AppendPullRequest encodes a consumer's pull from shards that a node leads.
func AppendPullRequest(dst []byte, topic timer.TopicID, leaseMs int64, shares []timer.Share) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(topic))
	dst = binary.AppendVarint(dst, leaseMs)
	dst = binary.AppendUvarint(dst, uint64(len(shares)))
	for _, s := range shares {
		dst = encoding.AppendUvarints(dst, uint64(s.Shard), uint64(s.Timers))
	}
	return dst
}

func DecodePullRequest(b []byte) (topic timer.TopicID, leaseMs int64, shares []timer.Share, err error) {
	r := open(b)
	topic = timer.TopicID(r.Number(1<<32-1, "topic"))
	if leaseMs = r.Varint(); leaseMs < 0 || leaseMs > timer.MaxMs {
		r.Fail("length of a lease out of range")
	}
	for n := r.Count(maxWirePull, 2, "shards"); n > 0 && r.Fault == ""; n-- {
		s := timer.Share{Shard: timer.ShardID(r.Number(1<<32-1, "shard"))}
		s.Timers = int(r.Number(maxWirePull, "timers"))
		shares = append(shares, s)
	}
	return topic, leaseMs, shares, r.Close()
}

// AppendPulled encodes the pulled timers: all of them, since they are leased.
func AppendPulled(dst []byte, list []timer.PulledTimer) []byte {
	dst = append(dst, version, faultNone)
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		t := &list[i]
		dst = encoding.AppendUvarints(dst, uint64(t.Shard), uint64(t.Handle))
		dst = binary.AppendVarint(dst, t.UntilMs)
		dst = encoding.AppendTimer(dst, t.Timer)
	}
	return dst
}

// DecodePulled decodes the output of AppendPulled or AppendFailure.
func DecodePulled(b []byte) ([]timer.PulledTimer, error) {
	r, err := answered(b)
	if err != nil {
		return nil, err
	}
	var list []timer.PulledTimer
	for n := r.Count(maxWirePull, minPulled, "timers"); n > 0 && r.Fault == ""; n-- {
		t := timer.PulledTimer{Shard: timer.ShardID(r.Number(1<<32-1, "shard")), Handle: timer.Handle(r.Number(1<<32-1, "handle")), UntilMs: r.Varint()}
		t.Timer = r.Timer()
		list = append(list, t)
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return list, nil
}

// AppendAwaited encodes the answer: how many timers are ready, at most.
func AppendAwaited(dst []byte, timers int) []byte {
	return binary.AppendUvarint(append(dst, version, faultNone), uint64(max(timers, 0)))
}

// DecodeAwaited decodes the output of AppendAwaited or AppendFailure.
func DecodeAwaited(b []byte) (timers int, err error) {
	r, err := answered(b)
	if err != nil {
		return 0, err
	}
	timers = int(r.Number(1<<31-1, "timers"))
	return timers, r.Close()
}
