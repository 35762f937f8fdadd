package wire

import (
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
	return encoding.AppendUvarints(append(dst, version), uint64(topic), uint64(min(max(most, 0), maxWirePull)))
}

// DecodeCandidatesRequest decodes the output of AppendCandidatesRequest.
func DecodeCandidatesRequest(b []byte) (topic timer.TopicID, most int, err error) {
	c := open(b)
	topic = timer.TopicID(c.Number(1<<32-1, "topic"))
	most = int(c.Number(maxWirePull, "limit"))
	return topic, most, c.Close()
}

func candidates(c *encoding.Codec, list *[]timer.Candidate) {
	encoding.List(c, list, maxWirePull, minCandidate, "offers", func(c *encoding.Codec, o *timer.Candidate) {
		encoding.Uint32(c, &o.Shard, "shard")
		encoding.Octet(c, &o.Priority)
		encoding.Signed(c, &o.DueMs)
		encoding.Number(c, &o.Bytes, 1<<31-1, "size")
	})
}

// AppendCandidates encodes the answer.
func AppendCandidates(dst []byte, list []timer.Candidate) []byte {
	return answer(dst, &list, candidates)
}

// DecodeCandidates decodes the output of AppendCandidates or AppendFailure.
func DecodeCandidates(b []byte) ([]timer.Candidate, error) { return answered(b, candidates) }

// AppendPullRequest encodes a consumer's pull from shards that a node leads.
func AppendPullRequest(dst []byte, topic timer.TopicID, leaseMs int64, shares []timer.Share) []byte {
	c := encoding.Codec{Out: append(dst, version)}
	pull(&c, &topic, &leaseMs, &shares)
	return c.Out
}

func DecodePullRequest(b []byte) (topic timer.TopicID, leaseMs int64, shares []timer.Share, err error) {
	c := open(b)
	pull(&c, &topic, &leaseMs, &shares)
	return topic, leaseMs, shares, c.Close()
}

func pull(c *encoding.Codec, topic *timer.TopicID, leaseMs *int64, shares *[]timer.Share) {
	encoding.Uint32(c, topic, "topic")
	if encoding.Signed(c, leaseMs); *leaseMs < 0 || *leaseMs > timer.MaxMs {
		c.Fail("length of a lease out of range")
	}
	encoding.List(c, shares, maxWirePull, 2, "shards", func(c *encoding.Codec, s *timer.Share) {
		encoding.Uint32(c, &s.Shard, "shard")
		encoding.Number(c, &s.Timers, maxWirePull, "timers")
	})
}

func pulled(c *encoding.Codec, list *[]timer.PulledTimer) {
	encoding.List(c, list, maxWirePull, minPulled, "timers", func(c *encoding.Codec, t *timer.PulledTimer) {
		encoding.Uint32(c, &t.Shard, "shard")
		encoding.Uint32(c, &t.Handle, "handle")
		encoding.Signed(c, &t.UntilMs)
		c.Timer(encoding.Made(c, &t.Timer))
	})
}

// AppendPulled encodes the pulled timers: all of them, since they are leased.
func AppendPulled(dst []byte, list []timer.PulledTimer) []byte { return answer(dst, &list, pulled) }

// DecodePulled decodes the output of AppendPulled or AppendFailure.
func DecodePulled(b []byte) ([]timer.PulledTimer, error) { return answered(b, pulled) }

func awaited(c *encoding.Codec, timers *int) { encoding.Number(c, timers, 1<<31-1, "timers") }

// AppendAwaited encodes the answer: how many timers are ready, at most.
func AppendAwaited(dst []byte, timers int) []byte { return answer(dst, &timers, awaited) }

// DecodeAwaited decodes the output of AppendAwaited or AppendFailure.
func DecodeAwaited(b []byte) (timers int, err error) { return answered(b, awaited) }
