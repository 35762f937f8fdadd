package backend

import (
	"context"

	"carillon/timer"
)

// Live is the part of a node that shows the API the work of the whole cluster.
type Live interface {
	// Listen begins a stream of the events of all nodes. The stream ends with the context.
	Listen(ctx context.Context, w *Watch) EventStream
	// Due counts the timers that come due, over all shards that have a leader.
	Due(ctx context.Context, q *DueQuery) (*Due, error)
	// Stats counts the work of all nodes in the last minute.
	Stats(ctx context.Context) *ClusterStats
}

// DueQuery asks how many timers come due when.
type DueQuery struct {
	Topics   []timer.TopicID
	All      bool // of all topics
	FromMs   int64
	BucketMs int64
	Buckets  int
}

// Due is the answer: scheduled timers by their next attempt.
type Due struct {
	Buckets        []int64
	Overdue, Later int64 // before and behind the buckets
	Shards         int   // that there are, …
	Counted        int   // … and of those that were counted
}

// Minute counts the work of a node in the last minute.
type Minute struct {
	WindowMs int64 `json:"window_ms"` // less than a minute, when the node has only begun

	Added     int64 `json:"added"`
	Changed   int64 `json:"changed"`
	Cancelled int64 `json:"cancelled"`
	Succeeded int64 `json:"succeeded"`
	Retried   int64 `json:"retried"`
	Died      int64 `json:"died"`

	AddedEach []int64 `json:"added_each"` // in each second, the oldest first
	FiredEach []int64 `json:"fired_each"` // attempts that ended
	Late      []int64 `json:"late"`       // first attempts by their lateness, as nodes know it
}

type NodeStats struct {
	Name  string `json:"-"`
	Error string `json:"-"` // why nothing is known

	Minute
	Scheduled int64 `json:"scheduled"` // in the shards that it leads
	Leased    int64 `json:"leased"`
	Dead      int64 `json:"dead"`
	Overdue   int64 `json:"overdue"`
	Leads     int   `json:"leads"`

	Backup *BackupStats `json:"backup,omitempty"` // nil: it makes none by a schedule

	Lateness Lateness `json:"-"`
}

// BackupStats is how a node's schedule of backups stands. Only the node that makes them knows more
// than the schedule.
type BackupStats struct {
	Every     string `json:"every"`                // cron, in UTC
	MadeMs    int64  `json:"made_ms,omitempty"`    // the last one that was whole; 0: not known here
	OverdueMs int64  `json:"overdue_ms,omitempty"` // for how long one has been due and is not made
	Error     string `json:"error,omitempty"`      // of the last try; "": it went well
}

// Lateness of first attempts, in ms, rounded up to the buckets of the nodes.
type Lateness struct{ Count, P50, P90, P99, Max int64 }

// ClusterStats are all nodes', in order of name.
type ClusterStats struct {
	Nodes    []NodeStats
	Lateness Lateness // of all together
}

// Add sums up nodes. Their seconds are about the same.
func (s *NodeStats) Add(n *NodeStats) {
	s.WindowMs = max(s.WindowMs, n.WindowMs)
	s.Added += n.Added
	s.Changed += n.Changed
	s.Cancelled += n.Cancelled
	s.Succeeded += n.Succeeded
	s.Retried += n.Retried
	s.Died += n.Died
	s.AddedEach, s.FiredEach = addLatest(s.AddedEach, n.AddedEach), addLatest(s.FiredEach, n.FiredEach)
	s.Scheduled += n.Scheduled
	s.Leased += n.Leased
	s.Dead += n.Dead
	s.Overdue += n.Overdue
	s.Leads += n.Leads
}

// addLatest adds two series that end now.
func addLatest(a, b []int64) []int64 {
	if len(a) < len(b) {
		a, b = append([]int64(nil), b...), a
	}
	for i := range b {
		a[len(a)-len(b)+i] += b[i]
	}
	return a
}
