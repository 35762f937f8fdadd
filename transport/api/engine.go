package api

import (
	"context"

	"carillon/timer"
	"carillon/timer/bulk"
)

// Engine is the node as the API needs it; see Cluster for the other nodes. Every method may be
// called from any goroutine and blocks until there is an answer, bounded by the context and by the
// engine's own limit (ErrUnknown). The errors are those of package timer.
type Engine interface {
	// Shards is P, the number of timer shards; see timer.ShardOf.
	Shards() int
	// Leader is the host:port of the API of the node that leads a shard, as this node knows it; ""
	// where it leads the shard itself or knows of no leader.
	Leader(id timer.ShardID) string

	// Do has one command decided by its shard. brief: the answer needs no Timer.
	Do(ctx context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error)
	// DoAll has many decided, those of one shard in order, and fills in every Op's answer.
	DoAll(ctx context.Context, ops []Op)
	// Timer reads one timer, linearizably; nil when there is none.
	Timer(ctx context.Context, id timer.ShardID, topic timer.TopicID, timer string) (*timer.Timer, error)
	// List answers a query on one shard.
	List(ctx context.Context, id timer.ShardID, q *timer.Query) ([]*timer.Timer, error)
	// Bulk does one change to all timers that a query selects, in all shards and at the node's
	// pace. It ends early with the first error, or with the context; the changes made by then are
	// in the bulk.Update, and stay.
	Bulk(ctx context.Context, b *bulk.Update) error
	// History gives a page of a topic's ended timers, and whether there is more.
	History(ctx context.Context, q *timer.HistoryQuery) (page []*timer.HistoryEntry, more bool, err error)
	// Progress tells of timers of one shard why they wait, and how their attempts went. It is asked
	// beside a read, and takes no second try.
	Progress(ctx context.Context, id timer.ShardID, q *timer.ProgressQuery) ([]timer.Progress, error)
	// Counts sums up each of the topics over all shards, in one go.
	Counts(ctx context.Context, topics ...timer.TopicID) ([]timer.Counts, error)

	// FindTopic finds a topic. timer.ErrNoTopic says that there is none, also where others may have
	// made it; any other error says that no node that knows could be asked.
	FindTopic(ctx context.Context, name string) (*timer.Topic, error)
	// LatestTopic finds a topic as the last change has left it that was decided before. Its errors
	// are FindTopic's.
	LatestTopic(ctx context.Context, name string) (*timer.Topic, error)
	// Topic and Topics read this node's copy of the topics, which may be behind; Topics in order of
	// name, those after a name.
	Topic(name string) (*timer.Topic, bool)
	Topics(after string, limit int) []*timer.Topic
	// CountTopics counts the topics whose names begin so and for which f holds, up to most.
	CountTopics(prefix string, most int, f func(*timer.Topic) bool) int
	// EnsureTopic makes the topic with the default policy unless it is there.
	EnsureTopic(ctx context.Context, name string) (*timer.Topic, error)
	// PutTopic sets the policy, making the topic if need be. It answers timer.ErrTopicVersion where the
	// change is for another version, and a timer.InUseError for what is needed, unless forced.
	PutTopic(ctx context.Context, name string, p *timer.Policy, change timer.TopicChange) (t *timer.Topic, created bool, err error)
	SetPaused(ctx context.Context, name string, paused bool) (*timer.Topic, error)
	// DeleteTopic answers ErrNotEmpty unless the topic is empty or the change is forced, and how many
	// timers it cancelled.
	DeleteTopic(ctx context.Context, name string, change timer.TopicChange) (cancelled int, err error)

	// Ready is nil when the node serves; else it says why not.
	Ready() error

	Cluster
	Consumers
	Live
	Destinations
}

// Op is one command of DoAll.
type Op = timer.Op
