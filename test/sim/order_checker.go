package sim

import (
	"strings"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// orderChecker checks the order of timers with one key (I21). A timer must not begin while another
// of its key that has begun is not over. Nor may it begin while one waits that is due earlier and
// existed before the lease was requested.
type orderChecker struct {
	lines map[string][]*inLine
	pull  bool // the pulled topic is serial
}

// inLine is a timer whose creation was acknowledged.
type inLine struct {
	topic timer.TopicID
	id    string
	dueMs int64
	seq   uint64
	at    time.Duration // time of the acknowledgement
}

// lineOf names the key queue of a timer; "": its topic has none.
func lineOf(topic timer.TopicID, id string) string {
	switch topic {
	case lineTopic:
		return "line"
	case serialTopic:
		key, _, _ := strings.Cut(id, "}")
		return "serial" + key
	}
	return ""
}

// line is lineOf for calls and pulls.
func (b *orderChecker) line(topic timer.TopicID, id string) string {
	if topic == pullTopic && b.pull {
		key, _, _ := strings.Cut(id, "}")
		return "pull" + key
	}
	return lineOf(topic, id)
}

// answered records a new timer.
func (b *orderChecker) answered(o *operation, r timer.Result, t *timer.Timer) {
	if key := b.line(o.topic, o.id); key != "" && r.Code == timer.Created {
		b.lines[key] = append(b.lines[key], &inLine{o.topic, o.id, t.DueMs, t.Seq, o.client.w.now})
	}
}

// mayStart checks a call that begins.
func (b *orderChecker) mayStart(c *call, tbl *table.Table) {
	n, j := c.node, &c.delivery
	if key := b.line(j.Job.Topic, j.Job.ID); key != "" {
		// The lease was requested after its permit was granted.
		b.check(n, tbl, key, inLine{j.Job.Topic, j.Job.ID, j.Job.DueMs, j.Job.Seq, c.permit.asked}, j.Job.Attempts)
	}
}

// handed checks a lease of a consumer.
func (b *orderChecker) handed(n *node, t *timer.PulledTimer) {
	if key := b.line(pullTopic, t.Timer.ID); key != "" {
		tbl := n.host.Table(t.Shard)
		const took = 10 * time.Second // bound of an entry's commit time
		b.check(n, tbl, key, inLine{pullTopic, t.Timer.ID, t.Timer.DueMs, t.Timer.Seq, n.w.now - took}, t.Timer.Attempts)
	}
}

// check compares a beginning timer, whose lease was requested at x.at, with the others of its key.
func (b *orderChecker) check(n *node, tbl *table.Table, key string, x inLine, attempts int) {
	w := n.w
	keep := b.lines[key][:0]
	for _, o := range b.lines[key] {
		h, ok := tbl.Lookup(o.topic, o.id)
		d := tbl.Due(h)
		if !ok || d.Seq != o.seq || d.State != timer.Scheduled && d.State != timer.Leased {
			continue
		}
		keep = append(keep, o)
		switch {
		case o.seq == x.seq:
		case d.State == timer.Leased:
			w.violate("I21", "node %d begins %s while %s of the same key is leased (fence %d)", n.id, x.id, o.id, d.Fence)
		case d.Attempts > 0:
			w.violate("I21", "node %d begins %s (attempt %d) while %s of the same key has been attempted %d times and has not ended", n.id, x.id, attempts, o.id, d.Attempts)
		case attempts == 1 && o.at < x.at && (o.dueMs < x.dueMs || o.dueMs == x.dueMs && o.seq < x.seq):
			w.violate("I21", "node %d begins %s (due %d, number %d) before %s of the same key (due %d, number %d), which existed %s before the lease was requested",
				n.id, x.id, x.dueMs, x.seq, o.id, o.dueMs, o.seq, x.at-o.at)
		}
	}
	b.lines[key] = keep
}
