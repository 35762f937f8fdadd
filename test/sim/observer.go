package sim

import (
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// observer counts a host's events.
type observer struct{ n *node }

func (o *observer) Command(timer.Kind, timer.Code) {}
func (o *observer) Outcome(topic timer.TopicID, out *table.Outcome) {
	o.n.w.note(o.n, "outcome", uint64(out.Kind), out.Seq, "")
	o.n.w.checker.attempts.spent(o.n, topic, out)
}
func (o *observer) Expired()                        {}
func (o *observer) Outcomes(int, int)               {}
func (o *observer) Frame(int)                       {}
func (o *observer) Lateness(int64, bool, *[16]byte) {}
func (o *observer) Elected()                        { o.n.w.counts.Elections++ }
func (o *observer) Snapshot(time.Duration)          { o.n.w.counts.Snapshots++ }
func (o *observer) SnapshotSent(int64)              {}
func (o *observer) DeadReplaced(int)                {}
func (o *observer) SnapshotReceived(int64)          {}
