package api

import (
	"fmt"
	"sync"

	"carillon/timer"
)

// maxSkips is how many dead letters an answer names that were not changed.
const maxSkips = 100

// skipList is why some dead letters were not changed. Several shards may add to it at once.
type skipList struct {
	topic  *timer.Topic
	shards int

	mu   sync.Mutex
	list []skip
}

type skip struct {
	id, uid string // at least one of them
	why     timer.Code
}

func (l *skipList) add(m *timer.Ref, why timer.Code) {
	l.append(skip{m.ID, uidOf(l.topic, l.shards, m), why})
}

// addName adds one that was asked for by its "id" or "uid".
func (l *skipList) addName(field, name string, why timer.Code) {
	if field == "id" {
		l.append(skip{id: name, why: why})
		return
	}
	l.append(skip{uid: name, why: why})
}

func (l *skipList) append(s skip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) < maxSkips {
		l.list = append(l.list, s)
	}
}

// write adds the list to an answer, unless it is empty or there is none.
func (l *skipList) write(o *object) {
	if l == nil || len(l.list) == 0 {
		return
	}
	o.name("skips")
	list := array{b: o.b}
	for _, s := range l.list {
		list.next()
		one := object{b: list.b}
		if s.id != "" {
			one.str("id", s.id)
		}
		if s.uid != "" {
			one.str("uid", s.uid)
		}
		code, detail := whySkipped(s.why)
		one.str("code", code)
		one.str("detail", detail)
		list.b = one.end()
	}
	o.b = list.end()
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

func uidOf(topic *timer.Topic, shards int, m *timer.Ref) string {
	return string(timer.AppendUID(nil, timer.ShardOf(topic, m.ID, shards), m.Seq, m.Tag))
}
