package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/halt"
	"carillon/transport/peer"
)

// A process that starts on an older copy of its data directory, or of identity.json, lacks the
// votes and acknowledgements of the node since the copy was made (docs/adr/0016). It looks for that
// itself, before it takes part, wherever the node is known:
//
//   - in its own log, before anything begins on it: Vet;
//   - at each other node, before the two of them speak: confirmed, and askOthers;
//   - in the cluster's record as a majority has it, before this start is put there: mayRegister.

var (
	errUnasked = fmt.Errorf("%w: the node that refuses has just started, and first asks its peers whether its data is the newest", peer.ErrLater)

	// errLostEnd: the log lacks frames that were on disk. An older copy looks the same as a disk
	// that lost them.
	errLostEnd = errors.New("the end of the log was damaged, or the data directory is an older copy of what it was")
)

const (
	askRetry    = 250 * time.Millisecond // a node that did not answer
	askMinPause = 50 * time.Millisecond  // … even if it speaks to this one meanwhile, and has answered
)

// knownQuestion asks a node what it knows of the one that asks; as JSON. The asking process is in
// the hello.
type knownQuestion struct {
	Confirm bool `json:"confirm,omitempty"` // the cluster's record is to be as a majority has it
}

// knownFacts is the answer, as JSON: facts of the asking node that no older copy of its directory
// can have.
type knownFacts struct {
	// The answering node is a member and has read its log. Otherwise its answer proves nothing.
	Member    bool   `json:"member"`
	Confirmed bool   `json:"confirmed,omitempty"` // Starts is the number that a majority has
	Starts    uint32 `json:"starts,omitempty"`    // by the cluster's record
	Removed   bool   `json:"removed,omitempty"`   // by the cluster's record
	Met       uint32 `json:"met,omitempty"`       // the newest process that was met
	Other     bool   `json:"other,omitempty"`     // … is not the one that asks
	// How many frames were on the node's disk, as processes before the asking one have reported.
	LogEnd uint64 `json:"log_end,omitempty"`
}

// confirmations are the nodes that have answered what they know of this one, by which its directory
// is no older copy. Only they may connect to this process.
type confirmations struct {
	mu     sync.Mutex
	given  map[uint64]bool          // these have confirmed this process
	met    map[uint64]bool          // these are to be asked; true: they have spoken since they were last asked
	asking map[uint64]int           // questions that they have not answered yet
	asked  map[uint64]time.Duration // when they were last asked
	wanted task.Signal              // of askOthers, once it runs
}

// confirmed refuses a node that has not been asked yet. The first process of a directory has
// nothing that it could have lost.
func (s *Self) confirmed(node uint64) error {
	if s.Identity().Starts <= 1 {
		return nil
	}
	v := &s.confirmations
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.given[node] {
		return nil
	}
	if v.met == nil {
		v.met = map[uint64]bool{}
	}
	if len(v.met) < ring.MaxNodes {
		v.met[node] = true
	}
	if v.wanted != nil {
		v.wanted.Set()
	}
	return errUnasked
}

// beginAsking reports whether a node is to be asked now, and counts the question. A node that is
// being asked, and speaks, may never have had the question: it is asked once more.
func (c *confirmations) beginAsking(now time.Duration, node uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, before := c.asked[node]
	spoke, isMet := c.met[node]
	pause := askMinPause
	if c.asking[node] > 0 {
		pause = askRetry
	}
	if c.given[node] || before && now < last+pause || c.asking[node] > 0 && !spoke {
		return false
	}
	if c.asking == nil {
		c.asking, c.asked, c.given = map[uint64]int{}, map[uint64]time.Duration{}, map[uint64]bool{}
	}
	c.asking[node]++
	c.asked[node] = now
	if isMet {
		c.met[node] = false
	}
	return true
}

// answered records whether a node that was asked confirms this process.
func (c *confirmations) answered(node uint64, confirms bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asking[node]--; c.asking[node] == 0 {
		delete(c.asking, node)
	}
	if confirms {
		c.given[node] = true
		delete(c.met, node)
		delete(c.asked, node)
	}
}

