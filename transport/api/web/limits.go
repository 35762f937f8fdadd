package web

import "time"

// Limits bound how much a client can make the server hold, and how long it waits.
type Limits struct {
	PayloadBytes int // 256 KiB, as delivered
	BodyBytes    int // 1 MiB
	BatchBytes   int // 8 MiB
	// 256 MiB: what has arrived of all bodies of over 16 KiB together, of requests that
	// have not been answered.
	BodiesBytes   int
	AnswersBytes  int // 256 MiB: all answers of over 16 KiB together, that have not been written
	BatchOps      int // 1,000; also the ids of one redrive or purge
	HeaderBytes   int // 16 KiB, request line included
	TargetBytes   int // 8 KiB: path and query
	Connections   int // 8,192
	BatchAnswer   int // 8 MiB: results of a batch beyond it carry no timer
	ResponseBytes int // 4 MiB: a page of a listing ends early rather than grow past it

	HeaderTimeout time.Duration // 10s from the first byte
	BodyTimeout   time.Duration // 30s from the end of the header
	IdleTimeout   time.Duration // 2m between requests
	WriteTimeout  time.Duration // 30s
	BatchWait     time.Duration // 1.5s for the turn of a batch
	Grace         time.Duration // 30s for requests in flight when Serve's context ends
	Unfinished    time.Duration // 1s for requests that have not wholly arrived by then

	BulkTime time.Duration // 10m for one bulk change

	Horizon time.Duration // 10 years
}

const (
	Day            = 24 * time.Hour
	defaultHorizon = 3653 * Day // ten years, leap days included
)

// DefaultLimits are those of API.md section 1.
func DefaultLimits() Limits {
	return Limits{
		PayloadBytes: 256 << 10, BodyBytes: 1 << 20, BatchBytes: 8 << 20, BodiesBytes: 256 << 20, AnswersBytes: 256 << 20, BatchOps: 1000,
		HeaderBytes: 16 << 10, TargetBytes: 8 << 10, Connections: 8192, BatchAnswer: 8 << 20, ResponseBytes: 4 << 20,
		HeaderTimeout: 10 * time.Second, BodyTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, WriteTimeout: 30 * time.Second,
		BatchWait: 1500 * time.Millisecond, Grace: 30 * time.Second, Unfinished: time.Second, BulkTime: 10 * time.Minute, Horizon: defaultHorizon,
	}
}

// TooFar refuses a time beyond the horizon.
func (l *Limits) TooFar() *Problem {
	return Failf(422, "beyond_horizon", "the time is more than %d years ahead; give an earlier one", int(l.Horizon/(365*Day)))
}

// A body of more than smallBody counts against the budget of bodies, by the buffer that holds its
// bytes so far, until its request is answered. Smaller ones are bounded by the number of
// connections, and cost nothing here.
const SmallBody = 16 << 10
