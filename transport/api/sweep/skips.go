package sweep

import (
	"fmt"
	"sync"

	"carillon/timer"
	"carillon/transport/api/web"
)

// maxSkips is how many dead letters an answer names that were not changed.
const maxSkips = 100

// Skips is why some dead letters were not changed. Several shards may add to it at once.
type Skips struct {
	Topic  *timer.Topic
	Shards int

	mu   sync.Mutex
	list []skip
}

type skip struct {
	id, uid string // at least one of them
	why     timer.Code
}

// Add adds one that was met.
func (l *Skips) Add(m *timer.Ref, why timer.Code) {
	l.append(skip{m.ID, UIDOf(l.Topic, l.Shards, m), why})
}

// AddName adds one that was asked for by its "id" or "uid".
func (l *Skips) AddName(field, name string, why timer.Code) {
	if field == "id" {
		l.append(skip{id: name, why: why})
		return
	}
	l.append(skip{uid: name, why: why})
}

func (l *Skips) append(s skip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) < maxSkips {
		l.list = append(l.list, s)
	}
}

// write adds the list to an answer, unless it is empty or there is none.
func (l *Skips) write(o *web.Object) {
	if l == nil || len(l.list) == 0 {
		return
	}
	o.Objects("skips", len(l.list), func(o *web.Object, i int) {
		s := &l.list[i]
		o.OptText("id", s.id)
		o.OptText("uid", s.uid)
		code, detail := whySkipped(s.why)
		o.Text("code", code)
		o.Text("detail", detail)
	})
}

func whySkipped(why timer.Code) (code, detail string) {
	switch why {
	case timer.InUse:
		return "in_use", "another timer has this id by now"
	case timer.TooMany:
		return "busy", fmt.Sprintf("%d timers of this id have not ended", timer.MaxLiveOfID)
	case timer.NoCallback:
		return "no_callback", "neither it nor its topic has a callback URL"
	}
	return "not_found", "there is no such dead letter"
}

// UIDOf is a timer's uid.
func UIDOf(topic *timer.Topic, shards int, m *timer.Ref) string {
	origin := m.Origin
	if origin == 0 {
		origin = timer.ShardOf(topic, m.ID, shards)
	}
	return string(timer.AppendUID(nil, origin, m.Seq, m.Tag))
}
