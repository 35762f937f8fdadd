package ring

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"carillon/timer"
)

// topicSet is topics by name, by id and in order of id, the sum of their hashes, their names in
// order, and the keys that sealed their secrets.
type topicSet struct {
	byName  map[string]*timer.Topic
	byID    map[timer.TopicID]*timer.Topic
	list    topicList
	limited topicList     // those of which so many leases at once may be taken, see Topics.Limited
	lastID  timer.TopicID // ever given
	sum     uint64        // see State.Hash
	names   topicNames
	turning map[timer.TopicID]struct{} // whose delivery is being changed
	sealed  map[string]int             // how many secrets of topics each key has sealed, by its id
	// how many other topics' policies name a topic for their outcomes, by its name
	named map[string]int
}

// newTopicSet holds topics that are in order of id.
func newTopicSet(lastID timer.TopicID, topics []*timer.Topic) topicSet {
	s := topicSet{
		byName: make(map[string]*timer.Topic, len(topics)), byID: make(map[timer.TopicID]*timer.Topic, len(topics)),
		list: newTopicList(topics), lastID: lastID, turning: map[timer.TopicID]struct{}{}, sealed: map[string]int{}, named: map[string]int{},
	}
	var limited []*timer.Topic
	for _, t := range topics {
		limited = append(limited, limitsOf(t)...)
		s.byName[t.Name], s.byID[t.ID] = t, t
		s.sum += hashTopic(t)
		s.countSealed(t, +1)
		s.countNamed(t, +1)
		s.indexTurning(t)
	}
	slices.SortFunc(limited, func(a, b *timer.Topic) int { return cmp.Compare(a.ID, b.ID) })
	s.limited = newTopicList(limited)
	s.names = slices.Sorted(maps.Keys(s.byName))
	return s
}

func (s *topicSet) put(t *timer.Topic) {
	if old := s.byID[t.ID]; old != nil {
		s.sum -= hashTopic(old)
		s.countSealed(old, -1)
		s.countNamed(old, -1)
	}
	s.listLimits(s.byID[t.ID], t)
	s.countSealed(t, +1)
	s.countNamed(t, +1)
	s.indexTurning(t)
	s.names.add(t.Name)
	s.byName[t.Name], s.byID[t.ID] = t, t
	s.list = s.list.with(t)
	s.sum += hashTopic(t)
}

func (s *topicSet) remove(t *timer.Topic) {
	s.countSealed(t, -1)
	s.countNamed(t, -1)
	s.names.remove(t.Name)
	delete(s.byName, t.Name)
	delete(s.byID, t.ID)
	s.list = s.list.without(t.ID)
	delete(s.turning, t.ID)
	s.listLimits(t, nil)
	s.sum -= hashTopic(t)
}

// limitsOf are the bounds of leases at once that a topic has: its own, and that of its timers without
// a key. nil has none.
func limitsOf(t *timer.Topic) (limits []*timer.Topic) {
	if t == nil {
		return nil
	}
	for _, l := range []*timer.Topic{t, t.Keyless()} {
		if l != nil && l.Policy.Concurrency > 0 {
			limits = append(limits, l)
		}
	}
	return limits
}

// listLimits keeps limited after a change of a topic; nil: there was none, or is none.
func (s *topicSet) listLimits(from, to *timer.Topic) {
	for _, l := range limitsOf(from) {
		s.limited = s.limited.without(l.ID)
	}
	for _, l := range limitsOf(to) {
		s.limited = s.limited.with(l)
	}
}

// countNamed adds by to the counts of the topics that t's policy names for outcomes. It is O(1).
func (s *topicSet) countNamed(t *timer.Topic, by int) {
	p := &t.Policy
	for i, name := range [...]string{p.OnDone, p.OnDead} {
		if name == "" || name == t.Name || i == 1 && name == p.OnDone {
			continue
		}
		if s.named[name] += by; s.named[name] == 0 {
			delete(s.named, name)
		}
	}
}

// refusesOutcomes returns why a topic that a policy names for outcomes does not take them, or why
// the policy's own topic would no longer take those of others; nil: they all do. What was so before
// stays as it is.
func (s *topicSet) refusesOutcomes(own string, p *timer.Policy, old *timer.Topic) error {
	if p.Serial && (old == nil || !old.Policy.Serial) && (s.named[own] > 0 || old != nil && p.Names(own)) {
		return timer.ErrNamedSerial
	}
	for _, name := range [...]string{p.OnDone, p.OnDead} {
		if name == "" || old != nil && old.Policy.Names(name) {
			continue
		}
		switch to := s.byName[name]; {
		case !to.TakesOutcomes():
			return timer.ErrOutcomeTopic
		case to.Closing: // it may stay: a shard that has closed it would lose outcomes until then
			return timer.ErrOverloaded
		}
	}
	return nil
}

