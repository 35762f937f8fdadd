package ring

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"carillon/shard"
)

// Hash is of all that Save writes, for who compares replicas at every entry: no text is made for it.
func (s *State) Hash() uint64 {
	h := stateHash{b: make([]byte, 0, 1<<10)}
	h.sum.Reset()
	topics := s.save()
	h.number(uint64(topics.LastID))
	h.list(len(topics.Topics), topics.Topics == nil)
	for _, t := range topics.Topics {
		h.topic(t)
		h.flush()
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := &s.cluster; c.id != "" {
		h.cluster(c)
	}
	h.flush()
	return h.sum.Sum64()
}

// stateHash gathers what is hashed. Everything has a length, or its length before it.
type stateHash struct {
	sum xxhash.Digest
	b   []byte
}

func (h *stateHash) flush() {
	_, _ = h.sum.Write(h.b)
	h.b = h.b[:0]
}

func (h *stateHash) number(v uint64) { h.b = binary.LittleEndian.AppendUint64(h.b, v) }

func (h *stateHash) numbers(list ...int64) {
	for _, v := range list {
		h.number(uint64(v))
	}
}

func (h *stateHash) floats(list ...float64) {
	for _, v := range list {
		h.number(math.Float64bits(v))
	}
}

func (h *stateHash) flags(list ...bool) {
	for _, v := range list {
		if v {
			h.b = append(h.b, 1)
		} else {
			h.b = append(h.b, 0)
		}
	}
}

func (h *stateHash) texts(list ...string) {
	for _, s := range list {
		h.number(uint64(len(s)))
		h.b = append(h.b, s...)
	}
}

func (h *stateHash) list(n int, absent bool) {
	h.flags(absent)
	h.number(uint64(n))
}

func (h *stateHash) topic(t *shard.Topic) {
	h.number(uint64(t.ID))
	h.texts(t.Name)
	h.flags(t.Paused, t.AutoCreated, t.Closing, t.ForceClose)
	h.numbers(t.CreatedMs, t.UpdatedMs)
	p := &t.Policy
	h.texts(p.Callback.URL, p.Callback.Method)
	h.list(len(p.Callback.Headers), p.Callback.Headers == nil)
	for _, header := range p.Callback.Headers {
		h.texts(header.Name, header.Value)
	}
	h.flags(p.Callback.HasHeaders)
	h.numbers(p.Callback.TimeoutMs, int64(p.MaxAttempts), p.MinBackoffMs, p.MaxBackoffMs)
	h.floats(p.Multiplier, p.Jitter, p.Rate.PerSecond)
	h.list(len(p.StopOn), p.StopOn == nil)
	for _, status := range p.StopOn {
		h.number(uint64(status))
	}
	h.flags(p.ByContent, p.Serial, p.Ordered, p.Pull, p.Report, p.OwnBreaker)
	h.numbers(int64(p.Merge), p.MaxWaitMs, int64(p.Concurrency), int64(p.Rate.Burst), p.SpreadMs, p.LeaseMs,
		int64(p.Breaker.Failures), p.Breaker.WindowMs, p.Breaker.OpenMs, int64(p.Breaker.Probes),
		int64(p.DestinationConcurrency), p.HistoryMs, p.DeadRetentionMs)
	h.list(len(p.Secrets), p.Secrets == nil)
	h.texts(p.Secrets...)
}

func (h *stateHash) cluster(c *cluster) {
	h.texts(c.id)
	h.numbers(int64(c.shards), int64(c.replicas), int64(c.version))
	h.list(len(c.nodes), false)
	for _, id := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[id]
		h.number(n.ID)
		h.texts(n.Name, n.HTTP, n.Peer, n.Gossip, n.Zone, n.Version, string(n.State))
		h.numbers(int64(n.Starts), n.JoinedMs, n.SinceMs)
	}
	h.list(len(c.rows), c.rows == nil)
	for i := range c.rows {
		r := &c.rows[i]
		h.numbers(int64(r.Group), int64(r.Epoch))
		h.flags(r.Settled, r.Unmoved)
		h.replicas(r.Replicas, r.Replicas == nil)
		h.replicas(r.Leaving, false) // Save leaves it out when it is empty
	}
	h.texts(string(c.secret))
}

func (h *stateHash) replicas(list []Replica, absent bool) {
	h.list(len(list), absent)
	for _, r := range list {
		h.number(r.Node)
		h.number(r.ID)
		h.flags(r.Learner)
	}
}
