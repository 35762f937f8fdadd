package sim

import (
	"fmt"
	"time"

	"carillon/timer"
)

// The topics of the feature clients. They cover features that other clients do not use. Each topic
// has a checker of its own.
const (
	rankedTopic  timer.TopicID = 10 // priorities; only a few calls at once
	spreadTopic  timer.TopicID = 11
	briefTopic   timer.TopicID = 12 // timers that expire; one call at once
	contentTopic timer.TopicID = 13 // deduplication by content
	bulkTopic    timer.TopicID = 14 // cancelled and rescheduled by filter
)

// featureClients are the clients of these topics. They draw from a stream of their own. Each topic
// is used in half of the runs.
type featureClients struct {
	crew
	topics   []timer.TopicID // the topics that this run uses
	few      int             // call limit of rankedTopic
	spreadMs int64
	merge    timer.Merge // of contentTopic
	bulkEach time.Duration

	recent  []string // ids of briefTopic
	parting bool     // the second phase: only timers that must be punctual are added
}

// partingFor is how long feature clients go on in the second phase.
const partingFor = 12 * time.Second

// drawFeatureClients draws a run's feature clients.
func (w *World) drawFeatureClients() *featureClients {
	c := newChance(w.cfg.Seed, 4)
	v := &featureClients{crew: crew{w: w, chance: c, think: time.Second}, few: 1 + c.IntN(3), spreadMs: 200 + c.Int64N(10_000), merge: timer.Merge(c.IntN(3)), bulkEach: c.between(time.Second, 8*time.Second)}
	if c.IntN(2) == 0 {
		v.merge = timer.MergeReject
	}
	for id := rankedTopic; id <= bulkTopic; id++ {
		// its timers must stay far from due by any clock
		if c.IntN(2) == 0 && (id != bulkTopic || w.swarm.clocks.steps == 0) {
			v.topics = append(v.topics, id)
		}
	}
	return v
}

// shape sets a topic's policy.
func (v *featureClients) shape(id timer.TopicID, p *timer.Policy) {
	switch id {
	case rankedTopic:
		p.Concurrency = v.few
	case spreadTopic:
		p.SpreadMs = v.spreadMs
	case briefTopic:
		p.Concurrency = 1
	case contentTopic:
		p.ByContent = true
	}
}

// begin starts the clients.
func (v *featureClients) begin() {
	if len(v.topics) == 0 {
		return
	}
	v.employ(3000, 2, v.pick)
	if v.visit(bulkTopic) {
		v.w.after(v.chance.between(0, v.bulkEach), v.bulk)
	}
}

func (v *featureClients) visit(topic timer.TopicID) bool {
	for _, id := range v.topics {
		if id == topic {
			return true
		}
	}
	return false
}

// part ends the clients, except for adds that must be punctual from now on.
func (v *featureClients) part() {
	v.parting = true
	if !v.visit(spreadTopic) && !v.visit(briefTopic) {
		v.done()
		return
	}
	v.w.after(partingFor, v.done)
}

// pick draws an operation.
func (v *featureClients) pick() *operation {
	w, r := v.w, v.chance
	topic := v.topics[r.IntN(len(v.topics))]
	for v.parting && topic != spreadTopic && topic != briefTopic {
		topic = v.topics[r.IntN(len(v.topics))]
	}
	switch topic {
	case contentTopic:
		return v.pickContent()
	case bulkTopic:
		return v.pickBulk()
	case briefTopic:
		if o := v.pickAgain(); o != nil {
			return o
		}
	}
	o := v.add(topic, fmt.Sprintf("v%d", w.checker.ops+1), r.between(-50*time.Millisecond, 1500*time.Millisecond))
	switch topic {
	case rankedTopic:
		v.crowd(o)
	case briefTopic:
		after := [...]int64{0, 1, 300, 300, 1000, 3000}[r.IntN(6)]
		o.write.expiresMs = after
		o.write.more = func(s *timer.Spec) { s.HasExpiry, s.ExpiresAfterMs = true, after }
		v.recent = append(v.recent, o.id)
		v.recent = v.recent[max(0, len(v.recent)-12):]
	}
	w.complete(o)
	return o
}

// add draws an add.
func (v *featureClients) add(topic timer.TopicID, id string, due time.Duration) *operation {
	o := &operation{number: v.w.checker.nextOp(), topic: topic, id: id, astray: v.chance.IntN(8) == 0}
	o.write = &write{op: o.number, dueMs: epochMs + (v.w.now + due).Milliseconds(), payload: fmt.Sprintf(`"%s/%d"`, id, o.number)}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	return o
}

// mostRanked is how many timers with a priority may wait.
const mostRanked = 15

// crowd makes more timers due in one shard at about the same time than its topic may call at once.
// Each has a priority.
func (v *featureClients) crowd(o *operation) {
	w, r := v.w, v.chance
	key, due := fmt.Sprintf("{r%d}", o.number), msOf(o.write.dueMs-epochMs)-w.now+300*time.Millisecond
	v.rank(o, key)
	if w.checker.ranked.waiting > mostRanked {
		return
	}
	for range 2 + r.IntN(5) {
		more := v.add(rankedTopic, "", due+r.between(-100*time.Millisecond, 100*time.Millisecond))
		v.rank(more, key)
		w.complete(more)
		more.then = func(bool) {}
		c := &client{w: w, number: 3100 + r.IntN(100), own: &v.chance}
		w.after(r.between(0, 100*time.Millisecond), func() { c.start(more) })
	}
}

func (v *featureClients) rank(o *operation, key string) {
	o.id = fmt.Sprintf("%s%d", key, o.number)
	o.write.payload = fmt.Sprintf(`"%s"`, o.id)
	o.write.priority = uint8(v.chance.IntN(4) * 85)
	o.write.more = func(s *timer.Spec) { s.Priority = o.write.priority }
}

// pickAgain draws a cancel or a redrive of a timer that may have expired; nil: none.
func (v *featureClients) pickAgain() *operation {
	r := v.chance
	if v.parting || len(v.recent) == 0 || r.IntN(5) > 0 {
		return nil
	}
	o := &operation{number: v.w.checker.nextOp(), topic: briefTopic, id: v.recent[r.IntN(len(v.recent))]}
	o.cmd = &timer.Command{Kind: timer.Cancel}
	if r.IntN(2) == 0 {
		o.cmd.Kind, o.cmd.DueMs = timer.Redrive, epochMs+v.w.now.Milliseconds()
	}
	v.w.complete(o)
	return o
}
