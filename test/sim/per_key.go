package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
)

// perKeyTopic limits its keys, or has them take turns. It is used in half of the runs.
const perKeyTopic timer.TopicID = 18

// perKey is the workload of that topic, and its checker. Its rules, whichever nodes led meanwhile:
//
//   - no more calls of a key run at once than it may have;
//   - the starts of a key, in any stretch of time, are no more than its rate and one burst;
//   - both hold for all timers without a key together, which lie in all shards: unless leaders are
//     or were blind (see visibility.go), and with one more burst for each new leader;
//   - when nothing is wrong, the timers of other keys, and those without one, start in time,
//     however many a key has due: where keys take turns.
type perKey struct {
	featureChecker
	crew   // it thinks long: the keys' rates allow more, or drain would wait for what the limits hold
	policy timer.PerKey
	starts map[string][]*call // of each key, in order

	// keyless adds timers without a key. It draws from a stream of its own.
	keyless *client
	each    time.Duration // between two crowds of them
}

const (
	keysOfPerKey = 3
	// herdKey has a herd of timers due at once, at the end.
	herdKey  = "herd"
	herdSize = 200
	herdCall = 20 * time.Millisecond
	// So many timers without a key are due at once, in all shards: more than their limit lets go.
	crowdOfKeyless = 12
)

func (w *World) drawPerKey() *perKey {
	c := newChance(w.cfg.Seed, 59)
	d := &perKey{
		featureChecker: newFeatureChecker(),
		crew:           crew{w: w, chance: c, on: c.IntN(2) == 0, think: c.between(100*time.Millisecond, 500*time.Millisecond)}, starts: map[string][]*call{},
	}
	own := newChance(w.cfg.Seed, 79)
	d.keyless = &client{w: w, number: 8001, own: &own}
	d.each = own.between(4*time.Second, 10*time.Second)
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
	d.employ(8000, 1, d.pick)
	d.clients[0].think = d.think
	if !d.policy.Fair {
		d.w.after(d.keyless.own.between(0, d.each), d.crowdKeyless)
	}
}

// crowdKeyless makes timers without a key due at once, again and again.
func (d *perKey) crowdKeyless() {
	if !d.w.calm {
		d.addKeyless(d.w.now + d.keyless.own.between(500*time.Millisecond, 2*time.Second))
		d.w.after(d.each, d.crowdKeyless)
	}
}

func (d *perKey) addKeyless(due time.Duration) {
	for range crowdOfKeyless {
		d.start(d.keyless, "free", due)
	}
}

// start adds a timer, and does not wait for the answer.
func (d *perKey) start(c *client, prefix string, due time.Duration) {
	o := d.add(prefix, due)
	o.then = func(bool) {}
	c.start(o)
}

// done ends the client. Once the cluster is well again, timers without a key come due, and, where
// keys take turns, a herd of one key just before them, and timers of other keys in its shard.
func (d *perKey) done() {
	d.crew.done()
	if !d.on || len(d.clients) == 0 {
		return
	}
	w := d.w
	at := w.healed + w.believed + healLimit + 500*time.Millisecond
	d.addKeyless(at + 500*time.Millisecond)
	if !d.policy.Fair {
		return
	}
	for range herdSize {
		d.start(d.clients[0], "{"+herdKey+"}", at)
	}
	home := w.place(perKeyTopic, "{"+herdKey+"}")
	for i, found := 0, 0; found < keysOfPerKey; i++ {
		if prefix := fmt.Sprintf("{other%d}", i); w.place(perKeyTopic, prefix) == home {
			found++
			d.start(d.clients[0], prefix, at+500*time.Millisecond)
		}
	}
}

// pick draws an add; some are of one key at one instant.
func (d *perKey) pick() *operation {
	prefix := fmt.Sprintf("{k%d}", d.chance.IntN(keysOfPerKey))
	o := d.add(prefix, d.w.now+d.chance.between(-50*time.Millisecond, 2*time.Second).Truncate(500*time.Millisecond))
	priority, weight := uint8(d.chance.IntN(3)), uint8(d.chance.IntN(3))
	o.cmd.Spec.Priority, o.cmd.Spec.Weight = priority, weight
	return o
}

