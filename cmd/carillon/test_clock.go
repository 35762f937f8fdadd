package main

import (
	"errors"
	"fmt"
	"time"
)

// parseClock reads when a test clock begins: now, or an instant.
func parseClock(text string) (time.Time, error) {
	if text == "now" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return at, fmt.Errorf("%q is not a time: give now, or RFC 3339 with a zone, as in 2026-01-01T00:00:00Z", text)
	case at.IsZero(): // which stands for no test clock
		return at, errors.New(text + " is out of 1970–9999")
	}
	return at, nil
}
