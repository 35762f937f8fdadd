package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// wireDuration is how a time.Duration travels: as text, "30m". The API's precision is a
// millisecond; what is finer is rounded up. The methods below put it in the place of each
// time.Duration, under the same name in JSON, which hides the one of the embedded type.
type wireDuration time.Duration

// MarshalJSON implements json.Marshaler.
func (d wireDuration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *wireDuration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("a duration is a text: %w", err)
	}
	v, err := time.ParseDuration(text)
	*d = wireDuration(v)
	return err
}

// MarshalJSON implements json.Marshaler.
func (c Callback) MarshalJSON() ([]byte, error) {
	type plain Callback
	return encode(struct {
		plain
		Timeout wireDuration `json:"timeout,omitzero"`
	}{plain(c), wireDuration(c.Timeout)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Callback) UnmarshalJSON(b []byte) error {
	type plain Callback
	var wire struct {
		plain
		Timeout wireDuration `json:"timeout"`
	}
	err := json.Unmarshal(b, &wire)
	*c = Callback(wire.plain)
	c.Timeout = time.Duration(wire.Timeout)
	return err
}

// MarshalJSON implements json.Marshaler.
func (r Retry) MarshalJSON() ([]byte, error) {
	type plain Retry
	return encode(struct {
		plain
		MinBackoff wireDuration `json:"min_backoff,omitzero"`
		MaxBackoff wireDuration `json:"max_backoff,omitzero"`
	}{plain(r), wireDuration(r.MinBackoff), wireDuration(r.MaxBackoff)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Retry) UnmarshalJSON(b []byte) error {
	type plain Retry
	var wire struct {
		plain
		MinBackoff wireDuration `json:"min_backoff"`
		MaxBackoff wireDuration `json:"max_backoff"`
	}
	err := json.Unmarshal(b, &wire)
	*r = Retry(wire.plain)
	r.MinBackoff = time.Duration(wire.MinBackoff)
	r.MaxBackoff = time.Duration(wire.MaxBackoff)
	return err
}

// MarshalJSON implements json.Marshaler.
func (r Repeat) MarshalJSON() ([]byte, error) {
	type plain Repeat
	return encode(struct {
		plain
		Every wireDuration `json:"every,omitzero"`
	}{plain(r), wireDuration(r.Every)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Repeat) UnmarshalJSON(b []byte) error {
	type plain Repeat
	var wire struct {
		plain
		Every wireDuration `json:"every"`
	}
	err := json.Unmarshal(b, &wire)
	*r = Repeat(wire.plain)
	r.Every = time.Duration(wire.Every)
	return err
}

// MarshalJSON implements json.Marshaler.
func (k Breaker) MarshalJSON() ([]byte, error) {
	type plain Breaker
	return encode(struct {
		plain
		Window wireDuration `json:"window,omitzero"`
		Open   wireDuration `json:"open,omitzero"`
	}{plain(k), wireDuration(k.Window), wireDuration(k.Open)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *Breaker) UnmarshalJSON(b []byte) error {
	type plain Breaker
	var wire struct {
		plain
		Window wireDuration `json:"window"`
		Open   wireDuration `json:"open"`
	}
	err := json.Unmarshal(b, &wire)
	*k = Breaker(wire.plain)
	k.Window, k.Open = time.Duration(wire.Window), time.Duration(wire.Open)
	return err
}

// MarshalJSON implements json.Marshaler.
func (p Policy) MarshalJSON() ([]byte, error) {
	type plain Policy
	return encode(struct {
		plain
		Lease         wireDuration `json:"lease,omitzero"`
		MaxWait       wireDuration `json:"max_wait,omitzero"`
		Spread        wireDuration `json:"spread,omitzero"`
		History       wireDuration `json:"history,omitzero"`
		DeadRetention wireDuration `json:"dead_retention,omitzero"`
	}{plain(p), wireDuration(p.Lease), wireDuration(p.MaxWait), wireDuration(p.Spread), wireDuration(p.History), wireDuration(p.DeadRetention)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Policy) UnmarshalJSON(b []byte) error {
	type plain Policy
	var wire struct {
		plain
		Lease         wireDuration `json:"lease"`
		MaxWait       wireDuration `json:"max_wait"`
		Spread        wireDuration `json:"spread"`
		History       wireDuration `json:"history"`
		DeadRetention wireDuration `json:"dead_retention"`
	}
	err := json.Unmarshal(b, &wire)
	*p = Policy(wire.plain)
	p.Lease = time.Duration(wire.Lease)
	p.MaxWait = time.Duration(wire.MaxWait)
	p.Spread = time.Duration(wire.Spread)
	p.History = time.Duration(wire.History)
	p.DeadRetention = time.Duration(wire.DeadRetention)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Timer) UnmarshalJSON(b []byte) error {
	type plain Timer
	var wire struct {
		plain
		ExpiresAfter *wireDuration `json:"expires_after"`
	}
	err := json.Unmarshal(b, &wire)
	*t = Timer(wire.plain)
	t.ExpiresAfter = (*time.Duration)(wire.ExpiresAfter)
	return err
}

// UnmarshalJSON implements json.Unmarshaler: the Timer's would be taken for it.
func (l *Lease) UnmarshalJSON(b []byte) error {
	var wire struct {
		Receipt    string    `json:"receipt"`
		Fence      uint64    `json:"fence"`
		Attempt    int       `json:"attempt"`
		LeaseUntil time.Time `json:"lease_until"`
	}
	err := errors.Join(json.Unmarshal(b, &wire), json.Unmarshal(b, &l.Timer))
	l.Receipt, l.Fence, l.Attempt, l.LeaseUntil = wire.Receipt, wire.Fence, wire.Attempt, wire.LeaseUntil
	return err
}

// UnmarshalJSON implements json.Unmarshaler: the Timer's would be taken for it.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var wire struct {
		Ended time.Time `json:"ended"`
	}
	err := errors.Join(json.Unmarshal(b, &wire), json.Unmarshal(b, &e.Timer))
	e.Ended = wire.Ended
	return err
}
