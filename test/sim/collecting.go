package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// collectTopic has few ids, to which clients add what one call is to deliver.
const collectTopic timer.TopicID = 19

// collecting is the workload of that topic, and its checker. It draws from a stream of its own and
// is on in half of the runs. Its rules:
//
//   - what an acknowledged add gave is delivered, in exactly one array (I1); an add with a part may be
//     repeated, and then comes twice only if the first array had ended (I18);
//   - arrays of one id are called one after the other, each until it was delivered (I3), and what was
//     added earlier is not behind what was added later (I21);
//   - the attempts of an array have the same content (I6).
type collecting struct {
	crew
	ids  int
	most int // payloads of an array

	lines  map[string]*collectLine
	names  []string
	given  map[string]*collected // by payload
	recent []*collected          // that have a part
}

// collected is what one or, if it has a part, several adds gave.
type collected struct {
	id, text, part string
	adds           []*operation
	over           map[*operation]time.Duration // when it was answered
	acked, heard   bool
	arrays         []uint64 // the numbers of those that were called with it
}

// collectLine is the checker's knowledge of one id.
type collectLine struct {
	line
	arrays []*calledArray // in the order of their first calls
}

type calledArray struct {
	seq     uint64
	version uint32
	text    string
	parts   []*collected
	heardAt time.Duration // 0: no receiver has taken it
}

func (w *World) drawCollecting() *collecting {
	c := newChance(w.cfg.Seed, 59)
	return &collecting{
		crew: crew{w: w, chance: c, on: c.IntN(2) == 0, think: c.between(20*time.Millisecond, 200*time.Millisecond)}, ids: 1 + c.IntN(4), most: 1 + c.IntN(8),
		lines: map[string]*collectLine{}, given: map[string]*collected{},
	}
}

// begin starts its clients.
func (d *collecting) begin() {
	if d.on {
		d.employ(8000, 3, d.pick)
	}
}

// pick draws an add; one in four repeats an earlier one that has a part.
func (d *collecting) pick() *operation {
	w, r := d.w, d.chance
	o := &operation{number: w.checker.nextOp(), topic: collectTopic, astray: r.IntN(8) == 0}
	o.id = fmt.Sprintf("c%d", r.IntN(d.ids))
	if r.IntN(12) == 0 {
		w.complete(o) // a read
		return o
	}
	x := &collected{id: o.id, text: fmt.Sprintf(`%s/%d`, o.id, o.number), over: map[*operation]time.Duration{}}
	if r.IntN(2) == 0 {
		x.part = fmt.Sprintf("p%d", o.number)
	}
	if len(d.recent) > 0 && r.IntN(4) == 0 {
		x = d.recent[r.IntN(len(d.recent))]
		o.id = x.id
	}
	d.given[x.text] = x
	due := r.between(-50*time.Millisecond, time.Second)
	o.write = &write{op: o.number, dueMs: epochMs + (w.now + due).Milliseconds(), payload: `"` + x.text + `"`}
	o.cmd = &timer.Command{Kind: timer.Add, Content: o.number, Merge: timer.MergeCollect}
	if r.IntN(3) == 0 {
		o.cmd.MaxWaitMs = 1 + r.Int64N(2000)
	}
	w.complete(o)
	o.cmd.Spec.Collect = &timer.Collect{Max: d.most, Part: x.part}
	return o
}

// read takes an array apart.
func (d *collecting) read(id string, payload []byte) []*collected {
	var texts []string
	if err := json.Unmarshal(payload, &texts); err != nil {
		d.w.violate("I2", "%s has %q: %v", id, payload, err)
	}
	list := make([]*collected, len(texts))
	for i, text := range texts {
		if list[i] = d.given[text]; list[i] == nil || list[i].id != id {
			d.w.violate("I2", "%s has %q, which no client added there", id, text)
		}
	}
	return list
}

func (d *collecting) called(o *operation) {
	if o.write == nil {
		return
	}
	x := d.given[o.write.payload[1:len(o.write.payload)-1]]
	x.adds = append(x.adds, o)
	if x.part != "" && len(x.adds) == 1 {
		d.recent = append(d.recent, x)
		d.recent = d.recent[max(0, len(d.recent)-6):]
	}
}

// refused records that an add never takes effect.
func (d *collecting) refused(o *operation) {
	if o.write != nil {
		x := d.given[o.write.payload[1:len(o.write.payload)-1]]
		x.adds = slices.DeleteFunc(x.adds, func(p *operation) bool { return p == o })
	}
}

