package timer

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// OutcomeTopic is the topic in which the end of a timer makes another timer, its outcome. The zero
// value is none, even where the policy has one.
type OutcomeTopic struct {
	ID   TopicID // that life of the topic and no other
	Name string
}

// IsOutcome reports whether a timer is an outcome: no client's add made it, or replaced it whole,
// and it has none itself.
func IsOutcome(content uint64, onDone, onDead *OutcomeTopic) bool {
	return content == 0 && onDone != nil && onDead != nil && onDone.ID == 0 && onDead.ID == 0
}

// OutcomeLabel is the label of each outcome.
const OutcomeLabel = "outcome"

// TakesOutcomes reports whether timers and policies may name the topic for their outcomes; nil is
// no topic. A serial one keeps the order of each key in the key's shard, but an outcome is in the
// shard of the timer that ended.
func (t *Topic) TakesOutcomes() bool { return t != nil && !t.ForceClose && !t.Policy.Serial }

// OutcomeOf is the name of the policy's topic for the outcomes of timers that end so; "": none.
func (p *Policy) OutcomeOf(end State) string {
	if end == Done {
		return p.OnDone
	}
	return p.OnDead
}

// Names reports whether the policy names a topic for outcomes.
func (p *Policy) Names(topic string) bool { return p.OnDone == topic || p.OnDead == topic }

// OutcomeID returns the id of the outcome of a timer that has ended. It carries the shard. Another
// end of the timer has another one: a timer ends again only after a further lease, or redriven, at
// a later time.
func OutcomeID(shard ShardID, ended *Timer) string {
	var b [33]byte
	binary.LittleEndian.PutUint64(b[:], ended.Seq)
	binary.LittleEndian.PutUint64(b[8:], ended.Fence)
	binary.LittleEndian.PutUint64(b[16:], uint64(ended.EndedMs))
	binary.LittleEndian.PutUint64(b[24:], uint64(ended.Tag))
	hi := xxhash.Sum64(b[:32])
	b[32] = 1
	return NewID(shard, hi, xxhash.Sum64(b[:]))
}
