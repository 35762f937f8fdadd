package sim

import (
	"fmt"
	"time"

	"carillon/shard/table"
	"carillon/timer"
	"carillon/timer/recurrence"
)

// windowTopic has a window that opens or shuts during the run. In the second phase it has none, so
// that all its timers end. In the other half of the runs its timers are paused: see pausing.
const windowTopic timer.TopicID = 16

// windowed is the workload of that topic, and its checker: no attempt starts while the window is
// shut by the clock of the process that starts it.
type windowed struct {
	featureChecker
	crew
	window *timer.Window
	hours  *recurrence.Hours
	over   bool // the topic is about to lose its window, or has lost it
}

// windows are those to draw from. The epoch is at 8:00 in UTC.
var windows = [...]timer.Window{
	{From: "08:01"},
	{To: "08:01"},
	{From: "08:01", To: "08:02"},
	{Zone: "Asia/Tokyo", Days: "fri", From: "17:01", To: "17:02"},
	{From: "08:01", To: "08:00"}, // it is shut for a minute
	{Zone: "Asia/Kolkata", From: "13:31", Except: []string{"2027-01-14"}},
}

func (w *World) drawWindowed() *windowed {
	c := newChance(w.cfg.Seed, 53)
	d := &windowed{
		featureChecker: newFeatureChecker(),
		crew:           crew{w: w, chance: c, on: c.IntN(2) == 0, think: c.between(50*time.Millisecond, 500*time.Millisecond)},
		window:         &windows[c.IntN(len(windows))],
	}
	zone, err := recurrence.Release.Load(d.window.Zone)
	if err == nil {
		d.hours, err = recurrence.NewHours(d.window, zone)
	}
	if err != nil {
		panic(err)
	}
	return d
}

// shape sets the topic's policy.
func (d *windowed) shape(id timer.TopicID, p *timer.Policy) {
	if id == windowTopic && d.on {
		p.Window = d.window
	}
}

// begin starts its client, and has many timers due around each moment at which the window may shut.
func (d *windowed) begin() {
	if p := d.w.pausing; p != nil {
		p.begin()
	}
	if d.on {
		d.employ(7000, 1, d.pick)
		for edge := d.w.now.Truncate(time.Minute) + time.Minute; edge < 4*time.Minute; edge += time.Minute {
			d.w.after(edge-2*time.Second-d.w.now, func() { d.edge(d.clients[0], edge) })
		}
	}
}

// done ends the client and takes the window away.
func (d *windowed) done() {
	d.crew.done()
	if !d.on {
		d.w.pausing.done()
		return
	}
	d.over = true
	p := d.w.policies[windowTopic]
	p.Window = nil
	d.w.insist(putTopic(d.w.topics[windowTopic-1], &p))
}

// edge adds timers that are due right after a moment, so that their leases are requested before it.
func (d *windowed) edge(c *client, at time.Duration) {
	for range 30 {
		if !d.over {
			o := d.add(at + d.chance.between(0, 30*time.Millisecond))
			o.then = func(bool) {}
			c.start(o)
		}
	}
}

// pick draws an add.
func (d *windowed) pick() *operation {
	return d.add(d.w.now + d.chance.between(-50*time.Millisecond, 2*time.Second))
}

func (d *windowed) add(due time.Duration) *operation {
	w := d.w
	o := &operation{number: w.checker.nextOp(), topic: windowTopic}
	o.id = fmt.Sprintf("w%d", o.number)
	o.write = &write{op: o.number, payload: fmt.Sprintf(`"%s"`, o.id), dueMs: epochMs + due.Milliseconds()}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number}
	w.complete(o)
	return o
}

func (d *windowed) mayStart(c *call, _ *table.Table) {
	if d.over || c.delivery.Topic.Policy.Window == nil {
		return
	}
	if open, untilMs := d.hours.Open(c.letGoMs); !open {
		d.w.violate("window", "node %d starts %s at %d, but the topic's window is shut until %d", c.node.id, c.delivery.Job.ID, c.letGoMs, untilMs)
	}
	d.w.counts.Windowed++
}

func (d *windowed) checkEnd(w *World) { d.ends(w, noneDead(w)) }
