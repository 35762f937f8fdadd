package spec

import "carillon/transport/api/web"

// Bounds of a lease.
const (
	leastLeaseMs = 1_000
	mostLeaseMs  = 12 * 3_600_000
)

// ReadLease reads how long a consumer wants to have timers.
func ReadLease(r *web.Reader) int64 {
	return r.RangedSpan("lease", leastLeaseMs, mostLeaseMs)
}

// MaxRetentionMs is the longest time for which anything is kept, ten years.
const MaxRetentionMs = 3653 * web.MsPerDay
