package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// Topic is a topic as a node shows it.
type Topic struct {
	Name            string      `json:"topic"`
	Version         string      `json:"version"` // for TopicCondition
	Policy          Policy      `json:"policy"`
	Paused          bool        `json:"paused"`
	Counts          TopicCounts `json:"counts"`
	OldestOverdueMs int64       `json:"oldest_overdue_ms"`
	AutoCreated     bool        `json:"auto_created"`
	// FormerIDs, in the answer of a change of the key, counts pending timers that keep their ids:
	// of before a forced change, or added while it was made.
	FormerIDs int64 `json:"former_ids"`
	// WithoutURL, in the answer of a change, counts pending timers that nobody can be called for.
	WithoutURL int64 `json:"without_url"`
	// Action and Changes are what a dry run would do: create, change or leave.
	Action  string        `json:"action"`
	Changes []FieldChange `json:"changes"`
}

// FieldChange is a field of a policy, as callback.url, and its values before and after a change.
// One that is empty is none; both are left out of credentials.
type FieldChange struct {
	Field string          `json:"field"`
	From  json.RawMessage `json:"from"`
	To    json.RawMessage `json:"to"`
}

// TopicCounts are a topic's timers by state; Scheduled includes Ready.
type TopicCounts struct {
	Scheduled, Ready, Leased, Done, Dead int64
	// Waiting are the due ones that are not called, by what they wait for.
	Waiting map[WaitCause]int64
}

// Policy is the common policy of a topic's timers. A field that is left zero takes the default.
type Policy struct {
	Delivery DeliveryMode  `json:"delivery,omitempty"`
	Callback *Callback     `json:"callback,omitempty"`
	Ack      AckMode       `json:"ack,omitempty"`
	Lease    time.Duration `json:"lease,omitzero"`
	Retry    *Retry        `json:"retry,omitempty"`
	StopOn   []int         `json:"stop_on,omitzero"`
	Merge    MergeRule     `json:"merge,omitempty"`
	MaxWait  time.Duration `json:"max_wait,omitzero"`
	// CollectMax is how many payloads make an array of MergeCollect full; 0: 1,000.
	CollectMax int       `json:"collect_max,omitempty"`
	Dedup      DedupRule `json:"dedup,omitempty"`
	Serial     bool      `json:"serial,omitempty"`
	// Key is the key of adds that have none and whose id has no braces: their id gets it in front,
	// and they are found by the plain id, too.
	Key    string   `json:"key,omitempty"`
	IfLate LateRule `json:"if_late,omitempty"` // of adds that say none
	Window *Window  `json:"window,omitempty"`  // nil: always open
	// OnDone and OnDead are the topics of outcomes, for timers that have none of their own.
	OnDone *OutcomeTopic `json:"on_done,omitempty"`
	OnDead *OutcomeTopic `json:"on_dead,omitempty"`
	// Answers is whether texts of receivers' answers are kept.
	Answers KeptAnswers `json:"answers,omitempty"`
	Batch   *Batch      `json:"batch,omitempty"` // nil: each timer has its own call

	Concurrency            int           `json:"concurrency,omitempty"`
	Rate                   *Rate         `json:"rate,omitempty"`
	PerKey                 *PerKey       `json:"per_key,omitempty"` // nil: keys have no limits, and no turns
	Breaker                *Breaker      `json:"breaker,omitempty"`
	DestinationConcurrency int           `json:"destination_concurrency,omitempty"`
	Spread                 time.Duration `json:"spread,omitzero"`
	History                time.Duration `json:"history,omitzero"`
	DeadRetention          time.Duration `json:"dead_retention,omitzero"`
	// Secrets sign the callbacks: whsec_…, up to three. A node shows them as fingerprints, which
	// PutTopic takes back as they are.
	Secrets []string `json:"secrets,omitempty"`
	// SigningKeys sign them so that receivers need no secret: whsk_…, up to three. A node shows the
	// public keys, whpk_…, which PutTopic takes back as they are.
	SigningKeys []string `json:"signing_keys,omitempty"`

	Format Format `json:"format,omitempty"`
}

// Window is when attempts may start.
type Window struct {
	Zone   string   `json:"zone,omitempty"` // IANA; UTC without it
	Days   string   `json:"days,omitempty"` // "mon-fri", "mon,wed"; every day without it
	From   string   `json:"from,omitempty"` // "08:00"
	To     string   `json:"to,omitempty"`   // "20:00"; earlier than From: over midnight
	Except []string `json:"except,omitempty"`
}