func (d *perKey) add(prefix string, due time.Duration) *operation {
	w := d.w
	o := &operation{number: w.checker.nextOp(), topic: perKeyTopic}
	o.id = fmt.Sprint(prefix, o.number)
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

// bracedKey is the key of an id; "" is that of all ids without one.
func bracedKey(id string) string {
	if key, keyed := timer.KeyOf(id); keyed {
		return key
	}
	return ""
}

func (d *perKey) mayStart(c *call, _ *table.Table) {
	w, j := d.w, &c.delivery.Job
	key := bracedKey(j.ID)
	if !d.policy.Fair || key != "" && !strings.HasPrefix(key, "other") || j.Attempts > 1 || !w.mended(j.DueMs) {
		return
	}
	w.counts.InTurn++
	if late := msOf(c.letGoMs - j.DueMs); late > punctual {
		w.violate("per key", "node %d starts %s %s late, although the cluster is healthy: its key waits for another", c.node.id, j.ID, late)
	}
}

func (d *perKey) started(c *call) {
	d.featureChecker.started(c)
	if c.delivery.Topic.Policy.PerKey == nil {
		return
	}
	key := bracedKey(c.delivery.Job.ID)
	list := append(d.starts[key], c)
	d.starts[key] = list
	if key == "" {
		d.w.counts.Keyless++
	}
	if most := d.policy.Concurrency; most > 0 {
		list = slices.DeleteFunc(list, func(o *call) bool { return !o.runs() })
		if d.starts[key] = list; len(list) > most && !d.blind(key, list, 0) {
			text := ""
			for _, o := range list {
				text += fmt.Sprintf(" %s by node %d", o.delivery.Job.ID, o.node.id)
			}
			d.w.violate("per key", "%d calls of key %q run at once, the limit is %d:%s", len(list), key, most, text)
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
		most := float64(rate.Burst) + rate.PerSecond*1.01*(d.w.now-first).Seconds() + 0.01
		if float64(n) > most && key == "" {
			most = max(most+float64(rate.Burst*d.reignsSince(first)+d.keptBy(first)), d.inTurns(first))
		}
		if float64(n) > most && !d.blind(key, list[i:], 2*beatEvery) {
			d.w.violate("per key", "%d starts of key %q within %s, the limit is %.2f", n, key, d.w.now-first, most)
		}
	}
	d.w.counts.PerKey++
}

// blind reports whether a leader may not have known of leases of timers without a key, or of their
// rate: tokens are from its view up to two heartbeats before. The leases of a key are all in one
// shard.
func (d *perKey) blind(key string, list []*call, before time.Duration) bool {
	until := d.w.checker.limits.blindUntil + before
	return key == "" && slices.ContainsFunc(list, func(o *call) bool { return o.permit.asked < until })
}

// inTurns is how many timers without a key may start since a moment where nodes take turns of the
// rate: one of each node more; while their turns overlap, what each of them may start.
func (d *perKey) inTurns(first time.Duration) float64 {
	nodes, rate := min(len(d.w.nodes), d.w.shards()), d.policy.Rate
	if rate.Burst >= nodes {
		return 0
	}
	each := 1.0 / float64(nodes)
	if d.reignsSince(first) > 0 || first < d.w.checker.limits.lateUntil {
		each = 1.0 / float64(rate.Burst)
	}
	// A node looks whose turn it is with each heartbeat.
	return float64(nodes) * (1 + rate.PerSecond*1.01*each*(d.w.now-first+beatEvery).Seconds())
}

// keptBy is how many timers without a key may start since a moment by leases that were granted ahead
// of it: a node that stood still may have one for each of its shards, and a full bucket too.
func (d *perKey) keptBy(first time.Duration) int {
	if first < d.w.checker.limits.lateUntil {
		return d.w.shards()
	}
	return 0
}

// reignsSince counts the leaderships of shards of timers that began since a moment, or so shortly
// before that nodes may not have known of them.
func (d *perKey) reignsSince(at time.Duration) (n int) {
	for p, began := range d.w.checker.ranked.reigns {
		n += int(b2u(p.group != shard.Meta && began >= at-partFor))
	}
	return n
}

func (d *perKey) checkEnd(w *World) { d.ends(w, noneDead(w)) }
