package timer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reasons why a node cannot answer now. Each is retryable; after ErrUnknown and ErrStopped the
// change may have taken effect.
var (
	ErrNoLeader   = errors.New("the shard has no leader now")
	ErrOverloaded = errors.New("too much is waiting")
	ErrMemory     = errors.New("the memory limit is reached")
	ErrLowDisk    = errors.New("the disk is almost full")
	ErrUnknown    = errors.New("no answer in time; the change may have taken effect or may yet")
	ErrStopped    = errors.New("the node is stopping")
	ErrRecovering = errors.New("the node is reading its log and will serve soon")
	// ErrHistory means that a node that may have the timer's end did not answer: nothing is
	// guessed.
	ErrHistory = errors.New("a node did not answer that may know whether this add was made before; nothing was changed")
)

// Answers about topics.
var (
	ErrNoTopic  = errors.New("no such topic")
	ErrNotEmpty = errors.New("the topic is not empty")
	// ErrTooManyTopics is answered when a topic would be one more than MaxTopics.
	ErrTooManyTopics = errors.New("there are as many topics as a cluster takes; delete some first")
	// ErrTopicVersion refuses a change of a topic that is not at the version that it is for, and a
	// create of one that is there.
	ErrTopicVersion = errors.New("the topic is not at that version")
	// ErrOutcomeTopic refuses a policy that names a topic which takes no outcomes.
	ErrOutcomeTopic = errors.New("on_done, on_dead: a topic that exists and is not serial is needed")
	// ErrNamedSerial refuses to make a topic serial that policies name for their outcomes.
	ErrNamedSerial = errors.New("serial: policies name the topic in on_done or on_dead, where a serial one may not be; name another there first")
	// ErrNamed refuses to delete a topic that policies of others name for their outcomes.
	ErrNamed = errors.New("policies of other topics name the topic in on_done or on_dead")
)

// MaxTopics bounds the topics of a cluster.
const MaxTopics = 100_000

// ErrFeatureLevel refuses what a node of the cluster does not understand.
var ErrFeatureLevel = errors.New("not all nodes of the cluster run a release that knows this yet")

// ErrShards is the answer to a read of many shards when there are more of them than at its begin:
// it has to begin again. It matches ErrNoLeader.
var ErrShards = fmt.Errorf("%w: there are more shards since", ErrNoLeader)

// Transient reports that an error means that nothing was done and that a retry may help.
func Transient(err error) bool {
	known := []error{ErrNoLeader, ErrOverloaded, ErrRecovering, ErrMemory, ErrLowDisk}
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}

// NotLeaderError refuses an operation that only the leader of a shard can do: nothing was done. It
// matches ErrNoLeader.
type NotLeaderError struct {
	Leader uint64 // the leader that this node knows; 0: unknown
}

func (e NotLeaderError) Error() string {
	if e.Leader == 0 {
		return "this node does not lead the shard, and knows of nobody who does"
	}
	return fmt.Sprintf("this node does not lead the shard; node %010x may", e.Leader)
}

func (NotLeaderError) Is(target error) bool { return target == ErrNoLeader }

// LowDiskError refuses commands that add data: the disk of a node with a replica of the shard is
// almost full. It matches ErrLowDisk.
type LowDiskError struct {
	Node  uint64
	Name  string // of the node, if it is known
	Path  string // of its data directory, if it is known
	Free  uint64 // bytes
	Limit uint64 // adds are refused at this many free bytes or fewer
	// Lack is what the log of the node waits for; "": it does not wait, and the numbers are why.
	Lack string
}

func (e LowDiskError) Error() string {
	name, path := e.Name, ""
	if name == "" {
		name = fmt.Sprintf("node %010x", e.Node)
	}
	if e.Path != "" {
		path = " (" + e.Path + ")"
	}
	if e.Lack != "" {
		return fmt.Sprintf("%s: %s, and its log waits%s", name, e.Lack, path)
	}
	return fmt.Sprintf("%s has %s free, and adds are refused at %s or less%s", name, mebibytes(e.Free), mebibytes(e.Limit), path)
}

func (LowDiskError) Is(target error) bool { return target == ErrLowDisk }

// SnapshotError ends a backup: the leader of a shard could not write the snapshot of which it is
// made.
type SnapshotError struct {
	Name, Path string // of the node, and of its data directory
	Why        string
}

func (e SnapshotError) Error() string {
	return fmt.Sprintf("%s could not write the snapshot of which a backup is made: %s; look at its disk (%s), or drain it, and take the backup again", e.Name, e.Why, e.Path)
}

// DeletingError cuts a forced deletion of a topic off that has begun: the topic takes nothing any
// more, and the nodes finish the deletion by themselves.
type DeletingError struct{ Cause error }

func (e DeletingError) Error() string {
	return e.Cause.Error() + "; the topic's deletion has begun, and goes on by itself"
}

func (e DeletingError) Unwrap() error { return e.Cause }

func mebibytes(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// LeasedError refuses to change a topic's delivery because some of its timers are leased.
type LeasedError struct{ Leased int64 }

func (LeasedError) Error() string { return "timers of the topic are leased" }

// InUseError refuses a policy without something that the topic has and that is needed: a callback
// URL that pending timers do not have themselves, signing secrets, or the key that is part of the
// ids of pending timers.
type InUseError struct {
	Timers  int64 // pending ones that would have no URL
	Secrets int   // those that the topic has
	Keyed   int64 // pending ones whose ids would not have the topic's key
	Naming  int64 // pending ones of other topics that name the topic for their outcomes
}

func (e InUseError) Error() string {
	var uses []string
	if e.Secrets > 0 {
		uses = append(uses, "the topic has "+many(int64(e.Secrets), "signing secret")+" and would have none")
	}
	switch {
	case e.Naming == 1:
		uses = append(uses, "1 pending timer of another topic names the topic in on_done or on_dead")
	case e.Naming > 1:
		uses = append(uses, fmt.Sprintf("%d pending timers of other topics name the topic in on_done or on_dead", e.Naming))
	}
	if e.Keyed > 0 {
		uses = append(uses, many(e.Keyed, "pending timer")+" would keep ids without the key, and an add of the same id would make another timer")
	}
	if e.Timers > 0 {
		uses = append(uses, many(e.Timers, "pending timer")+" would have no callback URL")
	}
	return strings.Join(uses, "; ")
}

// many is a number with its noun.
func many(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
