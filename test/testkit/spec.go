// Package testkit provides timers and measurements for tests of several packages.
package testkit

import "carillon/timer"

// FullSpec is a spec with every field set, except for a repeat.
func FullSpec() *timer.Spec {
	return &timer.Spec{
		DueMs: 1_700_000_123_456, Payload: []byte(`{"order": 77}`), PayloadKind: timer.JSONPayload, ContentType: "application/json",
		Callback: timer.Callback{
			URL: "https://shop.example/hooks", Method: "PUT", TimeoutMs: 10_000,
			Headers: []timer.Header{{Name: "X-Tenant", Value: "7"}, {Name: "X-Empty", Value: ""}}, HasHeaders: true,
		},
		Retry:    timer.Retry{MaxAttempts: 16, MinBackoffMs: 1000, MaxBackoffMs: 3_600_000, Multiplier: 2, Jitter: 0, HasJitter: true},
		Priority: 5, Labels: []string{"orders", "eu"}, ExpiresAfterMs: 600_000, HasExpiry: true,
	}
}

// SomeTrace is a trace context with the state of two vendors.
func SomeTrace() *timer.Trace {
	return timer.ParseTrace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7")
}
