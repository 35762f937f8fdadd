package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Topic is a topic as a node shows it.
type Topic struct {
	Name            string      `json:"topic"`
	Policy          Policy      `json:"policy"`
	Paused          bool        `json:"paused"`
	Counts          TopicCounts `json:"counts"`
	OldestOverdueMs int64       `json:"oldest_overdue_ms"`
	AutoCreated     bool        `json:"auto_created"`
}

// TopicCounts are a topic's timers by state; Scheduled includes Ready.
type TopicCounts struct {
	Scheduled, Ready, Leased, Done, Dead int64
}

// Policy is what timers of a topic have in common. What is left zero takes the default.
type Policy struct {
	Delivery string    `json:"delivery,omitempty"` // push, pull
	Callback *Callback `json:"callback,omitempty"`
	Ack      string    `json:"ack,omitempty"` // response, report
	Lease    Duration  `json:"lease,omitzero"`
	Retry    *Retry    `json:"retry,omitempty"`
	StopOn   []int     `json:"stop_on,omitzero"`
	Merge    string    `json:"merge,omitempty"`
	MaxWait  Duration  `json:"max_wait,omitzero"`
	Dedup    string    `json:"dedup,omitempty"`
	Serial   bool      `json:"serial,omitempty"`
	Ordered  bool      `json:"ordered,omitempty"`

	Concurrency            int      `json:"concurrency,omitempty"`
	Rate                   *Rate    `json:"rate,omitempty"`
	Breaker                *Breaker `json:"breaker,omitempty"`
	DestinationConcurrency int      `json:"destination_concurrency,omitempty"`
	Spread                 Duration `json:"spread,omitzero"`
	History                Duration `json:"history,omitzero"`
	DeadRetention          Duration `json:"dead_retention,omitzero"`
	// Secrets sign the callbacks: whsec_…, up to three. A node shows them as fingerprints, which PutTopic takes back as they are.
	Secrets []string `json:"secrets,omitempty"`
}

// Rate is a limit of deliveries, of the whole cluster.
type Rate struct {
	PerSecond float64 `json:"per_second"`
	Burst     int     `json:"burst,omitempty"`
}

// Breaker is when calls to a destination stop, and begin again.
type Breaker struct {
	Failures int      `json:"failures,omitempty"`
	Window   Duration `json:"window,omitzero"`
	Open     Duration `json:"open,omitzero"`
	Probes   int      `json:"probes,omitempty"`
}

// PutTopic sets a topic's whole policy, and makes it if need be.
func (c *Client) PutTopic(ctx context.Context, topic string, p Policy) (*Topic, error) {
	return c.topicCall(ctx, call{method: http.MethodPut, path: join("topics", topic), body: p, safe: true})
}

// Topic reads a topic.
func (c *Client) Topic(ctx context.Context, topic string) (*Topic, error) {
	return c.topicCall(ctx, call{method: http.MethodGet, path: join("topics", topic), safe: true})
}

// Pause stops deliveries of a topic; its timers wait.
func (c *Client) Pause(ctx context.Context, topic string) (*Topic, error) {
	return c.topicCall(ctx, call{method: http.MethodPost, path: join("topics", topic, "pause")})
}

// Resume undoes Pause.
func (c *Client) Resume(ctx context.Context, topic string) (*Topic, error) {
	return c.topicCall(ctx, call{method: http.MethodPost, path: join("topics", topic, "resume")})
}

func (c *Client) topicCall(ctx context.Context, r call) (*Topic, error) {
	t := new(Topic)
	_, err := c.do(ctx, r, t)
	return whole(t, err)
}

// DeleteTopic removes a topic, and says how many timers that cancelled. Without force it must be empty.
func (c *Client) DeleteTopic(ctx context.Context, topic string, force bool) (cancelled int, err error) {
	var answer struct {
		Cancelled int `json:"cancelled"`
	}
	q := url.Values{}
	if force {
		q.Set("force", strconv.FormatBool(force))
	}
	// Repeating one that was done would answer that there is no such topic.
	_, err = c.do(ctx, call{method: http.MethodDelete, path: join("topics", topic), query: q}, &answer)
	return answer.Cancelled, err
}

// Topics goes through the topics that the token sees, by name, with their counts.
func (c *Client) Topics(ctx context.Context) iter.Seq2[*Topic, error] {
	return pages[Topic](ctx, c, join("topics"), "topics", url.Values{"counts": {"true"}})
}
