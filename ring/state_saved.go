package ring

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"carillon/internal/feature"
	"carillon/timer"
)

const stateVersion = 3

type savedCluster struct {
	ID       string        `json:"id"`
	Shards   int           `json:"shards"`
	Replicas int           `json:"replicas"`
	Level    feature.Level `json:"level,omitempty"`
	Version  uint64        `json:"version"`
	Secret   []byte        `json:"secret,omitempty"`
	Founded  int           `json:"founded_shards,omitempty"`
	Growth   *resharding   `json:"resharding,omitempty"`
}

// savedHead is the first line of a snapshot. Its nodes and rows follow.
type savedHead struct {
	Version int           `json:"version"`
	LastID  timer.TopicID `json:"last_id"`
	Cluster *savedCluster `json:"cluster,omitempty"` // absent before the cluster is founded
}

// savedItem is each line that follows: one of these.
type savedItem struct {
	Topic *timer.Topic `json:"topic,omitempty"`
	Node  *Node        `json:"node,omitempty"`
	Row   *Assignment  `json:"row,omitempty"`
	End   *savedEnd    `json:"end,omitempty"` // the last
}

type savedEnd struct {
	Hash uint64 `json:"hash"`
}

type savedSums struct{ topics, nodes, rows uint64 }

// saving writes the state as it was when it began, in pieces, while further commands are applied.
type saving struct {
	hash   uint64
	head   savedHead
	topics topicWalk
	nodes  []Node
	rows   []Assignment
	stage  int
	// The sums of the written values, and the sums that they should have: memory may have changed
	// by itself.
	sums, want savedSums
	buf        bytes.Buffer
	lines      *json.Encoder
}

