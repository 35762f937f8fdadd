package node

import (
	"context"
	"errors"
	"time"

	"carillon/shard"
)

// What one node asks of another about shards. The values are part of the protocol between nodes.
const (
	methodOps    uint8 = 1 + iota // shard.AppendOps → AppendAnswers
	methodTimer                   // shard.AppendTimerRequest → AppendTimer
	methodList                    // shard.AppendQuery → AppendTimers
	methodCounts                  // shard.AppendCountsRequest → AppendCounts

	methodHistory uint8 = 8 // shard.AppendHistoryQuery → AppendHistory
)

// Times of a request, from its begin. A node that cannot reach a majority says so within two seconds.
const (
	retryFor    = 1500 * time.Millisecond // then what surely was not done is ErrNoLeader
	answerIn    = 1900 * time.Millisecond // then what was sent is ErrUnknown
	firstPause  = 10 * time.Millisecond   // before the second try; doubling
	longPause   = 100 * time.Millisecond
	timerCallIn = 900 * time.Millisecond // one try to read one timer: there is time for a second
	scanCallIn  = 6 * time.Second        // one try to list or count: longer than the host takes at most
)

// localHost is what a router needs of the node's own shards: shard.Host.
type localHost interface {
	Do(ctx context.Context, id shard.ID, cmd *shard.Command, brief bool) (shard.Result, error)
	DoAll(ctx context.Context, ops []shard.Op)
	Timer(ctx context.Context, id shard.ID, topic shard.TopicID, timer string) (*shard.Timer, error)
	List(ctx context.Context, id shard.ID, q *shard.Query) ([]*shard.Timer, error)
	// Counts sums up a topic over the shards that this node leads.
	Counts(ctx context.Context, topics []shard.TopicID) ([]shard.Counts, error)
	Walk(ctx context.Context, id shard.ID, q *shard.Query, at shard.Waypoint) ([]shard.Mark, shard.Waypoint, error)
	// Offers are the first of what is ready of a topic that is pulled, in the shards that this node leads; Take leases of it.
	Offers(ctx context.Context, topic shard.TopicID, most int) ([]shard.Offer, error)
	Take(ctx context.Context, topic shard.TopicID, leaseMs int64, shares []shard.Share) ([]shard.Taken, error)
	// Leads says whether this node leads a shard and serves it.
	Leads(id shard.ID) bool
	// Takes says whether commands for a shard may be given to this node: it leads, or will say very soon who does.
	Takes(id shard.ID) bool
	// Leader is who leads a shard as this node's replica, if there is one, knows it.
	Leader(id shard.ID) (node uint64, ok bool)
}

// routes are a router's ways to other nodes.
type routes struct {
	// hint lists who may lead a shard, the likeliest first; this node may be among them. It must not block.
	hint func(id shard.ID) []uint64
	// call has a node answer. An error that is notSent says that nothing left this node; after any other the node may have done
	// what it was asked. It ends with its context. The body is the callee's.
	call    func(ctx context.Context, node uint64, method uint8, body []byte) ([]byte, error)
	notSent error
	// leaders are the nodes that lead something, this one included, as far as this one has heard. It must not block.
	leaders func() []uint64
	// heard are the other nodes that this one hears just now. It must not block.
	heard func() []uint64
	// spawn runs what goes on for a while, until its context ends.
	spawn func(func(context.Context))
}

// router lets this node take any request: it has each shard's leader decide, itself or another node, one hop away.
//
//   - What surely was not done (not sent, refused, no leader) is tried again, with fresh hints, for a second and a half.
//   - A change that may have been taken is never sent again: the client has ErrUnknown. A read is.
//   - Operations of a request on one shard always travel together, in order; one is not tried again behind a later one that may
//     have been done.
//
// Its methods may be called from any goroutine, once the host has started or not.
type router struct {
	self   uint64
	shards int
	host   localHost
	past   localPast
	lounge *lounge
	routes
}

