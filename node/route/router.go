// Package route lets a node take any request: from any node to the shard that decides. It forwards
// operations and reads to the shards' leaders, gathers lists, counts and history from all of them,
// keeps the consumers that wait, runs bulk changes, and looks topics up.
//
// A Router is made once the node's shards are there. The parts of the node that it needs (its own
// shards, their leaders, calls to other nodes, time) are given to it as small interfaces, so that
// the simulator drives the same code: see package task. It decides nothing itself, keeps nothing on
// disk, and passes nothing on that another node has passed on.
package route

import (
	"cmp"
	"context"
	"errors"
	"time"

	"carillon/node/task"
	"carillon/shard"
	"carillon/shard/scheduler"
	"carillon/timer"
)

// The requests of one node to another about shards. The values are part of the protocol between
// nodes.
const (
	methodOps    uint8 = 1 + iota // wire.AppendOps → AppendAnswers
	methodTimer                   // wire.AppendTimerRequest → AppendTimer
	methodList                    // wire.AppendQuery → AppendPage
	methodCounts                  // wire.AppendCountsRequest → AppendCounts

	methodHistory  uint8 = 8  // wire.AppendHistoryQuery → AppendHistory
	methodWalk     uint8 = 12 // wire.AppendWalk → AppendSteps
	methodProgress uint8 = 13 // wire.AppendProgressRequest → AppendProgress
	methodState    uint8 = 15 // wire.AppendStateRequest → AppendStateAnswer
)

// The requests of one node to another for consumers.
const (
	methodCandidates uint8 = 32 + iota // wire.AppendCandidatesRequest → AppendCandidates
	methodPull                         // wire.AppendPullRequest → AppendPulled
	methodAwait                        // wire.AppendCandidatesRequest → AppendAwaited
	methodSlots      uint8 = 41        // wire.AppendSlots, then as methodList
)

// Times of a request, from its begin. A node that cannot reach a majority answers so within two
// seconds.
const (
	answerIn    = 1900 * time.Millisecond // then an operation that was sent is ErrUnknown
	timerCallIn = 900 * time.Millisecond  // one try to read one timer: there is time for a second
	// One try to list or count: longer than the host takes at most.
	scanCallIn = 6 * time.Second
)

// Host is the part of the node's own shards that a Router needs: shard.Host.
type Host interface {
	Do(id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error)
	DoAll(ops []timer.Op)
	Timer(id timer.ShardID, topic timer.TopicID, timer string) (*timer.Timer, error)
	// List gives a page of shards that this node leads, and which of them have answered.
	List(ids []timer.ShardID, q *timer.Query) (page timer.Page, led []timer.ShardID, err error)
	// Counts sums up a topic over the shards that this node leads.
	Counts(topics []timer.TopicID) ([]timer.Counts, error)
	Walk(id timer.ShardID, q *timer.Query, at timer.ScanCursor) ([]timer.Ref, timer.ScanCursor, error)
	// Standings is how far timers have come, if this node leads their shard.
	Standings(id timer.ShardID, q *timer.ProgressQuery) ([]scheduler.Standing, error)
	// Confirm has a majority confirm that this node leads, and OpenState opens the shard's state
	// for a backup; see shard.Host.
	Confirm(id timer.ShardID) (index uint64, err error)
	OpenState(id timer.ShardID, index uint64) (*shard.State, error)
	// Candidates are the first ready timers of a topic that is pulled, in the shards that this node
	// leads; Take leases of it.
	Candidates(ctx context.Context, topic timer.TopicID, most int) ([]timer.Candidate, error)
	PullFrom(ctx context.Context, topic timer.TopicID, leaseMs int64, shares []timer.Share) ([]timer.PulledTimer, error)
	// Leads reports whether this node leads a shard and serves it.
	Leads(id timer.ShardID) bool
	// Takes reports whether commands for a shard may be given to this node: it leads, or will very
	// soon name the leader.
	Takes(id timer.ShardID) bool
	// Leader is the leader of a shard as this node's replica, if there is one, knows it.
	Leader(id timer.ShardID) (node uint64, ok bool)
}

// LocalHistory is the node's own history.
type LocalHistory interface {
	List(q *timer.HistoryQuery) (page []*timer.HistoryEntry, more bool, err error)
	// Attempts are the recorded attempts of one timer, oldest first.
	Attempts(id timer.ShardID, topic timer.TopicID, timerID string, s *scheduler.Standing) []timer.HistoryAttempt
}

// Cluster is this node's knowledge of the others. Its methods must not block.
type Cluster interface {
	// LikelyLeaders lists the nodes that may lead a shard, the likeliest first; this node may be
	// among them.
	LikelyLeaders(id timer.ShardID) []uint64
	// LeadingNodes are the nodes that lead something, this one included.
	LeadingNodes() []uint64
	// LiveNodes are the other nodes that this one hears just now.
	LiveNodes() []uint64
	// Silent reports that a node has sent nothing for a time, and may be down.
	Silent(node uint64) bool
	// Replicas are the nodes that are to have a replica of a shard.
	Replicas(id timer.ShardID) []uint64
	// Shards is the number of timer shards, from 1 on, and how many the cluster was founded with.
	Shards() (now, first int)
	// Steady reports whether the host counts with that number, too.
	Steady() bool
}

