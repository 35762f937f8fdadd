package ring

import (
	"maps"
	"slices"

	"carillon/shard"
)

// topicSet is topics by name, by id and in order of id, the sum of their hashes, their names in order,
// and who has sealed their secrets.
type topicSet struct {
	byName  map[string]*shard.Topic
	byID    map[shard.TopicID]*shard.Topic
	list    topicList
	lastID  shard.TopicID // ever given
	sum     uint64        // see State.Hash
	names   topicNames
	turning map[shard.TopicID]struct{} // whose delivery is being changed
	sealed  map[string]int             // how many secrets of topics each key has sealed, by its id
}

// newTopicSet holds topics that are in order of id.
func newTopicSet(lastID shard.TopicID, topics []*shard.Topic) topicSet {
	s := topicSet{
		byName: make(map[string]*shard.Topic, len(topics)), byID: make(map[shard.TopicID]*shard.Topic, len(topics)),
		list: newTopicList(topics), lastID: lastID, turning: map[shard.TopicID]struct{}{}, sealed: map[string]int{},
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

func (s *topicSet) put(t *shard.Topic) {
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

func (s *topicSet) remove(t *shard.Topic) {
	s.countSealed(t, -1)
	s.names.remove(t.Name)
	delete(s.byName, t.Name)
	delete(s.byID, t.ID)
	s.list = s.list.without(t.ID)
	delete(s.turning, t.ID)
	s.sum -= hashTopic(t)
}

func (s *topicSet) noteTurning(t *shard.Topic) {
	if t.Turning {
		s.turning[t.ID] = struct{}{}
	} else {
		delete(s.turning, t.ID)
	}
}