func newRouter(self uint64, shards int, host localHost, ways routes) *router {
	return &router{self: self, shards: shards, host: host, lounge: newLounge(), routes: ways}
}

// leads reports that this node leads a timer shard; another node may have asked for one that there is not.
func (r *router) leads(id shard.ID) bool {
	return id > shard.Meta && int(id) <= r.shards && r.host.Leads(id)
}

// takes reports that this node is the place for a shard's commands, as far as it can tell.
func (r *router) takes(id shard.ID) bool {
	return id > shard.Meta && int(id) <= r.shards && r.host.Takes(id)
}

// leader is who else leads a timer shard as this node knows it; 0 unknown.
func (r *router) leader(id shard.ID) uint64 {
	if id <= shard.Meta || int(id) > r.shards {
		return 0
	}
	if leader, ok := r.host.Leader(id); ok && leader != r.self {
		return leader
	}
	return 0
}

// refused says of an error that nothing was done, and that another node, or this one soon, may do it.
func refused(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, shard.ErrNoLeader) || errors.Is(err, shard.ErrRecovering) {
		return true
	}
	_, moved := errors.AsType[shard.NotLeaderError](err)
	return moved
}

// untouched says that nothing was done, for whatever reason.
func untouched(err error) bool {
	return refused(err) || errors.Is(err, shard.ErrOverloaded) || errors.Is(err, shard.ErrMemory) || errors.Is(err, shard.ErrLowDisk)
}

// remotely is another node's error as this node's client is to have it: that the other stops is not the client's concern.
func remotely(err error) error {
	if errors.Is(err, shard.ErrStopped) {
		return shard.ErrUnknown
	}
	return err
}

// aim is where a request's operations on one shard go.
type aim struct {
	node  uint64 // in this round; 0 nobody is known
	told  uint64 // who leads, as the node that was asked last says; 0 it does not know
	tries int
	asked bool // this node, which did not lead; it is not asked again before it does
	round int  // in which node was chosen
}

// take chooses the node for a round.
func (a *aim) take(r *router, id shard.ID) {
	told := a.told
	a.told = 0
	switch {
	case r.leads(id):
		a.node = r.self
	case told != 0 && told != r.self:
		a.node = told
	case !a.asked && r.takes(id):
		a.node, a.asked = r.self, true
	default:
		a.node = r.candidate(id, a.tries)
		a.tries++
	}
}

// heed keeps what an error says of who leads; true when it names somebody else.
func (a *aim) heed(err error) bool {
	moved, ok := errors.AsType[shard.NotLeaderError](err)
	if !ok || moved.Leader == a.node {
		return false
	}
	a.told = moved.Leader
	return a.told != 0
}

// candidate is the n-th of the nodes that may lead a shard, over and over: who leads as this node's replica knows it, then the hints.
func (r *router) candidate(id shard.ID, n int) uint64 {
	leader := r.leader(id)
	if leader != 0 && n == 0 {
		return leader
	}
	list := r.hint(id)
	other := func(node uint64) bool { return node != 0 && node != r.self && node != leader }
	count := 0
	if leader != 0 {
		count++
	}
	for _, node := range list {
		if other(node) {
			count++
		}
	}
	if count == 0 {
		return 0
	}
	n %= count
	if leader != 0 {
		if n == 0 {
			return leader
		}
		n--
	}
	for _, node := range list {
		if !other(node) {
			continue
		}
		if n == 0 {
			return node
		}
		n--
	}
	return 0
}

// patience paces the tries of one request.
type patience struct {
	begin    time.Time
	pause    time.Duration
	followed bool // a node said who leads, and was believed at once
}

// wait returns when it is time for another try; false when there is none. The first time that somebody was named, at once.
func (p *patience) wait(ctx context.Context, told bool) bool {
	pause := max(p.pause, firstPause)
	if told && !p.followed {
		p.followed, pause = true, 0
	} else {
		p.pause = min(2*pause, longPause)
	}
	if time.Since(p.begin)+pause >= retryFor || ctx.Err() != nil {
		return false
	}
	if pause == 0 {
		return true
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
