package sim

import (
	"fmt"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// contents is how many payloads contentTopic has at a time; each set lasts contentFor.
const (
	contents   = 4
	contentFor = 8 * time.Second
)

// pickContent draws an add without an id, whose content identifies the timer. Odd contents name an
// instant, even ones a delay.
func (v *featureClients) pickContent() *operation {
	w, r := v.w, v.chance
	generation, which := int64(w.now/contentFor), r.IntN(contents)
	o := &operation{number: w.checker.nextOp(), topic: contentTopic, astray: r.IntN(5) == 0}
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%d.%d"`, generation, which)}
	name := w.topics[contentTopic-1]
	o.id = timer.ContentID(name, []byte(o.write.payload), "http://"+name, "")
	if r.IntN(15) == 0 {
		o.write, o.cmd = nil, &timer.Command{Kind: timer.Cancel}
		w.complete(o)
		return o
	}
	delay := [...]int64{0, 200, 1200}[r.IntN(3)]
	o.cmd = &timer.Command{Kind: timer.Add, Merge: v.merge, Content: uint64(1 + delay)}
	o.write.dueMs = epochMs + w.now.Milliseconds() + delay
	o.write.relative = which%2 == 0
	if !o.write.relative {
		o.cmd.Content = uint64(5000 + generation)
		o.write.dueMs = epochMs + generation*contentFor.Milliseconds() + 4000
	}
	w.complete(o)
	o.cmd.Absolute = !o.write.relative
	return o
}

// contentChecker checks deduplication by content. While a timer is pending an equal add makes no
// second one. No two calls of one content overlap, and there are no more timers than adds that made
// one. When the timer has ended the next add makes another: an add is never answered with a timer
// that is over, unless the add names an instant.
type contentChecker struct {
	ids   map[string]*contentID
	names []string // payloads, in order of their first add
}

// contentID is the checker's knowledge of one content.
type contentID struct {
	payload string
	dues    map[int64]bool
	cancels int
	unknown int // adds with an unknown outcome
	made    int // timers that adds have made or may have made as successors
	lives   map[uint64]*contentLife
	last    uint64        // number of the timer called last
	owed    time.Duration // a delivery must come after this; 0: none is expected
	paid    time.Duration // time of the last delivery
	fence   uint64
	running *call
}

// contentLife is one timer.
type contentLife struct {
	delivered bool
	over      bool // it is over, or may be because its end was requested
	attempts  map[attemptKey]bool
}

func (n *contentID) life(seq uint64) *contentLife {
	l := n.lives[seq]
	if l == nil {
		l = &contentLife{attempts: map[attemptKey]bool{}}
		n.lives[seq] = l
	}
	return l
}

func (b *contentChecker) called(o *operation) {
	n := b.ids[o.id]
	if n == nil {
		n = &contentID{dues: map[int64]bool{}, lives: map[uint64]*contentLife{}}
		b.ids[o.id] = n
		b.names = append(b.names, o.id)
	}
	if o.write == nil {
		n.cancels++
		for _, l := range n.lives {
			l.over = true
		}
		return
	}
	n.payload, n.dues[o.write.dueMs] = o.write.payload, true
	n.unknown++
}

func (b *contentChecker) refused(o *operation) {
	if o.write != nil {
		b.ids[o.id].unknown--
	}
}

func (b *contentChecker) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	n := b.ids[o.id]
	if t != nil && (t.ID != o.id || string(t.Payload) != n.payload && n.payload != "" || !n.dues[t.DueMs]) {
		w.violate("I6", "operation %d on %s is answered with timer %s, payload %s, due %d, which no client wrote", o.number, o.id, t.ID, t.Payload, t.DueMs)
	}
	if o.write == nil {
		return
	}
	n.unknown--
	switch r.Code {
	case timer.Created:
		for seq, l := range n.lives {
			if seq < t.Seq && !l.delivered && !l.over && n.cancels == 0 {
				w.violate("content", "operation %d makes timer number %d of content %s, but number %d has not ended", o.number, t.Seq, n.payload, seq)
			}
		}
		n.life(t.Seq)
		n.made++
		n.owed = max(n.owed, o.began)
	case timer.Merged:
		n.made++ // perhaps as the successor of a running timer
		n.owed = max(n.owed, o.began)
		if t.State.Over() {
			w.violate("content", "operation %d is merged with number %d of content %s, which has ended", o.number, t.Seq, n.payload)
		}
	case timer.Same:
		w.counts.Same++
		if t.State.Over() && o.write.relative {
			w.violate("content", "operation %d is answered with number %d of content %s, which has ended", o.number, t.Seq, n.payload)
		}
	}
}

func (b *contentChecker) mayStart(*call, *table.Table) {}

func (b *contentChecker) started(c *call) {
	w, j := c.node.w, &c.delivery.Job
	n := b.ids[j.ID]
	if n == nil || n.payload != string(j.Payload) || !n.dues[j.DueMs] {
		w.violate("I2", "node %d delivers %s of %s due at %d, which no client wrote", c.node.id, j.Payload, j.ID, j.DueMs)
	}
	l := n.life(j.Seq)
	switch key := (attemptKey{j.Version, j.Attempts}); {
	case l.attempts[key]:
		w.violate("I3", "attempt %d of %s (number %d, version %d) starts twice", j.Attempts, n.payload, j.Seq, j.Version)
	case j.Fence <= n.fence:
		w.violate("I3", "a call of %s starts under fence %d after fence %d", n.payload, j.Fence, n.fence)
	case n.running.runs():
		w.violate("content", "node %d calls for %s while a call of node %d runs", c.node.id, n.payload, n.running.node.id)
	case j.Seq < n.last:
		w.violate("content", "node %d calls for number %d of content %s after number %d", c.node.id, j.Seq, n.payload, n.last)
	case len(n.lives) > n.made+n.unknown:
		w.violate("content", "there are %d timers of content %s, but at most %d adds made one", len(n.lives), n.payload, n.made+n.unknown)
	default:
		l.attempts[key] = true
	}
	n.fence, n.last, n.running = j.Fence, j.Seq, c
}

func (b *contentChecker) heard(c *call) {
	n := b.ids[c.delivery.Job.ID]
	n.life(c.delivery.Job.Seq).delivered = true
	n.paid = c.node.w.now
}

func (b *contentChecker) checkEnd(w *World) {
	for _, id := range b.names {
		n, at := b.ids[id], w.holder(contentTopic, id)
		if n.cancels > 0 {
			continue
		}
		if n.owed > 0 && n.paid < n.owed {
			w.violate("I1", "an add of content %s was acknowledged, but no delivery followed", n.payload)
		}
		tbl := w.leader(at).host.Table(at)
		if now := tbl.Read(contentTopic, id); now != nil && now.State != timer.Done {
			w.violate("I1", "the timer of content %s is in state %d, expected done", n.payload, now.State)
		}
	}
}
