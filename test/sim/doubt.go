package sim

import (
	"carillon/timer"
)

// doubt sends requests when two nodes both believe to lead a shard. Random clients would seldom ask
// within that half second. One client changes a timer at the newer leader; when that is answered,
// another reads it at the older one (I19).
func (w *World) doubt() {
	for id := timer.ShardID(1); int(id) <= w.shards(); id++ {
		older, newer := w.rivals(id)
		if older == nil || w.chance.IntN(2) == 0 {
			continue
		}
		c := &client{w: w, number: len(w.clients) + w.chance.IntN(100)}
		o := w.changeIn(id)
		o.to = newer
		read := &operation{topic: o.topic, id: o.id, shard: o.shard, to: older, then: func(bool) {}}
		o.then = func(ok bool) {
			if ok && older.host != nil && older.host.Leads(id) {
				read.number = w.checker.nextOp()
				c.start(read)
			}
		}
		c.start(o)
	}
}

// rivals are two running nodes that both believe to lead a shard; nil: there are none.
func (w *World) rivals(id timer.ShardID) (older, newer *node) {
	for _, n := range w.nodes {
		if n.host == nil || n.paused || int(id) > n.host.Shards() || !n.host.Leads(id) {
			continue
		}
		if older != nil && newer == nil {
			newer = n
		}
		if older == nil {
			older = n
		}
	}
	if newer == nil {
		return nil, nil
	}
	if older.host.Progress(id).Term > newer.host.Progress(id).Term {
		older, newer = newer, older
	}
	return older, newer
}

// changeIn is a change of a timer in a shard, or an add of one.
func (w *World) changeIn(id timer.ShardID) *operation {
	o := &operation{number: w.checker.nextOp(), topic: 1}
	const soon = clientTimeout / 2
	for i := len(w.checker.recent) - 1; i >= 0; i-- {
		known := w.checker.recent[i]
		if w.holder(known.topic, known.id) == id {
			o.topic, o.id, o.shard = known.topic, known.id, w.place(known.topic, known.id)
			w.fill(o, timer.Put, soon)
			return o
		}
	}
	o.id = w.nameIn(w.topics[0], id, "doubt")
	o.shard = w.place(o.topic, o.id)
	w.checker.remember(o.id, o.topic)
	w.fill(o, timer.Put, soon)
	return o
}
