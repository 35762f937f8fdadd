package ring

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"carillon/shard"
)

// MaxTopics bounds the topics of a cluster.
const MaxTopics = 100_000

// ErrTooMany is answered when a topic would be one more than MaxTopics.
var ErrTooMany = errors.New("there are as many topics as a cluster takes; delete some first")

// Topics is the part of State that holds the topics, and the copy of them that this node reads.
// Topic values are immutable: a change publishes a new one.
type Topics struct {
	mu     sync.RWMutex
	byName map[string]*shard.Topic
	byID   map[shard.TopicID]*shard.Topic
	lastID shard.TopicID
	names  topicNames
	sealed map[string]int // how many secrets of topics each key has sealed, by its id

	limited []*shard.Topic // those with a Concurrency, by id; good unless stale
	stale   bool

	changed func() // told after each change; must be quick
}

// NewTopics is empty; changed may be nil.
func NewTopics(changed func()) *Topics {
	if changed == nil {
		changed = func() {}
	}
	return &Topics{byName: map[string]*shard.Topic{}, byID: map[shard.TopicID]*shard.Topic{}, sealed: map[string]int{}, changed: changed}
}

// Topic finds a topic by its id; it implements shard.Topics.
func (t *Topics) Topic(id shard.TopicID) (*shard.Topic, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byID[id]
	return v, ok
}

// Named finds a topic by its name.
func (t *Topics) Named(name string) (*shard.Topic, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byName[name]
	return v, ok
}

// Limited are the topics of which so many leases at once may be taken in the whole cluster, by id. The list is not to be changed.
func (t *Topics) Limited() []*shard.Topic {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stale {
		t.limited, t.stale = nil, false
		for _, v := range t.byID {
			if v.Policy.Concurrency > 0 {
				t.limited = append(t.limited, v)
			}
		}
		slices.SortFunc(t.limited, func(a, b *shard.Topic) int { return cmp.Compare(a.ID, b.ID) })
	}
	return t.limited
}

// List is at most limit topics in order of name, those after a name.
func (t *Topics) List(after string, limit int) []*shard.Topic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := t.names.after(after)
	names = names[:min(limit, len(names))]
	out := make([]*shard.Topic, len(names))
	for i, name := range names {
		out[i] = t.byName[name]
	}
	return out
}

// Count counts the topics whose names begin so and for which f holds, up to most.
func (t *Topics) Count(prefix string, most int, f func(*shard.Topic) bool) (n int) {
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

// Apply implements shard.Machine; the result is a Reply.
func (t *Topics) Apply(nowMs int64, data []byte) any {
	c, err := decodeCommand(data)
	if err != nil {
		return Reply{Err: err}
	}
	return t.run(nowMs, c)
}

// run applies a command about topics and tells of the change.
func (t *Topics) run(nowMs int64, c *Command) Reply {
	r := t.apply(nowMs, c)
	if r.Err == nil {
		t.changed()
	}
	return r
}

func (t *Topics) apply(nowMs int64, c *Command) Reply {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.byName[c.Name]
	switch c.Verb {
	case Ensure:
		if old != nil {
			return Reply{Topic: old}
		}
		return t.createLocked(nowMs, c.Name, shard.DefaultPolicy(), true)
	case Put:
		if old == nil {
			return t.createLocked(nowMs, c.Name, *c.Policy, false)
		}
	}
	if old == nil || c.ID != 0 && old.ID != c.ID {
		return Reply{Err: shard.ErrNoTopic}
	}
	next := *old
	next.UpdatedMs = nowMs
	switch c.Verb {
	case Put:
		next.Policy, next.AutoCreated = *c.Policy, false
		if c.Policy.Ordered != old.Policy.Ordered {
			if !old.Closing {
				return Reply{Topic: old, Err: shard.ErrNotEmpty}
			}
			// Its timers live elsewhere from here on: whoever still goes by where they were finds the topic closed.
			t.lastID++
			delete(t.byID, old.ID)
			t.stale = true
			next.ID, next.Closing, next.ForceClose = t.lastID, false, false
		}
	case Pause:
		next.Paused = true
	case Resume:
		next.Paused = false
	case Close:
		next.Closing, next.ForceClose = true, c.Force
	case Reopen:
		next.Closing, next.ForceClose = false, false
	case Reseal:
		if !resealPolicy(&next.Policy, c.Swaps) {
			return Reply{Topic: old}
		}
		next.UpdatedMs = old.UpdatedMs // nothing that a client could see
	case Delete:
		if !old.Closing {
			return Reply{Err: shard.ErrNotEmpty}
		}
		t.countSealed(old, -1)
		delete(t.byName, c.Name)
		delete(t.byID, old.ID)
		t.names.remove(c.Name)
		t.stale = true
		return Reply{}
	default:
		return Reply{Err: fmt.Errorf("ring: unknown verb %q", c.Verb)}
	}
	t.publishLocked(&next)
	return Reply{Topic: &next}
}

func (t *Topics) createLocked(nowMs int64, name string, p shard.Policy, auto bool) Reply {
	if len(t.byName) >= MaxTopics {
		return Reply{Err: ErrTooMany}
	}
	t.lastID++
	v := &shard.Topic{ID: t.lastID, Name: name, Policy: p, AutoCreated: auto, CreatedMs: nowMs, UpdatedMs: nowMs}
	t.publishLocked(v)
	return Reply{Topic: v, Created: true}
}

func (t *Topics) publishLocked(v *shard.Topic) {
	if old := t.byName[v.Name]; old != nil {
		t.countSealed(old, -1)
	}
	t.countSealed(v, +1)
	t.byName[v.Name] = v
	t.names.add(v.Name)
	t.byID[v.ID] = v
	t.stale = true
}

// topicsState is the topics' part of a snapshot: in order of id.
type topicsState struct {
	LastID shard.TopicID  `json:"last_id"`
	Topics []*shard.Topic `json:"topics"`
}

// topicsOnly is the snapshot of a Topics that stands alone; version 1 of State's was this.
type topicsOnly struct {
	Version int `json:"version"`
	topicsState
}

func (t *Topics) save() topicsState {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := topicsState{LastID: t.lastID}
	for _, id := range slices.Sorted(maps.Keys(t.byID)) {
		s.Topics = append(s.Topics, t.byID[id])
	}
	return s
}

func (t *Topics) load(s topicsState) {
	t.mu.Lock()
	t.byName, t.byID, t.lastID = map[string]*shard.Topic{}, map[shard.TopicID]*shard.Topic{}, s.LastID
	t.stale, t.names, t.sealed = true, nil, map[string]int{}
	for _, v := range s.Topics {
		t.byName[v.Name], t.byID[v.ID] = v, v
		t.countSealed(v, +1)
	}
	t.names = slices.Sorted(maps.Keys(t.byName))
	t.mu.Unlock()
	t.changed()
}

// Save implements shard.Machine.
func (t *Topics) Save() []byte {
	b, err := json.Marshal(topicsOnly{1, t.save()})
	if err != nil {
		panic(fmt.Sprintf("ring: encode topics: %v", err))
	}
	return b
}

// Load implements shard.Machine.
func (t *Topics) Load(b []byte) error {
	var s topicsOnly
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("ring: read topics: %w", err)
	}
	if s.Version != 1 {
		return fmt.Errorf("ring: topics of version %d, this build reads 1", s.Version)
	}
	t.load(s.topicsState)
	return nil
}
