package ring

import (
	"fmt"

	"carillon/timer"
)

// Restored is the state of a new cluster of one node that has the topics of a backup, its shards,
// and its secret, so that receipts of leases and contents of adds stay valid. saved is the value of
// Read. shards are those of which the backup has the timers: where the number grew meanwhile, the
// new cluster divides the others once more. pause reports whether a topic starts paused.
func Restored(saved any, nowMs int64, clusterID string, self Node, shards int, pause func(timer.TopicID) bool) (*State, error) {
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
	command := FoundCommand(clusterID, shards, old.replicas, []Node{self})
	if r := s.cluster.found(nowMs, &command); r.Err != nil {
		return nil, fmt.Errorf("ring: restore: %w", r.Err)
	}
	if err := s.cluster.resume(old, shards); err != nil {
		return nil, fmt.Errorf("ring: restore: %w", err)
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

// resume lets a restored cluster grow to as many shards as the one of the backup had, or was to
// have. It has the rows of so many shards.
func (c *cluster) resume(old *cluster, shards int) error {
	if old.founded == 0 {
		if shards != old.shards {
			return fmt.Errorf("%w: the backup has %d of %d shards", ErrBadShards, shards, old.shards)
		}
		return nil
	}
	now := old.founded
	for now < shards {
		now *= 2
	}
	to := max(old.shards, old.growth.To)
	if shards < old.founded || now > old.shards {
		return fmt.Errorf("%w: the backup has %d of %d shards", ErrBadShards, shards, old.shards)
	}
	c.founded, c.shards = old.founded, now
	switch {
	case shards < now:
		c.growth = resharding{From: now / 2, Parents: now / 2, To: to}
	case now < to:
		c.growth = resharding{From: now, Parents: now, To: to}
		c.shards *= 2
	}
	return nil
}

// Saved is the part of a Read value that a restore needs before it makes a State.
type Saved struct {
	ClusterID string
	Shards    int
	Topics    *Topics
	cluster   *cluster
}

// Fits reports whether a backup can have the timers of so many shards: some may have been divided
// since their states were taken.
func (s *Saved) Fits(shards int) bool { return new(cluster).resume(s.cluster, shards) == nil }

// SavedParts looks into the value of Read.
func SavedParts(saved any) Saved {
	parts := saved.(*savedParts)
	return Saved{ClusterID: parts.cluster.id, Shards: parts.cluster.shards, Topics: &Topics{topicSet: parts.topics, changed: func() {}}, cluster: &parts.cluster}
}
