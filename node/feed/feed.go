// Package feed shows the events of a cluster to listeners, through any node: shards' leaders report
// the events of timers, and each listener gets those that it asked for.
//
// A Feed gets the events of its own node's shards. While a listener is here, it fetches those of
// the other nodes: at each of them the listener has a subscriber, which keeps a bounded number of
// events until they are fetched. Events that find no room are counted, and the listener gets their
// number. Without a listener no event is kept. A Feed also asks all nodes for their stats, and for
// the timers that come due.
package feed

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"carillon/node/task"
	"carillon/shard/events"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/transport/api/backend"
)

// The requests of one node to another, in JSON both ways. The values are part of the protocol
// between nodes; a node that does not know them answers so.
const (
	methodEvents uint8 = 48 + iota // an ask, answered by a batch
	methodDue                      // a dueAsk, answered by a dueHere
	methodStats                    // nothing, answered by a backend.NodeStats
)

// Bounds.
const (
	subscriberEvents  = 1024                   // that wait for a listener
	remoteSubscribers = 512                    // of other nodes' listeners
	subscriberIdle    = 30 * time.Second       // after which a subscriber that nobody asks for is closed
	pollWait          = 10 * time.Second       // one question to another node, …
	pollTimeout       = 15 * time.Second       // … and its answer
	pollPause         = 100 * time.Millisecond // between questions that brought something
	retryPause        = 200 * time.Millisecond // after one that brought none
	askInterval       = time.Second            // for nodes that have come or gone
)

// Config is the configuration of a Feed.
type Config struct {
	Self     uint64
	Node     string                                      // this node's name
	Topic    func(id timer.TopicID) (*timer.Topic, bool) // this node's copy
	Nodes    func() []uint64                             // the others that are up
	Name     func(node uint64) string                    // of another node
	Call     func(ctx context.Context, node uint64, method uint8, body []byte) ([]byte, error)
	Members  func() []uint64          // of the cluster, up or not; this one too
	Breakers func() map[string]string // states, of destinations that this node calls
	States   func() map[string]string // of nodes, as this one sees them
	Growth   func() backend.Growth    // of the number of shards
	Shards   func() (now, first int)  // timer shards, from 1 on; see member.Member
	Steady   func() bool
	Rates    *Rates
	Backup   func() *backend.BackupStats // nil: none are made by a schedule
	Tasks    task.Env
	NowMs    func() int64 // the time of day
}

// Feed is a node's. Attach is called before everything but Watches and Saw. It implements
// events.Watcher. Its methods may be called from any goroutine.
type Feed struct {
	cfg    Config
	host   Host
	polled polledStates
	pause  time.Duration // duePause

	listeners atomic.Pointer[listeners] // copied to be changed, under mu
	inbox     inbox

	mu     sync.Mutex
	remote map[remoteKey]*subscriber
	last   atomic.Uint64 // number of a listener of this process
}

type remoteKey struct{ node, number uint64 }

// New makes a feed. random makes its listeners' numbers unlike those of earlier processes.
func New(cfg Config, random uint64) *Feed {
	f := &Feed{cfg: cfg, pause: duePause, remote: map[remoteKey]*subscriber{}}
	f.last.Store(random)
	f.listeners.Store(&listeners{})
	return f
}

// Attach gives the feed the node's shards.
func (f *Feed) Attach(h Host) { f.host = h }

// event is a shard's event in the form of the API.
func (f *Feed) event(e *events.Event, topic string) backend.Event {
	t := e.Timer
	out := backend.Event{Topic: topic, ID: t.ID, AtMs: e.AtMs, Labels: t.Labels, Node: f.cfg.Node}
	switch e.Kind {
	case events.TimerAdded:
		out.Kind, out.DueMs = backend.EventAdded, t.DueMs
	case events.TimerChanged:
		out.Kind, out.DueMs = backend.EventChanged, t.DueMs
	case events.TimerCancelled:
		out.Kind = backend.EventCancelled
	case events.TimerDied:
		out.Kind, out.Reason = backend.EventDead, backend.ReasonName(t.Reason)
		out.Status, out.Error = t.LastStatus, t.LastError
	case events.AttemptEnded:
		a := &e.Attempt
		out.Kind, out.Attempt, out.Status, out.Error, out.LateMs = backend.EventFired, a.Attempt, a.Status, a.Err, max(t.LatenessMs, 0)
		switch e.State {
		case timer.Done:
			out.Result = "success"
		case timer.Dead:
			out.Result = "dead"
		case timer.Cancelled:
			out.Result = "cancelled"
		default:
			out.Result, out.NextMs = "retry", t.NextMs
		}
	}
	return out
}

// ask is one question for another node's events.
type ask struct {
	Number uint64        `json:"number"` // of the listener
	Watch  backend.Watch `json:"watch"`
	First  bool          `json:"first"` // it has not asked before
	WaitMs int64         `json:"wait_ms"`
}

// batch is the answer.
type batch struct {
	Events []backend.Event `json:"events,omitempty"`
	Missed int64           `json:"missed,omitempty"`
	// The events that were kept for the listener are gone, nobody knows how many.
	Lost bool `json:"lost,omitempty"`
	Full bool `json:"full,omitempty"` // too many listen here
}

// Serves reports whether a method is the feed's.
func Serves(method uint8) bool { return method >= methodEvents && method <= methodStats }

// Serve answers another node.
func (f *Feed) Serve(ctx context.Context, from uint64, method uint8, body []byte) ([]byte, error) {
	switch method {
	case methodDue:
		return f.serveDue(body)
	case methodStats:
		return f.serveStats()
	}
	return f.serveEvents(ctx, from, body)
}

func (f *Feed) serveEvents(ctx context.Context, from uint64, body []byte) ([]byte, error) {
	var a ask
	if err := json.Unmarshal(body, &a); err != nil {
		return nil, encoding.ErrFormat
	}
	s, known := f.subscriberOf(remoteKey{from, a.Number}, &a.Watch)
	if s == nil {
		return json.Marshal(&batch{Full: true})
	}
	b := batch{Lost: !known && !a.First}
	if !b.Lost {
		b.Events, b.Missed = s.wait(ctx, f.cfg.Tasks, min(time.Duration(a.WaitMs)*time.Millisecond, pollWait))
	}
	f.touch(s)
	return json.Marshal(&b)
}

// subscriberOf is the subscriber of another node's listener here. It is made if it is missing.
// Those that no node asks for are closed.
func (f *Feed) subscriberOf(key remoteKey, w *backend.Watch) (s *subscriber, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tidyLocked()
	if s, known = f.remote[key]; known {
		f.touch(s)
		return s, true
	}
	if len(f.remote) >= remoteSubscribers {
		return nil, false
	}
	s = f.open(w)
	s.remote = true
	f.remote[key] = s
	f.addLocked(s)
	return s, false
}

// touch records that another node has asked for a subscriber just now.
func (f *Feed) touch(s *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = f.cfg.Tasks.Now()
}

// tidyLocked closes the subscribers that other nodes have not asked for lately.
func (f *Feed) tidyLocked() {
	now := f.cfg.Tasks.Now()
	for key, s := range f.remote {
		s.mu.Lock()
		idle := now - s.asked
		s.mu.Unlock()
		if idle > subscriberIdle {
			delete(f.remote, key)
			f.removeLocked(s)
		}
	}
}

// TidyInterval is how often Tidy is to be called.
const TidyInterval = subscriberIdle

func (f *Feed) Tidy() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tidyLocked()
}
