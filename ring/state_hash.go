package ring

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"

	"carillon/timer"
	"carillon/timer/encoding"
)

// Hash covers all that a snapshot has: equal on all replicas that applied the same entries. It is
// made of sums that every change keeps up to date, and takes the same time for a state of any size.
func (s *State) Hash() uint64 {
	s.Topics.mu.RLock()
	lastID, topics := s.lastID, s.sum
	s.Topics.mu.RUnlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &s.cluster
	var room hashRoom
	h := stateHash{room[:0]}
	h.number(uint64(lastID))
	h.number(topics)
	if c.id != "" {
		h.texts(c.id)
		h.numbers(int64(c.shards), int64(c.replicas), int64(c.level), int64(c.version))
		h.number(c.nodeSum)
		h.number(c.rowSum)
		h.texts(string(c.secret))
		if c.founded != 0 { // a snapshot leaves it out when it is 0
			h.numbers(int64(c.founded), int64(c.growth.From), int64(c.growth.Parents), int64(c.growth.To))
		}
	}
	return h.sum64()
}

func hashTopic(t *timer.Topic) uint64 {
	var room hashRoom
	h := stateHash{room[:0]}
	h.topic(t)
	return h.sum64()
}

func hashNode(n *Node) uint64 {
	var room hashRoom
	h := stateHash{room[:0]}
	h.number(n.ID)
	h.texts(n.Name, n.HTTP, n.Peer, n.Gossip, n.Zone, n.Version, string(n.State))
	h.numbers(int64(n.Level), int64(n.Starts), n.JoinedMs, n.SinceMs)
	if n.Fenced != 0 { // a snapshot leaves it out when it is 0
		h.number(uint64(n.Fenced))
	}
	return h.sum64()
}

func hashRow(r *Assignment) uint64 {
	var room hashRoom
	h := stateHash{room[:0]}
	h.numbers(int64(r.Group), int64(r.Epoch))
	h.flags(r.Settled, r.Unmoved)
	h.replicas(r.Replicas, r.Replicas == nil)
	h.replicas(r.Leaving, false) // a snapshot leaves it out when it is empty
	if r.From != 0 {             // and this when it is 0
		h.number(uint64(r.From))
	}
	return h.sum64()
}

// stateHash gathers the bytes that are hashed. Everything has a length, or its length before it.
type stateHash struct{ b []byte }

// hashRoom is room for the bytes of most, on the stack of whoever hashes.
type hashRoom [512]byte

func (h *stateHash) sum64() uint64 { return xxhash.Sum64(h.b) }

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
		h.b = append(h.b, encoding.Flag(v, 1))
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

func (h *stateHash) topic(t *timer.Topic) {
	h.number(uint64(t.ID))
	h.texts(t.Name)
	h.flags(t.Paused, t.AutoCreated, t.Closing, t.ForceClose)
	h.numbers(t.CreatedMs, t.UpdatedMs)
	if t.Turn != 0 {
		h.number(uint64(t.Turn))
		h.flags(t.Turning)
	}
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
	h.flags(p.ByContent, p.Serial, p.Pull, p.Report, p.OwnBreaker)
	h.numbers(int64(p.Merge), p.MaxWaitMs, int64(p.Concurrency), int64(p.Rate.Burst), p.SpreadMs, p.LeaseMs,
		int64(p.Breaker.Failures), p.Breaker.WindowMs, p.Breaker.OpenMs, int64(p.Breaker.Probes),
		int64(p.DestinationConcurrency), p.HistoryMs, p.DeadRetentionMs)
	h.list(len(p.Secrets), p.Secrets == nil)
	h.texts(p.Secrets...)
	h.number(uint64(t.Version))
	h.texts(p.Key)
	h.flags(p.RejectLate)
	if p.CollectMax != 0 {
		h.number(uint64(p.CollectMax))
	}
	if w := p.Window; w != nil {
		h.texts(w.Zone, w.Days, w.From, w.To)
		h.list(len(w.Except), false)
		h.texts(w.Except...)
	}
	if p.OnDone != "" || p.OnDead != "" {
		h.texts(p.OnDone, p.OnDead)
	}
	if p.NoAnswers {
		h.texts("no answers")
	}
	if k := p.PerKey; k != nil {
		h.number(uint64(k.Concurrency))
		h.floats(k.Rate.PerSecond)
		h.number(uint64(k.Rate.Burst))
		h.flags(k.Fair)
	}
	if b := p.Batch; b != nil {
		h.texts("batch")
		h.numbers(int64(b.Max), b.WaitMs)
		h.flags(b.ByKey)
	}
	if p.CloudEvents || len(p.SigningKeys) > 0 {
		h.flags(p.CloudEvents)
		h.list(len(p.SigningKeys), false)
		for _, key := range p.SigningKeys {
			h.texts(key.Private, key.Public)
		}
	}
}

func (h *stateHash) replicas(list []Replica, absent bool) {
	h.list(len(list), absent)
	for _, r := range list {
		h.number(r.Node)
		h.number(r.ID)
		h.flags(r.Learner)
	}
}
