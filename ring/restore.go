package ring

import (
	"fmt"

	"carillon/timer"
)

// Restored is the state of a new cluster of one node that has the topics of a backup, its number of
// shards, and its secret, so that receipts of leases and contents of adds stay valid. saved is the
// value of Read. pause reports whether a topic starts paused.
func Restored(saved any, nowMs int64, clusterID string, self Node, pause func(timer.TopicID) bool) (*State, error) {
	parts := saved.(*savedParts)
	old := &parts.cluster
	if old.id == "" {
		return nil, fmt.Errorf("ring: restore: %w", ErrNotFounded)
	}
	if self.level() < old.level {
		return nil, fmt.Errorf("ring: restore: %w: the backup has feature level %d, this release has %d", ErrTooOld, old.level, self.level())
	}
	// It rises when the restored cluster is finalized: until then the release before can be
	// started.
	self.Level = old.level
	s := NewState(nil, nil)
	command := FoundCommand(clusterID, old.shards, old.replicas, []Node{self})
	if r := s.cluster.found(nowMs, &command); r.Err != nil {
		return nil, fmt.Errorf("ring: restore: %w", r.Err)
	}
	s.cluster.secret = old.secret
	var topics []*timer.Topic
	for walk := (topicWalk{list: parts.topics.list}); ; {
		t := walk.next()
		if t == nil {
			break
		}
		next := *t
		next.Paused = next.Paused || pause(next.ID)
		next.Closing, next.ForceClose = false, false // its deletion is not continued
		topics = append(topics, &next)
	}
	s.Topics.replace(newTopicSet(parts.topics.lastID, topics))
	return s, nil
}

// Saved is the part of a Read value that a restore needs before it makes a State.
type Saved struct {
	ClusterID string
	Shards    int
	Topics    *Topics
}

// SavedParts looks into the value of Read.
func SavedParts(saved any) Saved {
	parts := saved.(*savedParts)
	return Saved{ClusterID: parts.cluster.id, Shards: parts.cluster.shards, Topics: &Topics{topicSet: parts.topics, changed: func() {}}}
}