// open are the nodes of a list that have not confirmed it yet, and those that were met.
func (c *confirmations) open(nodes []ring.Node, self uint64) (ids []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nodes {
		if _, isMet := c.met[n.ID]; n.ID != self && !c.given[n.ID] && !isMet {
			ids = append(ids, n.ID)
		}
	}
	for id := range c.met {
		ids = append(ids, id)
	}
	slices.Sort(ids) // the order in which they are asked is the same in each run of a test
	return ids
}

func (c *confirmations) forget(node uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.given, node)
	delete(c.met, node)
	delete(c.asked, node)
}

// startCheck finds out whether this process runs on an older copy of its directory.
type startCheck struct {
	*local
	meta *metaClient
	end  *ending
}

// askOthers asks each node, until it has answered, for its knowledge of this one.
func (s *startCheck) askOthers(ctx context.Context) {
	if s.Identity().Starts <= 1 {
		return
	}
	wanted := s.tasks.NewSignal()
	s.confirmations.mu.Lock()
	s.confirmations.wanted = wanted
	s.confirmations.mu.Unlock()
	for ctx.Err() == nil {
		for _, node := range s.confirmations.open(s.State.Nodes(), s.id) {
			if s.confirmations.beginAsking(s.tasks.Now(), node) {
				s.tasks.Go(func() {
					known, from, err := s.askOf(ctx, node, false)
					s.confirmations.answered(node, err == nil && known.Member && s.isNewest(node, from, &known))
				})
			}
		}
		wanted.Wait(ctx, askRetry)
	}
}

func (s *startCheck) askOf(ctx context.Context, node uint64, confirm bool) (known knownFacts, from peer.Hello, err error) {
	addr := s.AddressOf(node)
	if addr == "" {
		return known, from, errNotYet
	}
	from, err = ask(ctx, s.Self, addr, methodKnown, knownQuestion{confirm}, &known)
	if from.Node != node || from.Cluster != s.Identity().ClusterID {
		return known, from, errNotYet
	}
	return known, from, err
}

// answerKnown answers a node with what this one knows of it.
func (s *Self) answerKnown(ctx context.Context, from peer.Hello, body []byte) ([]byte, error) {
	var asked knownQuestion
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, fmt.Errorf("node: read a question about an older directory: %w", err)
	}
	known := knownFacts{LogEnd: s.logEnds.before(from.Node, from.Starts)}
	if starts, nonce, ok := s.peers.Met(from.Node); ok {
		known.Met, known.Other = starts, starts != from.Starts || nonce != from.Nonce
	}
	if m := s.member.Load(); m != nil && m.hasRead() {
		known.Member = true
		if asked.Confirm {
			known.Confirmed = !m.behind(ctx, m.host.Applied(shard.Meta))
		}
		n, ok := m.State.Node(from.Node)
		known.Starts, known.Removed = n.Starts, ok && n.State == ring.NodeRemoved
	}
	return json.Marshal(known)
}

// hasRead reports whether the node's log is read.
func (l *local) hasRead() bool { return task.Ended(l.host.Started()) }

// isNewest judges by another node's knowledge. If this process runs on an older copy, or was
// removed, it ends, provided that the answer is believed.
func (s *startCheck) isNewest(node uint64, from peer.Hello, known *knownFacts) bool {
	asked, _ := s.State.Node(node)
	asked.ID = node
	if known.Removed {
		if s.end.believed(asked, from, "was removed from the cluster") {
			s.end.leaveCluster()
		}
		return false
	}
	opened, _ := s.host.LogEnd()
	id := s.Identity()
	why := id.older(known, opened)
	if why == nil {
		return true
	}
	if s.end.believed(asked, from, "runs on an older copy of its data directory") {
		s.end.haltAsOlder(fmt.Errorf("%w (by the answer of node %s)", why, from.Name))
	}
	return false
}

