package sim

import (
	"fmt"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// The topics of a run. The operations on each id of the plain topics must be linearizable (I19).
// The other topics have rules of their own, see featureChecker.
const (
	plainTopics = 2

	featureTopic timer.TopicID = 3 // merge rules, series, repeated adds, dead letters
	serialTopic  timer.TopicID = 4

	// The clients of these topics are in topic_workloads.go.
	pullTopic   timer.TopicID = 5
	reportTopic timer.TopicID = 6
	lineTopic   timer.TopicID = 7 // serial, with one key
	fewTopic    timer.TopicID = 8 // few calls at once
	pacedTopic  timer.TopicID = 9 // few calls per second
)

var topicNames = []string{"one", "two", "features", "serial", "pull", "report", "line", "few", "paced", "ranked", "spread", "brief", "content", "bulk", "merging", "window", probeName, "perkey", "collect"}

// settledTopics are the first topics, which World.pauseTopic pauses and resumes.
const settledTopics = 4

// lineKey is the key of all timers of the line topic.
const lineKey = "all"

// serialKeys is how many keys the serial topic's timers have.
const serialKeys = 3

// pickFeature draws an operation in the feature topic. The first letter of an id says how it is
// used: "s" is a series, also fired and with its dead occurrences redriven; "d" is an add that is
// repeated; "m" is added again under merge rules, fired, cancelled, redriven and purged; and "x" is
// added again and again, and expires at once, so that it has many dead letters.
func (w *World) pickFeature() *operation {
	f, r := &w.checker.features, w.chance
	o := &operation{number: w.checker.nextOp(), topic: featureTopic, astray: r.IntN(5) == 0}
	due := r.between(-50*time.Millisecond, 3*time.Second)
	at := epochMs + (w.now + due).Milliseconds()
	if len(f.recent) == 0 || r.IntN(3) == 0 {
		o.id = fmt.Sprintf("%c%d", "smmdx"[r.IntN(5)], o.number)
		f.recent = append(f.recent, o.id)
		f.recent = f.recent[max(0, len(f.recent)-12):]
		o.write = &write{op: o.number, dueMs: at, payload: fmt.Sprintf(`"%s/%d"`, o.id, o.number)}
		o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
		if o.id[0] == 'x' {
			w.dying(o, r.between(0, time.Second))
		}
		if o.id[0] == 's' {
			o.write.every, o.write.count = 200+r.Int64N(2500), 1+r.Int64N(6)
			o.write.catchUp, o.write.overlap = timer.CatchUp(r.IntN(3)), o.write.every%3 == 0
		}
	} else {
		o.id = f.recent[r.IntN(len(f.recent))]
		w.further(o, at)
	}
	w.complete(o)
	return o
}

// further draws an operation on a known id.
func (w *World) further(o *operation, at int64) {
	r := w.chance
	command := func(kind timer.Kind) { o.cmd = &timer.Command{Kind: kind} }
	switch n := r.IntN(10); {
	case o.id[0] == 'd':
		if first := w.checker.features.ids[idKey{o.topic, o.id}].first; first != nil && n < 8 {
			o.write = first
			o.cmd = &timer.Command{Kind: timer.Add, Content: first.op}
		}
	case o.id[0] == 's':
		switch n {
		case 0:
			command(timer.Cancel)
		case 1, 2:
			command(timer.Fire)
			o.cmd.DueMs = epochMs + w.now.Milliseconds()
		case 3, 4:
			command(timer.Redrive)
			o.cmd.DueMs = at
		}
	case o.id[0] == 'x' && n < 6:
		o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s/%d"`, o.id, o.number)}
		w.dying(o, r.between(0, time.Second))
		o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	case n < 5:
		o.write = &write{op: o.number, dueMs: at, payload: fmt.Sprintf(`"%s/%d"`, o.id, o.number)}
		o.cmd = &timer.Command{Kind: timer.Add, Content: o.number, Merge: timer.MergeKeep + timer.Merge(r.IntN(3))}
		if o.cmd.Merge == timer.MergeDebounce && r.IntN(2) == 0 {
			o.cmd.MaxWaitMs = 1 + r.Int64N(3000)
			o.write.capped = true
		}
	case n == 5:
		command(timer.Cancel)
	case n == 6:
		command(timer.Fire)
		o.cmd.DueMs = epochMs + w.now.Milliseconds()
	case n == 7:
		command(timer.Redrive)
		o.cmd.DueMs = at
	case n == 8:
		command(timer.Purge)
	}
}

// revive has a client redrive an occurrence that its receiver has rejected for good, in one case of
// two. It becomes due right after the next one of its series, so that both are called at once:
// clients that draw a redrive by chance come to that in one run of a hundred.
func (w *World) revive(j *table.Job) {
	wrote := w.checker.features.id(idKey{j.Topic, j.ID}).writes[string(j.Payload)]
	if wrote.every == 0 || w.calm || w.cfg.script != nil || w.revivals.IntN(2) > 0 {
		return
	}
	left := wrote.every - (epochMs+w.now.Milliseconds()-j.DueMs)%wrote.every
	w.after(msOf(left)/2, func() {
		o := &operation{number: w.checker.nextOp(), topic: j.Topic, id: j.ID, then: func(bool) {}}
		o.cmd = &timer.Command{Kind: timer.Redrive, DueMs: epochMs + (w.now + msOf(left)/2).Milliseconds() + w.revivals.Int64N(20)}
		w.complete(o)
		(&client{w: w, number: 8100, own: &w.revivals}).start(o)
	})
}

// dying makes a write due some time ago, and expired by then.
func (w *World) dying(o *operation, ago time.Duration) {
	o.write.dueMs, o.write.dies = epochMs+(w.now-ago).Milliseconds(), true
	o.write.more = func(s *timer.Spec) { s.HasExpiry = true }
}

// pickSerial draws an operation in the serial topic.
func (w *World) pickSerial() *operation {
	o := &operation{number: w.checker.nextOp(), topic: serialTopic}
	o.id = fmt.Sprintf("{k%d}%d", w.chance.IntN(serialKeys), o.number)
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id)}
	o.write.dueMs = epochMs + (w.now + w.chance.between(-50*time.Millisecond, time.Second)).Milliseconds()
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	return o
}

// complete sets the fields that all operations in these topics have.
func (w *World) complete(o *operation) {
	o.shard = w.place(o.topic, o.id)
	if o.cmd == nil {
		return
	}
	o.cmd.Topic, o.cmd.ID = o.topic, o.id
	if o.write == nil {
		return
	}
	o.cmd.Tag, o.cmd.Absolute = uint32(o.number), true
	o.cmd.Spec = &timer.Spec{DueMs: o.write.dueMs, Payload: []byte(o.write.payload), PayloadKind: timer.JSONPayload}
	if o.write.more != nil {
		o.write.more(o.cmd.Spec)
	}
	if o.write.every != 0 {
		o.cmd.Spec.Repeat = &timer.Repeat{EveryMs: o.write.every, Count: o.write.count, CatchUp: o.write.catchUp, Overlap: o.write.overlap}
	}
	if t := o.write.timetable; t != nil {
		o.cmd.Spec.Repeat = &timer.Repeat{Cron: t.cron, Zone: t.zone, Count: o.write.count, CatchUp: o.write.catchUp}
	}
}

// place is the shard of a timer.
func (w *World) place(topic timer.TopicID, id string) timer.ShardID {
	t := timer.Topic{ID: topic, Name: w.topics[topic-1]}
	return timer.ShardOf(&t, id, w.swarm.shards)
}
