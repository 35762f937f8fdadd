package scheduler

import (
	"encoding/binary"

	"carillon/shard/table"
	"carillon/timer"

	"github.com/cespare/xxhash/v2"
)

// Describe returns the payload of the outcome of a timer of a topic that has just ended, as JSON.
// last is its last attempt; nil: it had none. The result is kept in the log, so what a later release
// writes does not change it.
type Describe func(topic *timer.Topic, ended *timer.Timer, last *timer.HistoryAttempt) []byte

// followUp adds the outcome of a timer that the next item ends, if its on_done or on_dead, or that of
// its topic, names a topic. A timer without costs O(1); ended copies the timer.
func (l *leader) followUp(b *table.Batch, h timer.Handle, end timer.State, ended func() (*timer.Timer, *timer.HistoryAttempt)) {
	from := l.topic(l.table.Due(h).Topic)
	if from == nil {
		return
	}
	own := l.table.OutcomeOf(h, end)
	name := from.Policy.OutcomeOf(end)
	if own == nil && name == "" || own != nil && own.ID == 0 {
		return
	}
	t, last := ended()
	if t == nil {
		return // its lease is over, or it is cancelled
	}
	to, there := l.outcomeTopic(own, name)
	if !there {
		l.cfg.Observer.Outcomes(0, 1)
		return
	}
	b.FollowUp(&timer.Command{
		Kind: timer.Add, Topic: to, ID: l.outcomeID(t), Tag: t.Tag,
		Spec: &timer.Spec{
			DueMs: l.now.WallMs, PayloadKind: timer.JSONPayload, Payload: l.cfg.Describe(from, t, last),
			Labels: []string{timer.OutcomeLabel}, Trace: t.Trace,
			OnDone: &timer.OutcomeTopic{}, OnDead: &timer.OutcomeTopic{}, // an outcome has none
		},
	})
}

// outcomeTopic returns the topic that a timer names itself, else that of the name. It reports false
// if the topic is gone. One that this node has not learned of yet is there: the timer named it when
// it was there.
func (l *leader) outcomeTopic(own *timer.OutcomeTopic, name string) (timer.TopicID, bool) {
	if own != nil {
		_, known := l.cfg.Topics.Topic(own.ID)
		return own.ID, known || !l.cfg.Topics.Given(own.ID)
	}
	to, known := l.cfg.Topics.Named(name)
	if !known {
		return 0, false
	}
	return to.ID, true
}

// outcomeID returns the id of an outcome. It carries this shard, and another end of a timer has
// another one: a timer ends again only after a further lease, or redriven, after a later time.
func (l *leader) outcomeID(t *timer.Timer) string {
	var b [33]byte
	binary.LittleEndian.PutUint64(b[:], t.Seq)
	binary.LittleEndian.PutUint64(b[8:], t.Fence)
	binary.LittleEndian.PutUint64(b[16:], uint64(t.EndedMs))
	binary.LittleEndian.PutUint64(b[24:], uint64(t.Tag))
	hi := xxhash.Sum64(b[:32])
	b[32] = 1
	return timer.NewID(l.cfg.Shard, hi, xxhash.Sum64(b[:]))
}
