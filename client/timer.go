package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// State is where a timer is in its life.
type State string

// The states of a timer.
const (
	Scheduled State = "scheduled"
	Leased    State = "leased"
	Done      State = "done"
	Dead      State = "dead"
	Cancelled State = "cancelled"
)

// Reason is why a timer is Dead.
type Reason string

// The reasons.
const (
	MaxAttempts Reason = "max_attempts" // its last attempt failed
	Expired     Reason = "expired"      // no attempt could start in time
	Stopped     Reason = "stopped"      // its receiver answered a status of Policy.StopOn
	Refused     Reason = "refused"      // its callback's address may not be called
)

// WaitCause is the cause that keeps a timer from its next attempt.
type WaitCause string

// The causes.
const (
	WaitBackoff     WaitCause = "backoff"      // between attempts
	WaitPaused      WaitCause = "topic_paused" // until the topic is resumed
	WaitSpread      WaitCause = "spread"       // Policy.Spread
	WaitKey         WaitCause = "key"          // another timer of its key goes first, or Policy.PerKey.Concurrency
	WaitConsumer    WaitCause = "consumer"     // nobody has pulled it
	WaitBreaker     WaitCause = "breaker"      // its receiver has failed
	WaitConcurrency WaitCause = "concurrency"  // Policy.Concurrency
	WaitRate        WaitCause = "rate"         // Policy.Rate
	WaitSlots       WaitCause = "slots"        // calls at once: the destination's or the node's
	WaitZone        WaitCause = "zone"         // the nodes' release does not know its time zone
	WaitWindow      WaitCause = "window"       // Policy.Window is not open
	WaitNoCallback  WaitCause = "no_callback"  // neither it nor the topic has a URL
	WaitHeld        WaitCause = "paused"       // Timer.Paused
	WaitRefused     WaitCause = "refused_address"
	WaitOrder       WaitCause = "order"    // an earlier timer of its id has not ended; see MergeCollect
	WaitKeyRate     WaitCause = "key_rate" // Policy.PerKey.Rate
	WaitLeader      WaitCause = "leader"   // its shard has none, or that cannot start calls, or has started none for a second
	WaitBatch       WaitCause = "batch"    // its call of many timers is neither full nor is its wait over
	WaitTurn        WaitCause = "turn"     // others are started first, as fast as its node can
)

// Timer is a timer as a node shows it. Times that there are not are zero.
type Timer struct {
	Topic       string          `json:"topic"`
	ID          string          `json:"id"`
	UID         string          `json:"uid"`
	Key         string          `json:"key"`
	Version     uint32          `json:"version"` // for IfMatch
	State       State           `json:"state"`
	Reason      Reason          `json:"reason"` // of Dead
	Due         time.Time       `json:"due"`
	NextAttempt time.Time       `json:"next_attempt"`
	Payload     json.RawMessage `json:"payload"`
	Bytes       []byte          `json:"payload_base64"`
	ContentType string          `json:"content_type"`
	Callback    *Callback       `json:"callback"`
	Priority    int             `json:"priority"`
	Weight      int             `json:"weight"` // 0: none was given
	Labels      []string        `json:"labels"`

	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts"`
	LastStatus  int       `json:"last_status"`
	LastError   string    `json:"last_error"`
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated"`
	Fired       time.Time `json:"fired"`
	Ended       time.Time `json:"ended"` // when it became Done, Dead or Cancelled
	Asked       time.Time `json:"asked"` // when somebody last fired it by hand
	LatenessMs  *int64    `json:"lateness_ms"`

	// LateByMs is how long ago the instant was that an Add, Put or Patch gave, if that is more than
	// a minute: often a mistake. Only their answers have it, and dry runs; see Result.LateByMs.
	LateByMs int64 `json:"late_by_ms"`

	// WaitsFor is the cause that keeps the timer from its next attempt, when it is due or between
	// attempts, and WaitsOn the object of its wait. Reads and listings have them.
	WaitsFor WaitCause `json:"waits_for"`
	WaitsOn  string    `json:"waits_on"`
	// AttemptLog are the last attempts, oldest first. Reads of one timer and the history have it;
	// dead letters have the last attempt.
	AttemptLog []Attempt `json:"attempt_log"`

	// TraceParent and TraceState are the trace context of the request that made the timer (W3C).
	TraceParent string `json:"traceparent"`
	TraceState  string `json:"tracestate"`

	ExpiresAfter    *time.Duration `json:"-"` // expires_after
	Repeat          *Repeat        `json:"repeat"`
	OnDone          *OutcomeTopic  `json:"-"`    // on_done, of the timer itself
	OnDead          *OutcomeTopic  `json:"-"`    // on_dead, of the timer itself
	Next            []time.Time    `json:"next"` // of a series: due times to come, where they were asked for
	Merged          bool           `json:"merged"`
	Paused          bool           `json:"paused"`    // somebody holds it: Timers.Pause
	Collected       int            `json:"collected"` // payloads in the array of one that collects
	PayloadLeftOut  bool           `json:"payload_left_out"`
	Successor       bool           `json:"successor"`
	CancelRequested bool           `json:"cancel_requested"`
}