// Peers calls other nodes.
type Peers interface {
	// Call has a node answer. After an error that is Config.NotSent, nothing has left this node;
	// after any other the node may have carried out the request. It ends with its context. The body
	// is the callee's.
	Call(ctx context.Context, node uint64, method uint8, body []byte) ([]byte, error)
}

// Config is the configuration of a Router.
type Config struct {
	Self     uint64
	Host     Host
	History  LocalHistory
	Cluster  Cluster
	Topic    func(timer.TopicID) (*timer.Topic, bool) // this node's copy
	Peers    Peers
	NotSent  error
	Tasks    task.Env
	BulkPage int // timers of one step of a bulk change's walk; 2048
	// SearchSlots is at how many slots a page of many topics looks; 4 Mi.
	SearchSlots int
	// Background runs work that continues after the request that began it; its context ends with
	// the node.
	Background func(run func(context.Context))
}

// Router has each shard's leader decide, this node or another, one hop away.
//
//   - An operation that was certainly not carried out (not sent, refused, no leader) is retried
//     with fresh hints for 1.5 s.
//   - A change that may have been carried out is never sent again: the client gets ErrUnknown. A
//     read is sent again.
//   - A request whose node is silent counts as broken off when another leader is known.
//   - Operations of one request on one shard are always sent together, in order. None is retried
//     behind a later one that may have been done.
//
// Its methods may be called from any goroutine, also before the host has started.
type Router struct {
	shardCount
	cfg     Config
	self    uint64
	host    Host
	tasks   task.Env
	waiters *pullWaiters
	pace    *bulkPace
	states  openStates
	awaited awaited

	deciders deciders // see Decider
}

// New makes a router. It starts nothing.
func New(cfg Config) *Router {
	cfg.BulkPage, cfg.SearchSlots = cmp.Or(cfg.BulkPage, bulkPage), cmp.Or(cfg.SearchSlots, searchSlots)
	return &Router{shardCount: shardCount{cluster: cfg.Cluster, topic: cfg.Topic}, cfg: cfg, self: cfg.Self, host: cfg.Host, tasks: cfg.Tasks, waiters: newPullWaiters(cfg.Tasks), pace: newBulkPace(cfg.Tasks), states: openStates{open: map[uint64]*openState{}}}
}

// Run looks after the consumers that wait, and closes what no backup reads any more, until the
// context ends.
func (r *Router) Run(ctx context.Context) {
	task.Every(ctx, r.tasks, watchInterval, func() {
		r.watchLeaders()
		r.states.expire(r.tasks.Now())
	})
}

// leads reports that this node leads a timer shard; another node may have asked for one that there
// is not.
func (r *Router) leads(id timer.ShardID) bool {
	return id > shard.Meta && int(id) <= r.shards() && r.host.Leads(id)
}

// takes reports that this node knows itself to be the place for a shard's commands.
func (r *Router) takes(id timer.ShardID) bool {
	return id > shard.Meta && int(id) <= r.shards() && r.host.Takes(id)
}

// leader is the other node that leads a timer shard as this node knows it; 0 unknown.
func (r *Router) leader(id timer.ShardID) uint64 {
	if id <= shard.Meta || int(id) > r.shards() {
		return 0
	}
	if leader, ok := r.host.Leader(id); ok && leader != r.self {
		return leader
	}
	return 0
}

// Decider is the other node that decided the last request about a timer shard which this node has
// passed on; 0 where this node leads the shard, or has passed on nothing.
func (r *Router) Decider(id timer.ShardID) uint64 {
	if r.leads(id) {
		return 0
	}
	return r.deciders.load(id)
}

// storeDecider keeps the node that has decided a request about a shard. Most requests find it kept.
func (r *Router) storeDecider(id timer.ShardID, node uint64, err error) {
	if err == nil && r.deciders.load(id) != node {
		r.deciders.store(id, node, r.shards())
	}
}

func (r *Router) led() []timer.ShardID { return r.ledOf(allShards(r.shards())) }

// Refused reports of an error that nothing was done, and that another node, or this one soon, may
// do it.
func Refused(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, timer.ErrNoLeader) || errors.Is(err, timer.ErrRecovering) {
		return true
	}
	_, moved := errors.AsType[timer.NotLeaderError](err)
	return moved
}

// untouched reports that nothing was done, for any reason.
func untouched(err error) bool {
	return Refused(err) || errors.Is(err, timer.ErrOverloaded) || errors.Is(err, timer.ErrMemory) || errors.Is(err, timer.ErrLowDisk)
}

// readAgain reports of an error that a read may still succeed.
func readAgain(err error) bool { return Refused(err) || errors.Is(err, timer.ErrUnknown) }

// unanswered is the error of a call of another node as this node's client is to have it; nil: there
// is an answer.
func (c *Config) unanswered(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, c.NotSent):
		return timer.ErrNoLeader
	}
	return timer.ErrUnknown
}

// fromPeer is another node's error as this node's client is to have it: that the other stops is not
// the client's concern.
func fromPeer(err error) error {
	if errors.Is(err, timer.ErrStopped) {
		return timer.ErrUnknown
	}
	return err
}
