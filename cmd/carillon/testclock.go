package main

import (
	"errors"
	"time"
)

// clockStart is when a test clock begins: now, or an instant. Zero: there is none.
type clockStart time.Time

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *clockStart) UnmarshalText(text []byte) error {
	if string(text) == "now" {
		*c = clockStart(time.Now())
		return nil
	}
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil || at.IsZero() {
		return errors.New(`now, or an RFC 3339 time like 2026-01-01T00:00:00Z, is expected`)
	}
	*c = clockStart(at)
	return nil
}