// Cond is the condition of a change. The zero value is none.
type Cond struct {
	Version uint32 // only this version of the timer
	New     bool   // Put: only if the id is not in use
}

// none reports that repeating the change asks for the same as before.
func (c Cond) none() bool { return c == Cond{} }

// Outcome is the result of a cancel.
type Outcome string

// The outcomes of a cancel. The last three come with an error that is ErrOver.
const (
	Prevented        Outcome = "prevented"     // no attempt starts after this
	InFlight         Outcome = "in_flight"     // a call is running; no further one starts
	AlreadyFired     Outcome = "already_fired" // too late
	AlreadyDead      Outcome = "dead"          // it is a dead letter
	AlreadyCancelled Outcome = "cancelled"     // of another change than a cancel
)

func timerPath(topic, id string, more ...string) string {
	return Path(append([]string{"topics", topic, "timers", id}, more...)...)
}

// dryRun is the query of a call that changes nothing.
var dryRun = url.Values{"dry_run": {"true"}}

// DryAdd returns the timer that Add would make, without a UID, and makes none: all checks are made
// but those of quotas. Of a series Next are the first five due times.
func (c *Client) DryAdd(ctx context.Context, topic string, s Spec) (*Timer, error) {
	r := Request{Method: http.MethodPost, Path: Path("topics", topic, "timers"), Query: dryRun, Topic: topic, Timer: s.place()}
	r.IdempotencyKey, r.Repeatable = s.IdempotencyKey, true
	return one[Timer](ctx, c, r, s)
}

// DryPut is Put as DryAdd is Add.
func (c *Client) DryPut(ctx context.Context, topic, id string, s Spec, cond Cond) (*Timer, error) {
	s.ID = id
	r := Request{Method: http.MethodPut, Path: timerPath(topic, id), Query: dryRun, Topic: topic, Timer: id, IfMatch: cond.Version, CreateOnly: cond.New}
	r.Repeatable = true
	return one[Timer](ctx, c, r, s)
}

// DryPatch is Patch as DryAdd is Add.
func (c *Client) DryPatch(ctx context.Context, topic, id string, p Patch, cond Cond) (*Timer, error) {
	r := Request{Method: http.MethodPatch, Path: timerPath(topic, id), Query: dryRun, Topic: topic, Timer: id, IfMatch: cond.Version}
	r.Repeatable = true
	return one[Timer](ctx, c, r, p)
}

// GetNext is Get, and of a series with the next due times that are to come, up to 100.
func (c *Client) GetNext(ctx context.Context, topic, id string, next int) (*Timer, error) {
	r := Request{Method: http.MethodGet, Path: timerPath(topic, id), Query: url.Values{"next": {strconv.Itoa(next)}}, Topic: topic, Timer: id, Repeatable: true}
	return one[Timer](ctx, c, r, nil)
}

