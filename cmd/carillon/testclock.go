package main

import (
	"errors"
	"time"
)

// parseClock reads when a test clock begins: now, or an instant.
func parseClock(text string) (time.Time, error) {
	if text == "now" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		return at, errors.New(`now, or an RFC 3339 time like 2026-01-01T00:00:00Z, is expected`)
	}
	return at, nil
}
