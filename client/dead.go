package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// DeadFilter selects dead letters; all that is given must hold.
type DeadFilter struct {
	Reason string // max_attempts, expired, stopped, refused
	From   time.Time
	To     time.Time // exclusive
	Labels []string
}

// DeadSelected is ids, or a filter, or all.
type DeadSelected struct {
	IDs    []string
	Filter *DeadFilter
	All    bool
}

// Redrive is how dead letters are tried again.
type Redrive struct {
	Delay    Duration
	Callback *Callback // by field
}

// DeadLetters goes through a topic's dead letters by when they died.
func (c *Client) DeadLetters(ctx context.Context, topic string, f DeadFilter) iter.Seq2[*Timer, error] {
	q := url.Values{}
	setText(q, "reason", f.Reason)
	setTime(q, "from", f.From)
	setTime(q, "to", f.To)
	for _, label := range f.Labels {
		q.Add("label", label)
	}
	return pages[Timer](ctx, c, join("topics", topic, "dead"), "timers", q)
}

type wireDeadFilter struct {
	Reason string     `json:"reason,omitempty"`
	From   *time.Time `json:"from,omitempty"`
	To     *time.Time `json:"to,omitempty"`
	Labels []string   `json:"label,omitempty"`
}

type wireDead struct {
	IDs      []string        `json:"ids,omitempty"`
	Filter   *wireDeadFilter `json:"filter,omitempty"`
	All      bool            `json:"all,omitempty"`
	Delay    Duration        `json:"delay,omitzero"`
	Callback *Callback       `json:"callback,omitempty"`
}

func (s *DeadSelected) wire() wireDead {
	w := wireDead{IDs: s.IDs, All: s.All}
	if f := s.Filter; f != nil {
		w.Filter = &wireDeadFilter{Reason: f.Reason, From: moment(f.From), To: moment(f.To), Labels: f.Labels}
	}
	return w
}

// RedriveDead schedules dead letters again, with all their attempts before them.
func (c *Client) RedriveDead(ctx context.Context, topic string, s DeadSelected, r Redrive) (Counts, error) {
	w := s.wire()
	w.Delay, w.Callback = r.Delay, r.Callback
	return c.changeMany(ctx, join("topics", topic, "dead", "redrive"), w)
}

// PurgeDead forgets dead letters.
func (c *Client) PurgeDead(ctx context.Context, topic string, s DeadSelected) (Counts, error) {
	return c.changeMany(ctx, join("topics", topic, "dead", "purge"), s.wire())
}
