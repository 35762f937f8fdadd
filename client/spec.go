package client

import (
	"encoding/json"
	"errors"
	"time"
)

// Now is a Delay that is over at once.
const Now = time.Nanosecond

// ErrNoTime is the error of a Spec without a time.
var ErrNoTime = errors.New("client: the timer has no time: give At, Delay (Now is at once), AtLocal or Repeat.Cron")

// Spec is a timer as it is added or put. Only a time is needed; the rest falls back to the topic.
type Spec struct {
	ID string `json:"id,omitempty"` // empty: the cluster makes one (Add only)
	// IdempotencyKey, instead of an ID, makes the id, so that an Add that had no answer may be
	// repeated, with a Delay, too.
	IdempotencyKey string `json:"-"`

	Key string `json:"key,omitempty"` // timers of one key live together, and are serial where the topic is

	// When it is due, by exactly one of At, Delay from now on, and AtLocal, unless Repeat.Cron
	// finds the times.
	At    time.Time     `json:"at,omitzero"`
	Delay time.Duration `json:"delay,omitzero"`
	// AtLocal is a time by the clocks of Zone (IANA), without an offset: "2027-03-28T09:00:00". One
	// that a clock change skips is moved by the gap; of one that comes twice it is the first.
	AtLocal string `json:"at_local,omitempty"`
	Zone    string `json:"zone,omitempty"`

	Payload     any    `json:"payload,omitempty"`       // sent as JSON; json.RawMessage is JSON already
	Bytes       []byte `json:"payload_base64,omitzero"` // sent as they are, instead of a Payload
	ContentType string `json:"content_type,omitempty"`

	Callback     *Callback      `json:"callback,omitempty"`
	Priority     int            `json:"priority,omitempty"` // 0–255, higher first among due timers
	Weight       int            `json:"weight,omitempty"`   // 1–100, its key's share of the turns; of topics with Policy.PerKey
	Labels       []string       `json:"labels,omitzero"`
	ExpiresAfter *time.Duration `json:"expires_after,omitempty"`
	Retry        *Retry         `json:"retry,omitempty"`
	Repeat       *Repeat        `json:"repeat,omitempty"`

	// OnDone and OnDead are the topics in which the end of the timer makes its outcome; nil: those
	// of the topic's policy.
	OnDone *OutcomeTopic `json:"on_done,omitempty"`
	OnDead *OutcomeTopic `json:"on_dead,omitempty"`

	Merge   MergeRule      `json:"merge,omitempty"`    // empty: the topic's
	MaxWait *time.Duration `json:"max_wait,omitempty"` // with MergeDebounce and MergeCollect
	// CollectMax goes with MergeCollect: so many payloads make the array full; 0: the topic's.
	CollectMax int `json:"collect_max,omitempty"`
	// Part goes with MergeCollect: a name of this payload, with which the add may be repeated.
	Part string `json:"part,omitempty"`

	// IfLate is how an At is treated that is more than a minute past; empty: as the topic has it.
	IfLate LateRule `json:"if_late,omitempty"`
}

// place is an id whose shard is that of the timer; empty where the cluster chooses it.
func (s *Spec) place() string {
	if s.ID == "" && s.Key != "" {
		return "{" + s.Key + "}"
	}
	return s.ID
}

// absolute reports whether the time is an instant, so that repeating the Spec means the same.
func (s *Spec) absolute() bool { return !s.At.IsZero() || s.AtLocal != "" }

func (s Spec) MarshalJSON() ([]byte, error) {
	if s.At.IsZero() && s.Delay == 0 && s.AtLocal == "" && (s.Repeat == nil || s.Repeat.Cron == "") {
		return nil, ErrNoTime
	}
	return encodeDurations(s) // a node refuses two times
}

