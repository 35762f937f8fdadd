package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// outcomes is the workload of two topics, and their checker: the end of a timer of the first, done
// or dead, makes its outcome in the second. Both exist in half of the runs. The rules:
//
//   - an outcome is of a timer that has ended so, as every replica knows it;
//   - one end makes one outcome, whatever crashes: none is lost, none comes twice. A cancelled timer
//     makes none.
type outcomes struct {
	featureChecker // of the ending timers
	crew
	ending, made timer.TopicID

	of    map[string]map[string]bool // outcomes by the uid of the timer that ended
	ended map[string]int             // ends with an outcome by the id of that timer
}

func (w *World) drawOutcomes() *outcomes {
	c := newChance(w.cfg.Seed, 61)
	return &outcomes{
		featureChecker: newFeatureChecker(),
		crew:           crew{w: w, chance: c, on: c.IntN(2) == 0, think: c.between(50*time.Millisecond, 500*time.Millisecond)},
		of:             map[string]map[string]bool{}, ended: map[string]int{},
	}
}

// topics returns the topics, if they exist. The one of outcomes is made first, since the other
// names it.
func (d *outcomes) topics(before int) []string {
	if !d.on {
		return nil
	}
	d.made, d.ending = timer.TopicID(before+1), timer.TopicID(before+2)
	d.w.checker.visits[d.ending], d.w.checker.visits[d.made] = d, outcomeChecker{d}
	return []string{"outcomes", "ending"}
}

// shape sets the topics' policies.
func (d *outcomes) shape(id timer.TopicID, p *timer.Policy) {
	if d.on && id == d.ending {
		p.OnDone, p.OnDead = d.w.topics[d.made-1], d.w.topics[d.made-1]
	}
}

func (d *outcomes) begin() {
	if d.on {
		d.employ(7100, 1, d.pick)
	}
}

// pick draws an operation. Every id is added once: to be done, to fail, to expire, to be cancelled,
// or as a series.
func (d *outcomes) pick() *operation {
	w, r := d.w, d.chance
	o := &operation{number: w.checker.nextOp(), topic: d.ending, astray: r.IntN(5) == 0}
	if len(d.recent) > 0 && r.IntN(5) == 0 {
		o.id, o.cmd = d.recent[r.IntN(len(d.recent))], &timer.Command{Kind: timer.Cancel}
		w.complete(o)
		return o
	}
	o.id = fmt.Sprintf("o%d", o.number)
	d.recent = append(d.recent, o.id)
	d.recent = d.recent[max(0, len(d.recent)-6):]
	due := w.now + r.between(-50*time.Millisecond, 2*time.Second)
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + due.Milliseconds()}
	switch r.IntN(6) {
	case 0:
		w.dying(o, r.between(0, time.Second))
	case 1:
		o.write.every, o.write.count, o.write.catchUp = 200+r.Int64N(1000), 1+r.Int64N(4), timer.CatchUpAll
		o.write.overlap = o.write.every%3 == 0
	case 2, 3:
		o.write.more = func(s *timer.Spec) { s.Retry.MaxAttempts = 1 }
	case 4: // it says the same as the policy
		o.write.more = func(s *timer.Spec) {
			s.OnDone = &timer.OutcomeTopic{ID: d.made, Name: w.topics[d.made-1]}
			s.OnDead = s.OnDone
		}
	}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	return o
}

// checkEnd compares the final states of the timers with the outcomes that were called for.
func (d *outcomes) checkEnd(w *World) {
	d.ends(w, func(*featureID, idKey, *timer.Timer) {})
	for _, k := range d.names {
		n, at := d.ids[k], w.holder(k.topic, k.id)
		now := w.leader(at).host.Table(at).Read(k.topic, k.id)
		if n.first == nil || now == nil {
			continue
		}
		want := 1
		switch {
		case now.State == timer.Cancelled && n.first.every == 0:
			want = 0
		case n.first.every != 0 && (n.cancels > 0 || len(w.checker.times.backs(at, n.since)) > 0):
			continue // as many as there were occurrences
		case n.first.every != 0:
			want = int(n.first.count)
		}
		if got := d.ended[k.id]; got != want {
			w.violate("outcomes", "%d outcomes of timer %s were called for, which is in state %d; expected %d", got, k.id, now.State, want)
		}
	}
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		if n := w.leader(id).host.Table(id).Counts(d.made); n.Scheduled+n.Leased+n.Dead > 0 {
			w.violate("outcomes", "of the outcomes in shard %d %d are not done", id, n.Scheduled+n.Leased+n.Dead)
		}
	}
}

// outcomeChecker checks the calls for outcomes.
type outcomeChecker struct{ *outcomes }

func (outcomeChecker) called(*operation)                                       {}
func (outcomeChecker) refused(*operation)                                      {}
func (outcomeChecker) answered(*World, *operation, timer.Result, *timer.Timer) {}
func (outcomeChecker) heard(*call)                                             {}
func (outcomeChecker) checkEnd(*World)                                         {}

// outcomePayload is what the checker reads of an outcome.
type outcomePayload struct {
	Outcome string
	Timer   struct{ Topic, ID, UID, State string }
}

func (b outcomeChecker) mayStart(c *call, tbl *table.Table) {
	w, j := b.w, &c.delivery.Job
	var p outcomePayload
	err := json.Unmarshal(j.Payload, &p)
	shard, seq, _, ok := timer.ParseUID(p.Timer.UID)
	if err != nil || !ok || b.ids[idKey{b.ending, p.Timer.ID}] == nil || p.Timer.Topic != w.topics[b.ending-1] || p.Timer.State != p.Outcome || w.family(shard) != w.family(c.delivery.Shard) {
		w.violate("outcomes", "node %d calls for %s: %s", c.node.id, j.ID, j.Payload)
	}
	if now := tbl.Read(b.ending, p.Timer.ID); now != nil && now.Seq == seq && fmt.Sprint(now.State == timer.Done, now.State == timer.Dead) != fmt.Sprint(p.Outcome == "done", p.Outcome == "dead") {
		w.violate("outcomes", "node %d calls for an outcome %s of %s, which is in state %d", c.node.id, p.Outcome, p.Timer.UID, now.State)
	}
}

func (b outcomeChecker) started(c *call) {
	j := &c.delivery.Job
	var p outcomePayload
	_ = json.Unmarshal(j.Payload, &p) // mayStart has read it
	known := b.of[p.Timer.UID]
	if known == nil {
		known = map[string]bool{}
		b.of[p.Timer.UID] = known
		b.ended[p.Timer.ID]++
		b.w.counts.Outcomes++
	}
	if known[j.ID] = true; len(known) > 1 {
		b.w.violate("outcomes", "timer %s of %s has two outcomes: %v", p.Timer.UID, p.Timer.ID, known)
	}
}