// Add adds a timer and makes its topic if need be. Repeating the same add of an id gives the timer
// that is there; with an absolute time, or an IdempotencyKey, also for ten minutes after it has
// ended: such an add is repeated when there was no answer, and so is one that collects and has a
// Part. Where the topic decides on a merge, its policy is read before, for which the token needs
// the scope read: if that merges, or cannot be read, the add is not repeated, which would merge it
// twice.
func (c *Client) Add(ctx context.Context, topic string, s Spec) (*Timer, error) {
	r := Request{Method: http.MethodPost, Path: Path("topics", topic, "timers"), Topic: topic, Timer: s.place()}
	r.IdempotencyKey = s.IdempotencyKey
	rejects := s.Merge == MergeReject || s.IdempotencyKey != "" // whatever the topic's rule
	r.Repeatable = (s.ID != "" && s.absolute() || s.IdempotencyKey != "") && (s.Merge == "" || rejects) && s.Repeat == nil || s.ID != "" && s.Part != ""
	if !rejects && s.Part == "" {
		r.mayRepeat = func(ctx context.Context) bool { return c.rejects(ctx, topic) }
	}
	return one[Timer](ctx, c, r, s)
}

// rejects reports whether adds of a topic that name no rule are surely not merged.
func (c *Client) rejects(ctx context.Context, topic string) bool {
	t, err := c.Topic(ctx, topic)
	return err == nil && t.Policy.Merge == MergeReject || errors.Is(err, ErrUnknownTopic)
}

// Put creates the timer, or replaces all of it.
func (c *Client) Put(ctx context.Context, topic, id string, s Spec, cond Cond) (*Timer, error) {
	s.ID = id
	r := Request{Method: http.MethodPut, Path: timerPath(topic, id), Topic: topic, Timer: id, IfMatch: cond.Version, CreateOnly: cond.New}
	// A delay would start again, and so would a count.
	r.Repeatable = cond.none() && s.absolute() && (s.Repeat == nil || s.Repeat.Count == 0)
	return one[Timer](ctx, c, r, s)
}

// Patch changes parts of a timer.
func (c *Client) Patch(ctx context.Context, topic, id string, p Patch, cond Cond) (*Timer, error) {
	return one[Timer](ctx, c, Request{Method: http.MethodPatch, Path: timerPath(topic, id), Topic: topic, Timer: id, IfMatch: cond.Version}, p)
}

// Cancel cancels a timer and reports whether that came in time. When it did not, the error is
// ErrOver and the outcome has how the timer ended.
func (c *Client) Cancel(ctx context.Context, topic, id string, cond Cond) (Outcome, error) {
	var answer struct {
		Outcome Outcome `json:"outcome"`
	}
	r := Request{Method: http.MethodDelete, Path: timerPath(topic, id), Topic: topic, Timer: id, IfMatch: cond.Version, Repeatable: cond.none()}
	err := c.call(ctx, r, nil, &answer)
	if p := asProblem(err); p != nil {
		return p.Outcome, err
	}
	return answer.Outcome, err
}

// Get reads a timer as it stands. The error is ErrUnknownTimer when there is none.
func (c *Client) Get(ctx context.Context, topic, id string) (*Timer, error) {
	return one[Timer](ctx, c, Request{Method: http.MethodGet, Path: timerPath(topic, id), Topic: topic, Timer: id, Repeatable: true}, nil)
}

// Fire has a timer's next attempt made now. Its due time, webhook-id and version stay; of a series
// the coming occurrence comes early, and the one after it at its own time.
func (c *Client) Fire(ctx context.Context, topic, id string, cond Cond) (*Timer, error) {
	return one[Timer](ctx, c, Request{Method: http.MethodPost, Path: timerPath(topic, id, "fire"), Topic: topic, Timer: id, IfMatch: cond.Version}, nil)
}

// one is call with an answer of a type.
func one[T any](ctx context.Context, c *Client, r Request, body any) (*T, error) {
	v := new(T)
	if err := c.call(ctx, r, body, v); err != nil {
		return nil, err
	}
	return v, nil
}

// reset sets a field, or one of an object's, to null.
func reset(fields map[string]json.RawMessage, name string) error {
	outer, inner, nested := strings.Cut(name, ".")
	if !nested {
		fields[outer] = json.RawMessage("null")
		return nil
	}
	object := map[string]json.RawMessage{}
	if raw, given := fields[outer]; given {
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
	}
	object[inner] = json.RawMessage("null")
	b, err := encode(object)
	fields[outer] = b
	return err
}
