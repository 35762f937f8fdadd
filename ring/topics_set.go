package ring

import (
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
	lastID  timer.TopicID // ever given
	sum     uint64        // see State.Hash
	names   topicNames
	turning map[timer.TopicID]struct{} // whose delivery is being changed
	sealed  map[string]int             // how many secrets of topics each key has sealed, by its id
}

// newTopicSet holds topics that are in order of id.
func newTopicSet(lastID timer.TopicID, topics []*timer.Topic) topicSet {
	s := topicSet{
		byName: make(map[string]*timer.Topic, len(topics)), byID: make(map[timer.TopicID]*timer.Topic, len(topics)),
		list: newTopicList(topics), lastID: lastID, turning: map[timer.TopicID]struct{}{}, sealed: map[string]int{},
	}
	for _, t := range topics {
		s.byName[t.Name], s.byID[t.ID] = t, t
		s.sum += hashTopic(t)
		s.countSealed(t, +1)
		s.noteTurning(t)
	}
	s.names = slices.Sorted(maps.Keys(s.byName))
	return s
}

func (s *topicSet) put(t *timer.Topic) {
	if old := s.byID[t.ID]; old != nil {
		s.sum -= hashTopic(old)
		s.countSealed(old, -1)
	}
	s.countSealed(t, +1)
	s.noteTurning(t)
	s.names.add(t.Name)
	s.byName[t.Name], s.byID[t.ID] = t, t
	s.list = s.list.with(t)
	s.sum += hashTopic(t)
}

func (s *topicSet) remove(t *timer.Topic) {
	s.countSealed(t, -1)
	s.names.remove(t.Name)
	delete(s.byName, t.Name)
	delete(s.byID, t.ID)
	s.list = s.list.without(t.ID)
	delete(s.turning, t.ID)
	s.sum -= hashTopic(t)
}

func (s *topicSet) noteTurning(t *timer.Topic) {
	if t.Turning {
		s.turning[t.ID] = struct{}{}
	} else {
		delete(s.turning, t.ID)
	}
}
