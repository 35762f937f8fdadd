package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// DeadFilter selects dead letters; all that is given must hold.
type DeadFilter struct {
	Reason Reason    `json:"reason,omitempty"` // empty: any
	From   time.Time `json:"from,omitzero"`
	To     time.Time `json:"to,omitzero"` // exclusive
	Labels []string  `json:"label,omitempty"`
}

// DeadSelector is ids, or uids, or a filter, or all.
type DeadSelector struct {
	IDs    []string    `json:"ids,omitempty"`  // of each id the dead letter that died last
	UIDs   []string    `json:"uids,omitempty"` // an id may have several dead letters: see Timer.UID
	Filter *DeadFilter `json:"filter,omitempty"`
	All    bool        `json:"all,omitempty"`
	DryRun bool        `json:"-"` // change nothing: the Counts are those that the change would have
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
	setLabels(q, f.Labels)
	return pages[Timer](ctx, c, Path("topics", topic, "dead"), "timers", q)
}

// RedriveDead schedules dead letters again, with all their attempts before them. Their due times
// and webhook-ids stay. A dead occurrence of a series runs in parallel with the series.
func (c *Client) RedriveDead(ctx context.Context, topic string, s DeadSelector, r Redrive) (Counts, error) {
	body := struct {
		DeadSelector
		Delay    wireDuration `json:"delay,omitzero"`
		Callback *Callback    `json:"callback,omitempty"`
	}{s, wireDuration(r.Delay), r.Callback}
	return c.changeMany(ctx, Path("topics", topic, "dead", "redrive"), body, s.DryRun)
}

// PurgeDead forgets dead letters.
func (c *Client) PurgeDead(ctx context.Context, topic string, s DeadSelector) (Counts, error) {
	return c.changeMany(ctx, Path("topics", topic, "dead", "purge"), s, s.DryRun)
}
