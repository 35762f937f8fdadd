// Package backend is the node as the API needs it: interfaces that a node implements, and the data
// that they exchange. It imports nothing of the API.
package backend

import (
	"context"

	"carillon/timer"
	"carillon/timer/bulk"
)

// Engine is the node as the API needs it. Every method, here and of Core, may be called from any
// goroutine. Those of Core block until there is an answer, bounded by the context and by the node's
// own limit (timer.ErrUnknown). Their errors are those of package timer.
type Engine interface {
	// Core is what the node does as a member of its cluster. timer.ErrRecovering: it has read its
	// log not yet, or has no copy of the cluster's state.
	Core() (*Core, error)
	// Shards is P, the number of timer shards; see timer.ShardOf.
	Shards() int
	// Leader is the host:port of the API of the node that leads a shard, as this node knows it; ""
	// where it leads the shard itself or knows of no leader.
	Leader(id timer.ShardID) string
	// View is the cluster as this node sees it now. It never waits for another node.
	View() ClusterView
	// Ready is nil when the node serves; else it is the reason why not.
	Ready() error
}

// Core is the parts of a node that is of a cluster.
type Core struct {
	Timers       Timers
	Topics       Topics
	Consumers    Consumers
	Cluster      Cluster
	Live         Live
	Destinations Destinations
	Backup       Backup
	TestClock    TestClock // nil: time passes by itself
}

// Timers are those of all shards. A command is its caller's again when it is answered. The texts
// and payloads in it may be kept.
type Timers interface {
	// Do has one command decided by its shard. brief: the answer needs no Timer.
	Do(ctx context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error)
	// DoAll has many decided, those of one shard in order, and fills in every Op's answer.
	DoAll(ctx context.Context, ops []timer.Op)
	// Timer reads one timer, linearizably; nil when there is none.
	Timer(ctx context.Context, id timer.ShardID, topic timer.TopicID, timer string) (*timer.Timer, error)
	// List gives a page of the timers of all shards; see timer.Page. One that is empty and has More
	// found no room.
	List(ctx context.Context, q *timer.Query) (timer.Page, error)
	// Bulk does one change to all timers that a query selects, in all shards and at the node's
	// pace. It ends early with the first error, or with the context; the changes made by then are
	// in the bulk.Update, and stay.
	Bulk(ctx context.Context, b *bulk.Update) error
	// History gives a page of a topic's ended timers, and whether there is more.
	History(ctx context.Context, q *timer.HistoryQuery) (page []*timer.HistoryEntry, more bool, err error)
	// Progress is why timers of one shard wait, and how their attempts went. It is asked together
	// with a read, and takes no second try.
	Progress(ctx context.Context, id timer.ShardID, q *timer.ProgressQuery) ([]timer.Progress, error)
	// Descendants are the shards that may have timers by now to which this one gave their numbers.
	Descendants(id timer.ShardID) []timer.ShardID
	// Counts sums up each of the topics over all shards, in one go.
	Counts(ctx context.Context, topics []timer.TopicID) ([]timer.Counts, error)
}

// Topics are those of the cluster.
type Topics interface {
	// Named finds a topic. timer.ErrNoTopic means that there is none, also where others may have
	// made it; any other error means that no node that knows could be asked.
	Named(ctx context.Context, name string) (*timer.Topic, error)
	// Latest finds a topic as the last change has left it that was decided before. Its errors are
	// Named's.
	Latest(ctx context.Context, name string) (*timer.Topic, error)
	// ByID is Named for a topic's number.
	ByID(ctx context.Context, id timer.TopicID) (*timer.Topic, error)
	// Here and List read this node's copy of the topics, which may be behind; List in order of
	// name, those after a name.
	Here(name string) (*timer.Topic, bool)
	List(after string, limit int) []*timer.Topic
	// Count counts the topics whose names begin so and for which f holds, up to most.
	Count(prefix string, most int, f func(*timer.Topic) bool) int
	// Ensure makes the topic with the default policy unless it is there.
	Ensure(ctx context.Context, name string) (*timer.Topic, error)
	// Put sets the policy, making the topic if need be. It answers timer.ErrTopicVersion where the
	// change is for another version, and a timer.InUseError for what is needed, unless forced.
	Put(ctx context.Context, name string, p *timer.Policy, change timer.TopicChange) (t *timer.Topic, created bool, err error)
	SetPaused(ctx context.Context, name string, paused bool) (*timer.Topic, error)
	// Delete answers ErrNotEmpty unless the topic is empty or the change is forced, and how many
	// timers it cancelled, also with an error. A DeletingError says that it goes on.
	Delete(ctx context.Context, name string, change timer.TopicChange) (cancelled int, err error)
}