// older is why a directory is not the node's newest. It has this identity, and its log had opened
// frames when the process began.
func (id *Identity) older(known *knownFacts, opened uint64) error {
	switch {
	case known.Starts > id.Asked:
		return id.outdatedBy(known.Starts)
	case known.Met > id.Starts:
		return fmt.Errorf("%w: this is its start %d, and start %d has been seen", ring.ErrStale, id.Starts, known.Met)
	case known.Met == id.Starts && known.Other:
		return fmt.Errorf("%w: this is its start %d, and another process has been seen that was start %d too", ring.ErrStale, id.Starts, known.Met)
	case known.LogEnd > opened:
		return fmt.Errorf("%w: the log ends at frame %d, and frame %d of it was on disk", errLostEnd, opened, known.LogEnd)
	}
	return nil
}

// outdatedBy is why a directory is an older copy, if the cluster has recorded a start of the node
// for which this directory never asked. The starts that were asked for are on disk before the
// cluster is asked, so the answer may be lost.
func (id *Identity) outdatedBy(recorded uint32) error {
	if recorded <= id.Asked {
		return nil
	}
	return fmt.Errorf("%w: the cluster has recorded its start %d, and this directory knows of none after start %d", ring.ErrStale, recorded, id.Asked)
}

// Vet looks, before anything begins, whether the node's own log knows more than its identity: then
// identity.json was put back from a copy. Entries of the meta group that are not applied yet count
// too: of a node alone, and of one that lags behind, nobody else may know.
func (s *startCheck) Vet(tail iter.Seq[[]byte]) error {
	known, _ := s.State.Node(s.id)
	recorded := known.Starts
	for data := range tail {
		var cmd ring.Command
		if json.Unmarshal(data, &cmd) == nil && cmd.Verb == ring.Register && cmd.Node != nil && cmd.Node.ID == s.id {
			recorded = max(recorded, cmd.Node.Starts)
		}
	}
	id := s.Identity()
	if err := id.outdatedBy(recorded); err != nil {
		return s.outdated(fmt.Errorf("%w (by its own log: identity.json is older than the log)", err))
	}
	return nil
}

// mayRegister reports whether this start may be recorded. Before the first time, the record must be
// read as a majority has it: if it has a later process of the node, or another with the same
// number, this one must end. Afterwards nobody could know that any more.
func (s *startCheck) mayRegister(ctx context.Context) bool {
	id := s.Identity()
	if id.Asked >= id.Starts {
		return true
	}
	if s.meta.behind(ctx, s.host.Applied(shard.Meta)) && !s.confirmedByOthers(ctx) {
		return false
	}
	if s.isOutdated() {
		return false
	}
	if err := s.Change(func(id *Identity) { id.Asked = id.Starts }); err != nil {
		s.log.Error("this start could not be stored in identity.json, so it is not registered; retrying", "error", err)
		return false
	}
	return true
}

// confirmedByOthers has another node read the record, since this node's own copy may have stopped.
func (s *startCheck) confirmedByOthers(ctx context.Context) bool {
	for _, n := range s.others() {
		known, from, err := s.askOf(ctx, n.ID, true)
		if err == nil && known.Confirmed {
			return s.isNewest(n.ID, from, &known)
		}
	}
	return false
}

// isOutdated ends the process if this node's own copy of the record knows of a later one.
func (s *startCheck) isOutdated() bool {
	known, _ := s.State.Node(s.id)
	id := s.Identity()
	err := id.outdatedBy(known.Starts)
	if err != nil {
		s.end.haltAsOlder(err)
	}
	return err != nil
}

// outdated stores that this node's directory is an older copy, so that no later start votes with it
// either, and returns why it must end.
func (s *Self) outdated(why error) error {
	return halt.Record(s.cfg.FS, s.cfg.Dir, s.clock.WallMs(), &halt.Error{Reason: halt.OldDirectory, Err: fmt.Errorf("node %s: %w", s.cfg.Name, why)})
}
