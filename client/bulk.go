package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Selector is a filter, or all.
type Selector struct {
	Filter Filter
	All    bool // needed where the filter says nothing
	DryRun bool // change nothing: the Counts are those that the change would have
}

// Counts are the counts of a change of many timers.
type Counts struct {
	Matched int `json:"matched"`
	Changed int `json:"changed"`
	// Skipped were in flight. Of dead letters: those that are gone, whose id is in use again, or
	// that have no URL.
	Skipped int  `json:"skipped"`
	DryRun  bool `json:"dry_run,omitempty"` // nothing was changed
	// Skips are the dead letters that were skipped, the first 100, with the reason.
	Skips []Skip `json:"skips,omitempty"`
	// First is, of a dry run, the id of the timer that would be changed and is due first.
	First string `json:"first,omitempty"`
}

// Skip is why a dead letter was not changed.
type Skip struct {
	ID  string `json:"id,omitempty"`
	UID string `json:"uid,omitempty"`
	// Code is not_found, in_use (another timer has the id by now), busy (too many timers of the id
	// have not ended) or no_callback (a redrive of one that has no URL, nor has its topic).
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// RescheduleTo is where a reschedule takes timers: exactly one of its fields.
type RescheduleTo struct {
	Shift     time.Duration // later, or earlier, than now scheduled
	At        time.Time
	AtLocal   string    // with Zone, as in Spec
	Zone      string    // goes with AtLocal
	NotBefore time.Time // moves only timers that would come earlier
}

type wireBulk struct {
	Filter    *wireFilter  `json:"filter,omitempty"`
	All       bool         `json:"all,omitempty"`
	Shift     wireDuration `json:"shift,omitzero"`
	At        *time.Time   `json:"at,omitempty"`
	AtLocal   string       `json:"at_local,omitempty"`
	Zone      string       `json:"zone,omitempty"`
	NotBefore *time.Time   `json:"not_before,omitempty"`
}

func (s *Selector) wire() wireBulk { return wireBulk{Filter: s.Filter.wire(), All: s.All} }

// CancelAll cancels the timers that are selected. It may take long, and is safe to repeat.
func (c *Client) CancelAll(ctx context.Context, topic string, s Selector) (Counts, error) {
	return c.changeMany(ctx, Path("topics", topic, "cancel"), s.wire(), s.DryRun)
}

// Reschedule moves the timers that are selected. It may take long. Repeating is safe but for a
// shift, which moves the same timers again.
func (c *Client) Reschedule(ctx context.Context, topic string, s Selector, to RescheduleTo) (Counts, error) {
	body := s.wire()
	body.Shift, body.At, body.NotBefore = wireDuration(to.Shift), moment(to.At), moment(to.NotBefore)
	body.AtLocal, body.Zone = to.AtLocal, to.Zone
	return c.changeMany(ctx, Path("topics", topic, "reschedule"), body, s.DryRun)
}

func (c *Client) changeMany(ctx context.Context, path string, body any, dry bool) (n Counts, err error) {
	r := Request{Method: http.MethodPost, Path: path}
	if dry {
		r.Query, r.Repeatable = url.Values{"dry_run": {"true"}}, true
	}
	err = c.call(ctx, r, body, &n)
	return n, err
}