func (s *topicSet) indexTurning(t *timer.Topic) {
	if t.Turning {
		s.turning[t.ID] = struct{}{}
	} else {
		delete(s.turning, t.ID)
	}
}

// topicPage is how many topics a page of a topicList has at most.
const topicPage = 256

// topicList is the topics in order of id. A change makes a new list, which shares all pages with
// the old one but the page that it is in. So the holder of a list walks the topics as they were, in
// pieces, while further commands are applied.
//
// Invariant: no page is empty; ids rise within a page and from page to page.
type topicList [][]*timer.Topic

// newTopicList makes the list of topics that are in order of id.
func newTopicList(topics []*timer.Topic) topicList {
	return slices.Collect(slices.Chunk(topics, topicPage))
}

// find is where a topic is, or would be put.
func (l topicList) find(id timer.TopicID) (page, at int, ok bool) {
	page, ok = slices.BinarySearchFunc(l, id, func(p []*timer.Topic, id timer.TopicID) int { return cmp.Compare(p[0].ID, id) })
	if ok {
		return page, 0, true
	}
	if page == 0 {
		return 0, 0, false
	}
	page--
	at, ok = slices.BinarySearchFunc(l[page], id, func(t *timer.Topic, id timer.TopicID) int { return cmp.Compare(t.ID, id) })
	return page, at, ok
}

// with is the list with a topic, in the place of the one that has its id, if there is one.
func (l topicList) with(t *timer.Topic) topicList {
	page, at, ok := l.find(t.ID)
	out := slices.Clone(l)
	switch {
	case len(l) == 0:
		return topicList{{t}}
	case ok:
		out[page] = slices.Clone(l[page])
		out[page][at] = t
	case len(l[page]) < topicPage:
		out[page] = slices.Insert(slices.Clone(l[page]), at, t)
	case at == topicPage: // ids rise, so most are put behind all others
		out = slices.Insert(out, page+1, []*timer.Topic{t})
	default:
		half := topicPage / 2
		out[page] = slices.Clone(l[page][:half])
		out = slices.Insert(out, page+1, slices.Clone(l[page][half:]))
		return out.with(t)
	}
	return out
}

// without is the list without a topic.
func (l topicList) without(id timer.TopicID) topicList {
	page, at, ok := l.find(id)
	if !ok {
		return l
	}
	out := slices.Clone(l)
	if len(l[page]) == 1 {
		return slices.Delete(out, page, page+1)
	}
	out[page] = slices.Delete(slices.Clone(l[page]), at, at+1)
	return out
}

// same reports that two lists, which do not change, are one, not only equal.
func same[T any](a, b []T) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// all is the topics in order of id.
func (l topicList) all() iter.Seq[*timer.Topic] {
	return func(yield func(*timer.Topic) bool) {
		walk := topicWalk{list: l}
		for t := walk.next(); t != nil && yield(t); {
			t = walk.next()
		}
	}
}

// topicWalk goes through a list in pieces.
type topicWalk struct {
	list     topicList
	page, at int
}

// next is the next topic; nil at the end.
func (w *topicWalk) next() *timer.Topic {
	if w.page == len(w.list) {
		return nil
	}
	t := w.list[w.page][w.at]
	if w.at++; w.at == len(w.list[w.page]) {
		w.page, w.at = w.page+1, 0
	}
	return t
}

// topicNames are the names of topics in order. Keeping them so costs a topic that is made or
// deleted some microseconds, and a listing nothing.
type topicNames []string

func (n *topicNames) add(name string) {
	if i, known := slices.BinarySearch(*n, name); !known {
		*n = slices.Insert(*n, i, name)
	}
}

func (n *topicNames) remove(name string) {
	if i, known := slices.BinarySearch(*n, name); known {
		*n = slices.Delete(*n, i, i+1)
	}
}

// after is the index of the first name behind one.
func (n topicNames) after(name string) []string {
	i, known := slices.BinarySearch(n, name)
	if known {
		i++
	}
	return n[i:]
}

// prefixed is where the names are that begin so.
func (n topicNames) prefixed(prefix string) []string {
	from, _ := slices.BinarySearch(n, prefix)
	to := len(n)
	if end := prefixEnd(prefix); end != "" {
		to, _ = slices.BinarySearch(n, end)
	}
	return n[from:to]
}

// prefixEnd is the first string behind all that begin so; "" when there is none.
func prefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string(prefix[i]+1)
		}
	}
	return ""
}
