package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// DeadFilter selects dead letters; all that is given must hold.
type DeadFilter struct {
	Reason Reason // empty: any
	From   time.Time
	To     time.Time // exclusive
	Labels []string
}

// DeadSelector is ids, or uids, or a filter, or all.
type DeadSelector struct {
	IDs    []string // of each id the dead letter that died last
	UIDs   []string // an id may have several dead letters: see Timer.UID
	Filter *DeadFilter
	All    bool
	DryRun bool // change nothing: the Counts are those that the change would have
}

// Redrive is how dead letters are tried again.
type Redrive struct {
	Delay    time.Duration // not before this long from now
	Callback *Callback     // by field
}

// DeadLetters goes through a topic's dead letters by when they died.
func (c *Client) DeadLetters(ctx context.Context, topic string, f DeadFilter) iter.Seq2[*Timer, error] {
	q := url.Values{}
	setText(q, "reason", string(f.Reason))
	setTime(q, "from", f.From)
	setTime(q, "to", f.To)
	for _, label := range f.Labels {
		q.Add("label", label)
	}
	return pages[Timer](ctx, c, Path("topics", topic, "dead"), "timers", q)
}

type wireDeadFilter struct {
	Reason Reason     `json:"reason,omitempty"`
	From   *time.Time `json:"from,omitempty"`
	To     *time.Time `json:"to,omitempty"`
	Labels []string   `json:"label,omitempty"`
}

type wireDead struct {
	IDs      []string        `json:"ids,omitempty"`
	UIDs     []string        `json:"uids,omitempty"`
	Filter   *wireDeadFilter `json:"filter,omitempty"`
	All      bool            `json:"all,omitempty"`
	Delay    wireDuration    `json:"delay,omitzero"`
	Callback *Callback       `json:"callback,omitempty"`
}

func (s *DeadSelector) wire() wireDead {
	w := wireDead{IDs: s.IDs, UIDs: s.UIDs, All: s.All}
	if f := s.Filter; f != nil {
		w.Filter = &wireDeadFilter{Reason: f.Reason, From: moment(f.From), To: moment(f.To), Labels: f.Labels}
	}
	return w
}

// RedriveDead schedules dead letters again, with all their attempts before them. Their due times
// and webhook-ids stay. A dead occurrence of a series runs in parallel with the series.
func (c *Client) RedriveDead(ctx context.Context, topic string, s DeadSelector, r Redrive) (Counts, error) {
	w := s.wire()
	w.Delay, w.Callback = wireDuration(r.Delay), r.Callback
	return c.changeMany(ctx, Path("topics", topic, "dead", "redrive"), w, s.DryRun)
}

// PurgeDead forgets dead letters.
func (c *Client) PurgeDead(ctx context.Context, topic string, s DeadSelector) (Counts, error) {
	return c.changeMany(ctx, Path("topics", topic, "dead", "purge"), s.wire(), s.DryRun)
}
