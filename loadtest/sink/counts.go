package sink

import (
	"fmt"
	"sync/atomic"

	"carillon/loadtest/hist"
)

// Counts has a sink's counts since it started.
type Counts struct {
	Received  int64 `json:"received"`
	Succeeded int64 `json:"succeeded"` // answered 2xx
	// Answered otherwise, on purpose or for a bad signature.
	Failed       int64 `json:"failed"`
	Retries      int64 `json:"retries"`       // Carillon-Attempt above 1
	Early        int64 `json:"early"`         // before Carillon-Due and Carillon-Asked
	Repeated     int64 `json:"repeated"`      // a fence seen before: one attempt came twice
	StaleFence   int64 `json:"stale_fence"`   // a fence below the highest of its timer
	BadSignature int64 `json:"bad_signature"` // missing, wrong or outdated
}

func (c Counts) String() string {
	return fmt.Sprintf("received %d  failed %d  retries %d  early %d  repeated %d  stale fence %d  bad signature %d",
		c.Received, c.Failed, c.Retries, c.Early, c.Repeated, c.StaleFence, c.BadSignature)
}

type counters struct {
	received, succeeded, failed, retries, early, repeated, staleFence, badSignature atomic.Int64
}

func (c *counters) snapshot() Counts {
	return Counts{
		Received: c.received.Load(), Succeeded: c.succeeded.Load(), Failed: c.failed.Load(),
		Retries: c.retries.Load(), Early: c.early.Load(), Repeated: c.repeated.Load(),
		StaleFence: c.staleFence.Load(), BadSignature: c.badSignature.Load(),
	}
}

func latenessLine(s hist.Summary) string {
	return fmt.Sprintf("lateness ms  p50 %.2f  p99 %.2f  max %.2f", s.P50, s.P99, s.Max)
}