func (d *collecting) answered(w *World, o *operation, r timer.Result, t *timer.Timer) {
	if o.write == nil {
		if t != nil {
			d.read(o.id, t.Payload)
		}
		return
	}
	x := d.given[o.write.payload[1:len(o.write.payload)-1]]
	if r.Code != timer.Created && r.Code != timer.Merged || t == nil || !slices.Contains(d.read(o.id, t.Payload), x) || int(t.Collected) > d.most {
		w.violate("collect", "the add of %s is answered %d with %+v", x.text, r.Code, t)
	}
	x.acked, x.over[o] = true, w.now
}

func (d *collecting) mayStart(*call, *table.Table) {}

func (d *collecting) started(c *call) {
	w, j := d.w, &c.delivery.Job
	l := d.lines[j.ID]
	if l == nil {
		l = &collectLine{}
		d.lines[j.ID] = l
		d.names = append(d.names, j.ID)
	}
	if j.Fence <= l.fence {
		w.violate("I3", "a call of %s starts under fence %d after fence %d", j.ID, j.Fence, l.fence)
	}
	if l.running.runs() {
		w.violate("I3", "node %d calls for %s while a call of node %d runs", c.node.id, j.ID, l.running.node.id)
	}
	l.line = line{j.Fence, c}
	var last *calledArray
	if n := len(l.arrays); n > 0 {
		last = l.arrays[n-1]
	}
	switch {
	case last != nil && last.seq == j.Seq:
		if last.text != string(j.Payload) || last.version != j.Version {
			w.violate("I6", "%s of number %d is called with %s after %s", j.ID, j.Seq, j.Payload, last.text)
		}
		return
	case last != nil && (j.Seq < last.seq || last.heardAt == 0):
		w.violate("I21", "%s is called as number %d after number %d, which was delivered at %s", j.ID, j.Seq, last.seq, last.heardAt)
	}
	a := &calledArray{seq: j.Seq, version: j.Version, text: string(j.Payload), parts: d.read(j.ID, j.Payload)}
	l.arrays = append(l.arrays, a)
	for i, x := range a.parts {
		if slices.Contains(a.parts[:i], x) || len(x.arrays) > 0 && !d.mayComeAgain(l, x) {
			w.violate("I18", "%s comes twice: in number %d and in numbers %d", x.text, j.Seq, x.arrays)
		}
		x.arrays = append(x.arrays, j.Seq)
		w.counts.Collected++
	}
}

// mayComeAgain reports whether an add that was repeated may have come after the array that had its
// part.
func (d *collecting) mayComeAgain(l *collectLine, x *collected) bool {
	first := l.arrays[slices.IndexFunc(l.arrays, func(a *calledArray) bool { return a.seq == x.arrays[len(x.arrays)-1] })]
	late := 0
	for _, o := range x.adds {
		if over, answered := x.over[o]; !answered || over >= first.heardAt {
			late++
		}
	}
	return x.part != "" && first.heardAt != 0 && late > 0 && len(x.adds) > len(x.arrays)
}

func (d *collecting) heard(c *call) {
	a := d.lines[c.delivery.Job.ID].arrays
	if last := a[len(a)-1]; last.seq == c.delivery.Job.Seq && last.heardAt == 0 {
		last.heardAt = d.w.now
		for _, x := range last.parts {
			x.heard = true
		}
	}
}

func (d *collecting) checkEnd(w *World) {
	for _, text := range slices.Sorted(maps.Keys(d.given)) {
		if x := d.given[text]; x.acked && !x.heard {
			w.violate("I1", "%s was acknowledged and never delivered; it is in the arrays %d", x.text, x.arrays)
		}
	}
	const never = 1 << 62 * time.Nanosecond
	for _, id := range d.names {
		var latest time.Duration // the latest beginning of those so far
		var of *collected
		for _, a := range d.lines[id].arrays {
			for _, x := range a.parts {
				over, began := time.Duration(0), never
				for _, o := range x.adds {
					end, answered := x.over[o]
					if !answered {
						end = never
					}
					over, began = max(over, end), min(began, o.began)
				}
				if over < latest {
					w.violate("I21", "%s was added before %s, and comes behind it", x.text, of.text)
				}
				if began > latest && len(x.adds) > 0 {
					latest, of = began, x
				}
			}
		}
		if now := w.leader(w.holder(collectTopic, id)).host.Table(w.holder(collectTopic, id)).Read(collectTopic, id); now != nil && !now.State.Over() {
			w.violate("I14", "timer %s is in state %d, expected an ended timer", id, now.State)
		}
	}
}
