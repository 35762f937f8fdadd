package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// perKeyTopic limits its keys, or has them take turns. It is used in half of the runs.
const perKeyTopic timer.TopicID = 18

// perKey is the workload of that topic, and its checker. Its rules, whichever nodes led meanwhile:
//
//   - no more calls of a key run at once than it may have;
//   - the starts of a key, in any stretch of time, are no more than its rate and one burst;
//   - when nothing is wrong, the timers of other keys start in time, however many a key has due.
type perKey struct {
	featureChecker
	w      *World
	chance chance
	on     bool
	// between two adds: fewer than the keys' rates allow, or drain would wait for what the limits hold
	think  time.Duration
	policy timer.PerKey
	starts map[string][]*call // of each key, in order

	clients []*client
}

const (
	keysOfPerKey = 3
	// herdKey has a herd of timers due at once, at the end.
	herdKey  = "herd"
	herdSize = 200
	herdCall = 20 * time.Millisecond
)

func (w *World) drawPerKey() *perKey {
	c := newChance(w.cfg.Seed, 59)
	d := &perKey{
		featureChecker: featureChecker{ids: map[idKey]*featureID{}, keys: map[string]*call{}},
		w:              w, chance: c, on: c.IntN(2) == 0, think: c.between(100*time.Millisecond, 500*time.Millisecond), starts: map[string][]*call{},
	}
	switch c.IntN(4) {
	case 0:
		d.policy.Concurrency = 1 + c.IntN(3)
	case 1:
		d.policy.Rate = timer.Rate{PerSecond: float64(5 + c.IntN(8)), Burst: 1 + c.IntN(4)}
	default:
		d.policy.Fair = true
	}
	return d
}

// shape sets the topic's policy.
func (d *perKey) shape(id timer.TopicID, p *timer.Policy) {
	if id == perKeyTopic && d.on {
		if p.PerKey = &d.policy; d.policy.Fair {
			p.DestinationConcurrency = 1
		}
	}
}

// begin starts its clients.
func (d *perKey) begin() {
	if !d.on {
		return
	}
	c := &client{w: d.w, number: 8000, think: d.think, own: &d.chance, draw: d.pick}
	d.clients = append(d.clients, c)
	d.w.after(d.chance.between(0, d.think), c.act)
}

// done ends the client. Where keys take turns, a herd of one key comes due once the cluster is well
// again, and timers of other keys of its shard with it.
func (d *perKey) done() {
	for _, c := range d.clients {
		c.done = true
	}
	if !d.on || !d.policy.Fair || len(d.clients) == 0 {
		return
	}
	w := d.w
	at := w.healed + w.believed + healLimit + 500*time.Millisecond
	add := func(key string, due time.Duration) {
		o := d.add(key, due)
		o.then = func(bool) {}
		d.clients[0].start(o)
	}
	for range herdSize {
		add(herdKey, at)
	}
	shard := w.place(perKeyTopic, "{"+herdKey+"}")
	for i, found := 0, 0; found < keysOfPerKey; i++ {
		if key := fmt.Sprint("other", i); w.place(perKeyTopic, "{"+key+"}") == shard {
			found++
			add(key, at+500*time.Millisecond)
		}
	}
}

// pick draws an add; some are of one key at one instant.
func (d *perKey) pick() *operation {
	key := fmt.Sprint("k", d.chance.IntN(keysOfPerKey))
	o := d.add(key, d.w.now+d.chance.between(-50*time.Millisecond, 2*time.Second).Truncate(500*time.Millisecond))
	priority, weight := uint8(d.chance.IntN(3)), uint8(d.chance.IntN(3))
	o.cmd.Spec.Priority, o.cmd.Spec.Weight = priority, weight
	return o
}

func (d *perKey) add(key string, due time.Duration) *operation {
	w := d.w
	o := &operation{number: w.checker.nextOp(), topic: perKeyTopic}
	o.id = fmt.Sprintf("{%s}%d", key, o.number)
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + due.Milliseconds()}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	return o
}

// answers draws the receiver's answer to a call.
func (d *perKey) answers() (took time.Duration, status int) {
	if d.w.calm {
		return herdCall, 200
	}
	took, status = d.chance.between(time.Millisecond, 500*time.Millisecond), 200
	if d.chance.IntN(8) == 0 {
		status = 503
	}
	return took, status
}

func (d *perKey) mayStart(c *call, _ *table.Table) {
	w, j := d.w, &c.delivery.Job
	key, _ := timer.KeyOf(j.ID)
	if late := msOf(c.letGoMs - j.DueMs); strings.HasPrefix(key, "other") && j.Attempts == 1 && w.mended(j.DueMs) {
		w.counts.InTurn++
		if late > punctual {
			w.violate("per key", "node %d starts %s %s late, although the cluster is healthy: its key waits for another", c.node.id, j.ID, late)
		}
	}
}

func (d *perKey) started(c *call) {
	d.featureChecker.started(c)
	if c.delivery.Topic.Policy.PerKey == nil {
		return
	}
	key, _ := timer.KeyOf(c.delivery.Job.ID)
	list := append(d.starts[key], c)
	d.starts[key] = list
	if most := d.policy.Concurrency; most > 0 {
		list = slices.DeleteFunc(list, func(o *call) bool { return !o.runs() })
		if d.starts[key] = list; len(list) > most {
			text := ""
			for _, o := range list {
				text += fmt.Sprintf(" %s by node %d", o.delivery.Job.ID, o.node.id)
			}
			d.w.violate("per key", "%d calls of a key run at once, the limit is %d:%s", len(list), most, text)
		}
	}
	rate := d.policy.Rate
	if rate.PerSecond == 0 {
		return
	}
	first := d.w.now
	for i := len(list) - 1; i >= 0; i-- {
		first = min(first, list[i].permit.asked) // its token was taken then, or later
		n := len(list) - i
		// Clocks run at rates that differ a little.
		if most := float64(rate.Burst) + rate.PerSecond*1.01*(d.w.now-first).Seconds() + 0.01; float64(n) > most {
			d.w.violate("per key", "%d starts of key %s within %s, the limit is %.2f", n, key, d.w.now-first, most)
		}
	}
	d.w.counts.PerKey++
}

func (d *perKey) checkEnd(w *World) { d.ends(w, noneDead(w)) }
