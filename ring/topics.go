package ring

import (
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"carillon/timer"
)

// ErrTurn refuses to change a topic's delivery but as its shards were asked last; see
// docs/adr/0030.
var ErrTurn = errors.New("the topic's delivery can change only to what its shards have agreed to")

// Topics is the part of State that holds the topics, and the copy of them that this node reads.
// Topic values are immutable: a change publishes a new one.
type Topics struct {
	mu sync.RWMutex
	topicSet

	flat atomic.Pointer[flatList] // see Limited

	current atomic.Bool                // see Current
	changed func(ids ...timer.TopicID) // called after each change, without ids if any may have changed; must be quick
}

// NewTopics is empty; changed may be nil.
func NewTopics(changed func(ids ...timer.TopicID)) *Topics {
	if changed == nil {
		changed = func(...timer.TopicID) {}
	}
	return &Topics{topicSet: newTopicSet(0, nil), changed: changed}
}

// Topic finds a topic by its id; it implements scheduler.Topics.
func (t *Topics) Topic(id timer.TopicID) (*timer.Topic, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byID[id]
	return v, ok
}

func (t *Topics) Named(name string) (*timer.Topic, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byName[name]
	return v, ok
}

// Given reports whether there is or was a topic of the id, as this node knows.
func (t *Topics) Given(id timer.TopicID) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return id <= t.lastID
}

// Current reports whether this copy has all that was decided before this process began.
func (t *Topics) Current() bool { return t.current.Load() }

// SetCurrent records that it has.
func (t *Topics) SetCurrent() {
	if !t.current.Swap(true) {
		t.changed()
	}
}

// Limited are the topics of which so many leases at once may be taken in the whole cluster, by id,
// and the limits of timers without a key, see timer.Topic.Keyless. The list is not to be changed.
// Cost: O(1), and O(those topics) after one of them has changed; no reader waits for that.
func (t *Topics) Limited() []*timer.Topic {
	t.mu.RLock()
	list := t.limited
	t.mu.RUnlock()
	flat := t.flat.Load()
	if flat == nil || !same(list, flat.of) {
		flat = &flatList{list, slices.Concat(list...)}
		t.flat.Store(flat)
	}
	return flat.topics
}

// flatList is a topicList in one piece.
type flatList struct {
	of     topicList
	topics []*timer.Topic
}

// Turning are the topics whose delivery is being changed.
func (t *Topics) Turning() []*timer.Topic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []*timer.Topic
	for _, id := range slices.Sorted(maps.Keys(t.turning)) {
		list = append(list, t.byID[id])
	}
	return list
}

// List is at most limit topics in order of name, after the given name.
func (t *Topics) List(after string, limit int) []*timer.Topic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := t.names.after(after)
	names = names[:min(limit, len(names))]
	out := make([]*timer.Topic, len(names))
	for i, name := range names {
		out[i] = t.byName[name]
	}
	return out
}

// Count counts the topics whose names have the prefix and for which f holds, up to most.
func (t *Topics) Count(prefix string, most int, f func(*timer.Topic) bool) (n int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, name := range t.names.prefixed(prefix) {
		if n == most {
			break
		}
		if f(t.byName[name]) {
			n++
		}
	}
	return n
}

func (t *Topics) applyTopic(nowMs int64, c *Command) Reply {
	before, _ := t.Named(c.Name)
	r := t.apply(nowMs, c)
	switch {
	case r.Err != nil:
	case r.Topic != nil:
		t.changed(r.Topic.ID)
	case before != nil: // it is deleted
		t.changed(before.ID)
	}
	return r
}

func (t *Topics) apply(nowMs int64, c *Command) Reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.byName[c.Name]
	if c.IfNew && old != nil || c.IfVersion != 0 && (old == nil || old.ID != c.ID || old.Version != c.IfVersion) {
		return Reply{Topic: old, Err: timer.ErrTopicVersion}
	}
	switch c.Verb {
	case Ensure:
		if old != nil {
			return Reply{Topic: old}
		}
		return t.createLocked(nowMs, c.Name, *c.Policy, true)
	case Put:
		if err := t.refusesOutcomes(c.Name, c.Policy, old); err != nil {
			return Reply{Topic: old, Err: err}
		}
		if old == nil {
			return t.createLocked(nowMs, c.Name, *c.Policy, false)
		}
	}
	if old == nil || c.ID != 0 && old.ID != c.ID {
		return Reply{Err: timer.ErrNoTopic}
	}
	next := *old
	next.UpdatedMs, next.Version = nowMs, old.Version+1
	switch c.Verb {
	case Put:
		next.Policy, next.AutoCreated = *c.Policy, false
		switch {
		case c.Turn != 0:
			if !old.Turning || old.Turn != c.Turn {
				return Reply{Topic: old, Err: ErrTurn}
			}
			next.Turning = false
		case c.Policy.Pull != old.Policy.Pull:
			return Reply{Topic: old, Err: ErrTurn}
		}
	case Pause, Resume:
		next.Paused = c.Verb == Pause
		if next.Paused == old.Paused {
			next.Version = old.Version
		}
	case Close:
		if !c.Force && t.named[c.Name] > 0 {
			return Reply{Topic: old, Err: timer.ErrNamed}
		}
		next.Closing, next.ForceClose, next.Version = true, c.Force, old.Version
	case Reopen:
		next.Closing, next.ForceClose, next.Version = false, false, old.Version
	case Turn:
		next.Turn, next.Turning = old.Turn+1, true
		next.UpdatedMs, next.Version = old.UpdatedMs, old.Version // nothing that a client could see
	case Turned:
		if !old.Turning || old.Turn != c.Turn {
			return Reply{Topic: old, Err: ErrTurn}
		}
		next.Turning = false
		next.UpdatedMs, next.Version = old.UpdatedMs, old.Version
	case Reseal:
		if !resealPolicy(&next.Policy, c.Swaps) {
			return Reply{Topic: old}
		}
		next.UpdatedMs, next.Version = old.UpdatedMs, old.Version
	case Delete:
		if !old.Closing {
			return Reply{Err: timer.ErrNotEmpty}
		}
		t.remove(old)
		return Reply{}
	}
	t.put(&next)
	return Reply{Topic: &next}
}

func (t *Topics) createLocked(nowMs int64, name string, p timer.Policy, auto bool) Reply {
	if len(t.byName) >= timer.MaxTopics {
		return Reply{Err: timer.ErrTooManyTopics}
	}
	t.lastID++
	v := &timer.Topic{ID: t.lastID, Name: name, Policy: p, AutoCreated: auto, CreatedMs: nowMs, UpdatedMs: nowMs, Version: 1}
	t.put(v)
	return Reply{Topic: v, Created: true}
}

// replace makes these the topics.
func (t *Topics) replace(set topicSet) {
	t.mu.Lock()
	t.topicSet = set
	t.mu.Unlock()
	t.changed()
}

// LongestHistory is the longest time for which any topic keeps its ended timers, in ms; false when
// there is no topic.
func (t *Topics) LongestHistory() (ms int64, any bool) {
	for topic := range t.each() {
		ms, any = max(ms, topic.Policy.HistoryMs), true
	}
	return ms, any
}

// each is all topics in order of id, as they were when it was called. Nobody waits for the walk.
func (t *Topics) each() iter.Seq[*timer.Topic] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.list.all()
}