// Batch has one call attempt many timers; see Receiver.HandleMany.
type Batch struct {
	Max  int           `json:"max,omitempty"` // timers in a call
	Wait time.Duration `json:"wait,omitzero"` // until a call goes that is not full
	By   BatchBy       `json:"by,omitempty"`
}

// BatchBy is which timers share a call.
type BatchBy string

// What timers of a call have in common.
const (
	BatchByTopic BatchBy = "topic"
	BatchByKey   BatchBy = "key" // and their key
)

// PolicyPatch changes the fields that are set, and those of Callback, Retry, Rate, Breaker, Window
// and Batch one by one.
type PolicyPatch struct {
	Set Policy
	// Reset names fields that go back to their default: "serial", "callback.timeout" …
	Reset []string
}

func (p PolicyPatch) MarshalJSON() ([]byte, error) {
	return encodeWithout(p.Set, p.Reset)
}

// TopicCondition is what must hold for a change of a topic.
type TopicCondition struct {
	Version string // it is at this version only; "": at any
	Force   bool   // even if that takes away what pending timers or receivers need
	DryRun  bool   // change nothing: the answer is the topic as it would be
}

func (c TopicCondition) request(method, topic string) Request {
	r := Request{Method: method, Path: Path("topics", topic), Query: forced(c.Force), IfTopic: c.Version, Repeatable: c.DryRun || method == http.MethodPut && c.Version == ""}
	if c.DryRun {
		r.Query = maps.Clone(dryRun)
		maps.Copy(r.Query, forced(c.Force))
	}
	return r
}

// KeptAnswers is what a topic keeps of the answers to calls.
type KeptAnswers string

// The values.
const (
	AnswersFailed KeptAnswers = "failed" // those to attempts that failed
	AnswersNone   KeptAnswers = "none"   // no text of any
)

// Format decides which headers calls carry in addition to Carillon's own.
type Format string

// The formats.
const (
	FormatPlain       Format = "plain"       // nothing
	FormatCloudEvents Format = "cloudevents" // the headers of CloudEvents 1.0 in binary mode
)

// DeliveryMode is how a topic's timers reach their receivers.
type DeliveryMode string

// The ways of delivery.
const (
	DeliverByPush DeliveryMode = "push" // the cluster calls
	DeliverByPull DeliveryMode = "pull" // consumers fetch
)

// AckMode is how a receiver reports that it is done.
type AckMode string

// The modes.
const (
	AckByResponse AckMode = "response" // a 2xx is the end
	// A 202 keeps the lease open, until Ack or Nack with its receipt.
	AckByReport AckMode = "report"
)

// DedupRule is how repeats of adds without an id are recognised.
type DedupRule string

// The rules.
const (
	DedupByID      DedupRule = "id"      // each is another timer
	DedupByContent DedupRule = "content" // the id is made of topic, payload and URL
)

// PerKey bounds the timers of each key in the whole cluster.
type PerKey struct {
	Concurrency int   `json:"concurrency,omitempty"` // leases at once
	Rate        *Rate `json:"rate,omitempty"`
	// Fair has keys take turns, by the weights of their adds; true where it is nil.
	Fair *bool `json:"fair,omitempty"`
}

// Rate is a limit of deliveries, of the whole cluster.
type Rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst,omitempty"`
}

// Breaker is when calls to a destination stop, and begin again.
type Breaker struct {
	Failures int           `json:"failures,omitempty"`
	Window   time.Duration `json:"window,omitzero"`
	Open     time.Duration `json:"open,omitzero"`
	Probes   int           `json:"probes,omitempty"`
}

// PutTopic sets a topic's whole policy, and makes it if need be. To change some fields use
// PatchTopic: what a PUT leaves out goes back to its default.
func (c *Client) PutTopic(ctx context.Context, topic string, p Policy) (*Topic, error) {
	return c.PutTopicIf(ctx, topic, p, TopicCondition{})
}

// PutTopicIf is PutTopic under a condition.
func (c *Client) PutTopicIf(ctx context.Context, topic string, p Policy, d TopicCondition) (*Topic, error) {
	return one[Topic](ctx, c, d.request(http.MethodPut, topic), p)
}

