package client

import (
	"context"
	"net/http"
	"time"
)

// Selector is a filter, or all.
type Selector struct {
	Filter Filter `json:"filter"`
	All    bool   `json:"all,omitempty"` // needed where the filter says nothing
	DryRun bool   `json:"-"`             // change nothing: the Counts are those that the change would have
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
	Shift     time.Duration `json:"shift,omitzero"` // later, or earlier, than now scheduled
	At        time.Time     `json:"at,omitzero"`
	AtLocal   string        `json:"at_local,omitempty"`  // with Zone, as in Spec
	Zone      string        `json:"zone,omitempty"`      // goes with AtLocal
	NotBefore time.Time     `json:"not_before,omitzero"` // moves only timers that would come earlier
}

// CancelAll cancels the timers that are selected. It may take long, and is safe to repeat.
func (c *Client) CancelAll(ctx context.Context, topic string, s Selector) (Counts, error) {
	return c.changeMany(ctx, Path("topics", topic, "cancel"), s, s.DryRun)
}

// Reschedule moves the timers that are selected. It may take long. Repeating is safe but for a
// shift, which moves the same timers again.
func (c *Client) Reschedule(ctx context.Context, topic string, s Selector, to RescheduleTo) (Counts, error) {
	body := struct {
		Selector
		RescheduleTo
		Shift wireDuration `json:"shift,omitzero"` // instead of RescheduleTo's
	}{s, to, wireDuration(to.Shift)}
	return c.changeMany(ctx, Path("topics", topic, "reschedule"), body, s.DryRun)
}

func (c *Client) changeMany(ctx context.Context, path string, body any, dry bool) (n Counts, err error) {
	r := Request{Method: http.MethodPost, Path: path}
	if dry {
		r.Query, r.Repeatable = dryRun, true
	}
	err = c.call(ctx, r, body, &n)
	return n, err
}
