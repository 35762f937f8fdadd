package client

import (
	"context"
	"encoding/json"
	"net/http"
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

// Timer is a timer as a node shows it. Times that there are not are zero.
type Timer struct {
	Topic       string          `json:"topic"`
	ID          string          `json:"id"`
	UID         string          `json:"uid"`
	Key         string          `json:"key"`
	Version     uint32          `json:"version"` // for IfMatch
	State       State           `json:"state"`
	Reason      string          `json:"reason"` // of Dead: max_attempts, expired, stopped, refused
	Due         time.Time       `json:"due"`
	NextAttempt time.Time       `json:"next_attempt"`
	Payload     json.RawMessage `json:"payload"`
	Bytes       []byte          `json:"payload_base64"`
	ContentType string          `json:"content_type"`
	Callback    *Callback       `json:"callback"`
	Priority    int             `json:"priority"`
	Labels      []string        `json:"labels"`

	Attempts    int       `json:"attempts"`
	MaxAttempts int       `json:"max_attempts"`
	LastStatus  int       `json:"last_status"`
	LastError   string    `json:"last_error"`
	Created     time.Time `json:"created"`
	Updated     time.Time `json:"updated"`
	Fired       time.Time `json:"fired"`
	LatenessMs  *int64    `json:"lateness_ms"`

	ExpiresAfter    *Duration `json:"expires_after"`
	Repeat          *Repeat   `json:"repeat"`
	Merged          bool      `json:"merged"`
	Successor       bool      `json:"successor"`
	CancelRequested bool      `json:"cancel_requested"`
}

// If is the condition of a change. The zero value is none.
type If struct {
	Version uint32 // only this version of the timer
	New     bool   // Put: only if the id is not in use
}

// none reports that repeating the change asks for the same as before.
func (i If) none() bool { return i == If{} }

// Outcome is what a cancel came to.
type Outcome string

// The outcomes of a cancel. The last two come with an error that is Over.
const (
	Prevented      Outcome = "prevented"     // no attempt starts after this
	CancelInFlight Outcome = "in_flight"     // a call is running; no further one starts
	AlreadyFired   Outcome = "already_fired" // too late
	AlreadyDead    Outcome = "dead"          // it is a dead letter
)

func timerPath(topic, id string, more ...string) string {
	return join(append([]string{"topics", topic, "timers", id}, more...)...)
}

// Add adds a timer and makes its topic if need be. Repeating the same add of an id gives the timer that is there; with an
// absolute time also for ten minutes after it has ended: such an add is repeated when there was no answer.
func (c *Client) Add(ctx context.Context, topic string, s Spec) (*Timer, error) {
	t := new(Timer)
	safe := s.ID != "" && !s.At.IsZero() && s.Merge == "" && s.Repeat == nil
	_, err := c.do(ctx, call{method: http.MethodPost, path: join("topics", topic, "timers"), body: s, safe: safe}, t)
	return whole(t, err)
}

// Put creates the timer, or replaces all of it.
func (c *Client) Put(ctx context.Context, topic, id string, s Spec, cond If) (*Timer, error) {
	s.ID = id
	t := new(Timer)
	safe := cond.none() && !s.At.IsZero() // a delay would begin anew
	_, err := c.do(ctx, call{method: http.MethodPut, path: timerPath(topic, id), body: s, safe: safe, ifMatch: cond.Version, createOnly: cond.New}, t)
	return whole(t, err)
}

// Patch changes parts of a timer.
func (c *Client) Patch(ctx context.Context, topic, id string, p Patch, cond If) (*Timer, error) {
	t := new(Timer)
	_, err := c.do(ctx, call{method: http.MethodPatch, path: timerPath(topic, id), body: p, ifMatch: cond.Version}, t)
	return whole(t, err)
}

// Cancel cancels a timer and says whether that came in time. When it did not, the error is Over and the outcome says how it ended.
func (c *Client) Cancel(ctx context.Context, topic, id string, cond If) (Outcome, error) {
	var answer struct {
		Outcome Outcome `json:"outcome"`
	}
	_, err := c.do(ctx, call{method: http.MethodDelete, path: timerPath(topic, id), safe: cond.none(), ifMatch: cond.Version}, &answer)
	if p := asProblem(err); p != nil {
		return p.Outcome, err
	}
	return answer.Outcome, err
}

// Get reads a timer as it stands. The error is UnknownTimer when there is none.
func (c *Client) Get(ctx context.Context, topic, id string) (*Timer, error) {
	t := new(Timer)
	_, err := c.do(ctx, call{method: http.MethodGet, path: timerPath(topic, id), safe: true}, t)
	return whole(t, err)
}

// Fire makes a timer due now.
func (c *Client) Fire(ctx context.Context, topic, id string, cond If) (*Timer, error) {
	t := new(Timer)
	_, err := c.do(ctx, call{method: http.MethodPost, path: timerPath(topic, id, "fire"), ifMatch: cond.Version}, t)
	return whole(t, err)
}

// whole gives nothing beside an error.
func whole[T any](v *T, err error) (*T, error) {
	if err != nil {
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