// PatchTopic changes some fields of a topic's policy.
func (c *Client) PatchTopic(ctx context.Context, topic string, p PolicyPatch, d TopicCondition) (*Topic, error) {
	return one[Topic](ctx, c, d.request(http.MethodPatch, topic), p)
}

// Topic reads a topic.
func (c *Client) Topic(ctx context.Context, topic string) (*Topic, error) {
	return one[Topic](ctx, c, Request{Method: http.MethodGet, Path: Path("topics", topic), Repeatable: true}, nil)
}

// Pause stops deliveries of a topic; its timers wait.
func (c *Client) Pause(ctx context.Context, topic string) (*Topic, error) {
	return one[Topic](ctx, c, Request{Method: http.MethodPost, Path: Path("topics", topic, "pause")}, nil)
}

// Resume undoes Pause.
func (c *Client) Resume(ctx context.Context, topic string) (*Topic, error) {
	return one[Topic](ctx, c, Request{Method: http.MethodPost, Path: Path("topics", topic, "resume")}, nil)
}

// DeleteTopic removes a topic, and returns how many timers that cancelled. Without force it must be
// empty.
func (c *Client) DeleteTopic(ctx context.Context, topic string, force bool) (cancelled int, err error) {
	var answer struct {
		Cancelled int `json:"cancelled"`
	}
	// Repeating one that was done would answer that there is no such topic.
	err = c.call(ctx, Request{Method: http.MethodDelete, Path: Path("topics", topic), Query: forced(force)}, nil, &answer)
	return answer.Cancelled, err
}

// Topics goes through the topics that the token sees, by name, with their counts.
func (c *Client) Topics(ctx context.Context) iter.Seq2[*Topic, error] {
	return pages[Topic](ctx, c, Path("topics"), "topics", url.Values{"counts": {"true"}})
}

// Secrets are a topic's signing secrets.
type Secrets struct {
	Topic string `json:"topic"`
	// Made is the new secret where the node has made it. Nothing shows it again.
	Made         string   `json:"secret"`
	Fingerprints []string `json:"secrets"` // the newest first
}

// RotateSecret adds a secret, as NewSecret makes it, before those that a topic has, up to three in
// all. Each of them signs every call until FinishRotation: that is the time for receivers to learn
// the new one. Empty: the node makes it, and the call is not repeated.
func (c *Client) RotateSecret(ctx context.Context, topic, secret string) (*Secrets, error) {
	return changeKeys[Secrets](ctx, c, Path("topics", topic, "secrets", "rotate"), secret != "", "secret", secret)
}

// FinishRotation drops all secrets of a topic but one: that with the fingerprint keep, or, where it
// is empty, the newest.
func (c *Client) FinishRotation(ctx context.Context, topic, keep string) (*Secrets, error) {
	return changeKeys[Secrets](ctx, c, Path("topics", topic, "secrets", "finish"), true, "keep", keep)
}

// PublicKeys are the keys with which a topic's calls are checked.
type PublicKeys struct {
	Topic string   `json:"topic"`
	Keys  []string `json:"signing_keys"` // whpk_…, the newest first
}

// RotateSigningKey is RotateSecret for asymmetric keys: private is one that NewSigningKey makes.
// Empty: the node makes it, nobody sees it, and the call is not repeated. Give the public key to
// the receivers, and end with FinishKeyRotation.
func (c *Client) RotateSigningKey(ctx context.Context, topic, private string) (*PublicKeys, error) {
	return changeKeys[PublicKeys](ctx, c, Path("topics", topic, "signing-keys", "rotate"), private != "", "signing_key", private)
}

// FinishKeyRotation drops all signing keys of a topic but one: that of the public key keep, or,
// where it is empty, the newest.
func (c *Client) FinishKeyRotation(ctx context.Context, topic, keep string) (*PublicKeys, error) {
	return changeKeys[PublicKeys](ctx, c, Path("topics", topic, "signing-keys", "finish"), true, "keep", keep)
}

// changeKeys posts one field, unless it is empty.
func changeKeys[T any](ctx context.Context, c *Client, path string, repeatable bool, field, value string) (*T, error) {
	body := map[string]string{}
	if value != "" {
		body[field] = value
	}
	return one[T](ctx, c, Request{Method: http.MethodPost, Path: path, Repeatable: repeatable}, body)
}