// BeginSave implements shard.Machine. It copies all but the topics: it takes as long with 100,000
// topics as with one.
func (s *State) BeginSave() timer.Saving {
	v := &saving{hash: s.Hash(), head: savedHead{Version: stateVersion}}
	v.lines = json.NewEncoder(&v.buf)
	s.Topics.mu.RLock()
	v.head.LastID, v.topics.list, v.want.topics = s.lastID, s.list, s.sum
	s.Topics.mu.RUnlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := &s.cluster; c.id != "" {
		v.head.Cluster = &savedCluster{ID: c.id, Shards: c.shards, Replicas: c.replicas, Level: c.level, Version: c.version, Secret: c.secret, Founded: c.founded}
		if growth := c.growth; growth.Parents != 0 {
			v.head.Cluster.Growth = &growth
		}
		v.nodes = slices.SortedFunc(maps.Values(c.nodes), func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
		v.rows = slices.Clone(c.rows)
		v.want.nodes, v.want.rows = c.nodeSum, c.rowSum
	}
	return v
}

func (s *saving) Hash() uint64 { return s.hash }

func (s *saving) Held() int64 { return int64(s.buf.Cap()) }

func (s *saving) Sound() bool { return s.sums == s.want }

// Abort implements timer.Saving: nothing is held.
func (s *saving) Abort() {}

func (s *saving) Next(dst []byte, budget int) (out []byte, done bool) {
	s.buf.Reset()
	for !done && (s.buf.Len() == 0 || s.buf.Len() < budget) {
		var line any
		if line, done = s.line(); line == nil {
			continue
		}
		if err := s.lines.Encode(line); err != nil {
			panic(fmt.Sprintf("ring: encode state: %v", err)) // plain data: cannot happen
		}
	}
	return append(dst, s.buf.Bytes()...), done
}

// line is the next line; nil: none of that kind is left.
func (s *saving) line() (line any, last bool) {
	switch s.stage {
	case 0:
		line = s.head
		s.stage++
	case 1:
		if t := s.topics.next(); t != nil {
			s.sums.topics += hashTopic(t)
			return savedItem{Topic: t}, false
		}
		s.stage++
	case 2:
		if len(s.nodes) > 0 {
			s.sums.nodes += hashNode(&s.nodes[0])
			line, s.nodes = savedItem{Node: &s.nodes[0]}, s.nodes[1:]
			return line, false
		}
		s.stage++
	case 3:
		if len(s.rows) > 0 {
			s.sums.rows += hashRow(&s.rows[0])
			line, s.rows = savedItem{Row: &s.rows[0]}, s.rows[1:]
			return line, false
		}
		s.stage++
	default:
		return savedItem{End: &savedEnd{s.hash}}, true
	}
	return line, false
}

// savedParts is a state that was read.
type savedParts struct {
	topics  topicSet
	cluster cluster
}

// Read implements shard.Machine. It may run at the same time as everything else. Damage is an
// error, never another state.
func (s *State) Read(r io.Reader) (any, uint64, error) {
	parts, hash, err := readState(r)
	if err != nil {
		return nil, 0, fmt.Errorf("ring: read state: %w", err)
	}
	got := (&State{Topics: &Topics{topicSet: parts.topics}, cluster: parts.cluster}).Hash()
	if got != hash {
		return nil, 0, fmt.Errorf("ring: read state: its hash is %016x, stored is %016x", got, hash)
	}
	return parts, got, nil
}

func readState(r io.Reader) (parts *savedParts, hash uint64, err error) {
	d := json.NewDecoder(r)
	var head savedHead
	if err := d.Decode(&head); err != nil {
		return nil, 0, err
	}
	switch {
	case head.Version > stateVersion:
		return nil, 0, fmt.Errorf("%w: version %d, this build reads %d", feature.ErrNewer, head.Version, stateVersion)
	case head.Version != stateVersion:
		return nil, 0, fmt.Errorf("version %d", head.Version)
	}
	parts = &savedParts{cluster: cluster{nodes: map[uint64]Node{}}}
	c := &parts.cluster
	var topics []*timer.Topic
	for {
		var item savedItem
		if err := d.Decode(&item); err != nil {
			return nil, 0, err
		}
		switch {
		case item.Topic != nil:
			if n := len(topics); n > 0 && topics[n-1].ID >= item.Topic.ID {
				return nil, 0, errors.New("the topics are out of order")
			}
			topics = append(topics, item.Topic)
		case item.End != nil:
			parts.topics = newTopicSet(head.LastID, topics)
			if head.Cluster != nil {
				err = c.load(head.Cluster)
			}
			return parts, item.End.Hash, err
		case head.Cluster == nil:
			return nil, 0, errors.New("a line has nothing that belongs to it")
		case item.Node != nil:
			if err := item.Node.validate(); err != nil {
				return nil, 0, err
			}
			c.nodes[item.Node.ID] = *item.Node
		case item.Row != nil:
			if err := item.Row.validate(); err != nil {
				return nil, 0, err
			}
			c.rows = append(c.rows, *item.Row)
		default:
			return nil, 0, errors.New("an empty line")
		}
	}
}

// Replace implements shard.Machine: the value of Read becomes the state.
func (s *State) Replace(state any) {
	parts := state.(*savedParts)
	s.Topics.replace(parts.topics)
	s.mu.Lock()
	s.cluster = parts.cluster
	s.mu.Unlock()
	s.placed()
}

// load takes what the first line has, after the nodes and rows that follow it.
func (c *cluster) load(saved *savedCluster) error {
	c.shards, c.founded = saved.Shards, saved.Founded
	if saved.Growth != nil {
		c.growth = *saved.Growth
	}
	if saved.ID == "" || saved.Shards < 1 || saved.Shards > MaxShards || !c.soundShards() {
		return fmt.Errorf("cluster %q has %d rows for %d shards", saved.ID, len(c.rows), saved.Shards)
	}
	for i := range c.rows {
		if int64(c.rows[i].Group) != int64(i) {
			return fmt.Errorf("row %d is of group %d", i, c.rows[i].Group)
		}
	}
	if saved.Secret != nil && !goodSecret(saved.Secret) {
		return ErrBadSecret
	}
	c.secret = saved.Secret
	c.id, c.replicas, c.version = saved.ID, saved.Replicas, saved.Version
	c.level = max(saved.Level, feature.LevelFirst)
	c.list()
	return nil
}

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
	for t := range parts.topics.list.all() {
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
	// A shard whose state was taken before it had dropped the half that left it drops that now: it
	// knows by the row that the other shard has it.
	for i, half := old.founded+1, old.founded; i < len(c.rows); i++ {
		if i > 2*half {
			half *= 2
		}
		c.rows[i].From = timer.ShardID(i - half)
	}
	c.list()
	switch {
	case shards < now:
		c.growth = resharding{From: now / 2, Parents: now / 2, To: to}
	case now < to:
		c.growth = resharding{From: now, Parents: now, To: to}
		c.shards *= 2
	}
	if from := old.growth.From; from > 0 && from < c.growth.From {
		c.growth.From = from // this doubling is not the first of its growth
	}
	return nil
}

// Saved is the part of a Read value that a restore needs before it makes a State.
type Saved struct {
	Shards  int
	Topics  *Topics
	cluster *cluster
}

// Fits reports whether a backup can have the timers of so many shards: some may have been divided
// since their states were taken.
func (s *Saved) Fits(shards int) bool { return new(cluster).resume(s.cluster, shards) == nil }

// SavedParts looks into the value of Read.
func SavedParts(saved any) Saved {
	parts := saved.(*savedParts)
	return Saved{Shards: parts.cluster.shards, Topics: &Topics{topicSet: parts.topics, changed: func(...timer.TopicID) {}}, cluster: &parts.cluster}
}
