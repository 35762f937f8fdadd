package client

import (
	"context"
	"net/http"
	"time"
)

// Selected is a filter, or all.
type Selected struct {
	Filter Filter
	All    bool // needed where the filter says nothing
}

// Counts is what a change of many came to.
type Counts struct {
	Matched int `json:"matched"`
	Changed int `json:"changed"`
	Skipped int `json:"skipped"` // in flight; of dead letters: no more, or their id is in use again
}

// Move is where a reschedule takes timers: exactly one of its fields.
type Move struct {
	Shift     Duration // later, or earlier, than now scheduled
	At        time.Time
	NotBefore time.Time // moves only what would come earlier
}

type wireBulk struct {
	Filter    *wireFilter `json:"filter,omitempty"`
	All       bool        `json:"all,omitempty"`
	Shift     Duration    `json:"shift,omitzero"`
	At        *time.Time  `json:"at,omitempty"`
	NotBefore *time.Time  `json:"not_before,omitempty"`
}

func (s *Selected) wire() wireBulk { return wireBulk{Filter: s.Filter.wire(), All: s.All} }

// CancelAll cancels the timers that are selected. It may take long, and is safe to repeat.
func (c *Client) CancelAll(ctx context.Context, topic string, s Selected) (Counts, error) {
	return c.changeMany(ctx, join("topics", topic, "cancel"), s.wire())
}

// Reschedule moves the timers that are selected. It may take long. Repeating is safe but for a shift, which moves again what it moved.
func (c *Client) Reschedule(ctx context.Context, topic string, s Selected, m Move) (Counts, error) {
	body := s.wire()
	body.Shift, body.At, body.NotBefore = m.Shift, moment(m.At), moment(m.NotBefore)
	return c.changeMany(ctx, join("topics", topic, "reschedule"), body)
}

func (c *Client) changeMany(ctx context.Context, path string, body any) (n Counts, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: path, body: body}, &n)
	return n, err
}
