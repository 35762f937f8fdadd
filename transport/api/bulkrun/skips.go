package bulkrun

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
	mu   sync.Mutex
	list []skip
}

type skip struct {
	id, uid string // at least one of them
	why     timer.Code
}

// Add adds one that was met.
func (s *Skips) Add(m *timer.Ref, why timer.Code) {
	s.append(skip{m.ID, UIDOf(m), why})
}

// AddName adds one that was asked for by its "id" or "uid".
func (s *Skips) AddName(field, name string, why timer.Code) {
	if field == "id" {
		s.append(skip{id: name, why: why})
		return
	}
	s.append(skip{uid: name, why: why})
}

func (s *Skips) append(one skip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) < maxSkips {
		s.list = append(s.list, one)
	}
}

// write adds the list to an answer, unless it is empty or there is none.
func (s *Skips) write(o *web.Object) {
	if s == nil || len(s.list) == 0 {
		return
	}
	o.Objects("skips", len(s.list), func(o *web.Object, i int) {
		one := &s.list[i]
		o.OptText("id", one.id)
		o.OptText("uid", one.uid)
		code, detail := whySkipped(one.why)
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
func UIDOf(m *timer.Ref) string { return string(timer.AppendUID(nil, m.Origin, m.Seq, m.Tag)) }