// Callback is where and how a timer is delivered; absent fields are the topic's.
type Callback struct {
	URL     string            `json:"url,omitempty"`
	Method  string            `json:"method,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Timeout time.Duration     `json:"timeout,omitzero"`
}

// Retry is how often and when an attempt that failed is made again; absent fields are the topic's.
type Retry struct {
	MaxAttempts int           `json:"max_attempts,omitempty"`
	MinBackoff  time.Duration `json:"min_backoff,omitzero"`
	MaxBackoff  time.Duration `json:"max_backoff,omitzero"`
	Multiplier  float64       `json:"multiplier,omitempty"`
	Jitter      *float64      `json:"jitter,omitempty"`
}

// Repeat makes a timer come again: by Cron in Zone, or Every so often.
type Repeat struct {
	Cron    string        `json:"cron,omitempty"`
	Zone    string        `json:"zone,omitempty"`
	Every   time.Duration `json:"every,omitzero"`
	Until   time.Time     `json:"until,omitzero"`
	Count   int           `json:"count,omitempty"`
	CatchUp CatchUp       `json:"catch_up,omitempty"`
	Overlap bool          `json:"overlap,omitempty"`
}

// CatchUp is how occurrences are treated that were missed while the cluster or the topic stood
// still.
type CatchUp string

// The ways to catch up.
const (
	CatchUpOne  CatchUp = "one" // the default
	CatchUpSkip CatchUp = "skip"
	CatchUpAll  CatchUp = "all"
)

// MergeRule is how an add is treated whose id is in use.
type MergeRule string

// The rules of merging.
const (
	MergeReject  MergeRule = "reject"  // ErrExists
	MergeKeep    MergeRule = "keep"    // the timer that is there stays
	MergeReplace MergeRule = "replace" // the new one wins, time and all
	// The new one wins, no later than MaxWait after the first add.
	MergeDebounce MergeRule = "debounce"
	// The payload is appended to those of the timer that is there: one call has all, as an array.
	MergeCollect MergeRule = "collect"
)

// LateRule is how a timer is treated whose absolute time is past when it is added.
type LateRule string

// The rules.
const (
	LateFire   LateRule = "fire"   // at once
	LateReject LateRule = "reject" // ErrOver, where it is more than a minute past
)

// Patch changes some parts of a timer, all at once; nil and zero leave a part as it is.
type Patch struct {
	At      time.Time      `json:"at,omitzero"`
	Delay   *time.Duration `json:"delay,omitempty"`
	AtLocal string         `json:"at_local,omitempty"` // as in Spec
	Zone    string         `json:"zone,omitempty"`

	Payload      any            `json:"payload,omitempty"`
	Bytes        []byte         `json:"payload_base64,omitzero"`
	ContentType  string         `json:"content_type,omitempty"`
	Callback     *Callback      `json:"callback,omitempty"` // by field
	Priority     *int           `json:"priority,omitempty"`
	Weight       *int           `json:"weight,omitempty"`
	Labels       []string       `json:"labels,omitzero"` // whole; an empty list that is not nil removes all
	ExpiresAfter *time.Duration `json:"expires_after,omitempty"`
	Retry        *Retry         `json:"retry,omitempty"` // by field
	Repeat       *Repeat        `json:"repeat,omitempty"`

	OnDone *OutcomeTopic `json:"on_done,omitempty"` // the zero OutcomeTopic is none
	OnDead *OutcomeTopic `json:"on_dead,omitempty"`

	// Reset names fields that go back to the topic's default: "callback.timeout", "expires_after",
	// "repeat" …
	Reset []string `json:"-"`
}

func (p Patch) MarshalJSON() ([]byte, error) {
	fields, err := encodeDurations(p)
	if err != nil || len(p.Reset) == 0 {
		return fields, err
	}
	return encodeWithout(json.RawMessage(fields), p.Reset)
}

// encodeWithout encodes v with null for the fields that go back to their default.
func encodeWithout(v any, defaults []string) ([]byte, error) {
	fields, err := fieldsOf(v)
	if err != nil {
		return nil, err
	}
	for _, name := range defaults {
		if err := reset(fields, name); err != nil {
			return nil, err
		}
	}
	return encode(fields)
}

// fieldsOf are the members of v as JSON; values keep their bytes.
func fieldsOf(v any) (map[string]json.RawMessage, error) {
	b, err := encode(v)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	return fields, json.Unmarshal(b, &fields)
}
