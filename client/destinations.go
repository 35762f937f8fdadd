package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// Destination is a receiver that the nodes call. Times that there are not are zero.
type Destination struct {
	Destination string    `json:"destination"` // scheme://host:port
	State       string    `json:"state"`       // of its breaker: open, half-open or closed
	Since       time.Time `json:"since"`
	Calls       int       `json:"calls"`   // that run, or are about to
	Waiting     int       `json:"waiting"` // timers that are due for it
	LatencyMs   float64   `json:"latency_ms"`
	LastError   string    `json:"last_error"`
	Failed      time.Time `json:"failed"`     // when the last error was
	Failures    int       `json:"failures"`   // calls that failed since one succeeded, of all nodes
	NextProbe   time.Time `json:"next_probe"` // while it is open
	Nodes       []string  `json:"nodes"`      // in that state, if it is not closed
	Topics      []string  `json:"topics"`     // the first whose timers called it
	MoreTopics  bool      `json:"more_topics"`
}

// Destinations goes through the receivers that the cluster's nodes call, those that are unwell
// first. state is a comma list of states; "" is all.
func (c *Client) Destinations(ctx context.Context, state string) iter.Seq2[*Destination, error] {
	q := url.Values{}
	setText(q, "state", state)
	return pages[Destination](ctx, c, Path("destinations"), "destinations", q)
}
