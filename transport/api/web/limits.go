package web

import (
	"cmp"
	"time"
)

// Limits bound how much a client can make the server hold, and how long it waits. Zero fields take
// the defaults of API.md section 1.
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

	SweepTime time.Duration // 10m for one bulk change

	Horizon time.Duration // 10 years
}

const (
	Day            = 24 * time.Hour
	defaultHorizon = 3653 * Day // ten years, leap days included
)

// WithDefaults fills in the limits that are zero.
func (l Limits) WithDefaults() Limits {
	l.PayloadBytes = cmp.Or(l.PayloadBytes, 256<<10)
	l.BodyBytes = cmp.Or(l.BodyBytes, 1<<20)
	l.BatchBytes = cmp.Or(l.BatchBytes, 8<<20)
	l.BodiesBytes = cmp.Or(l.BodiesBytes, 256<<20)
	l.AnswersBytes = cmp.Or(l.AnswersBytes, 256<<20)
	l.BatchAnswer = cmp.Or(l.BatchAnswer, 8<<20)
	l.BatchOps = cmp.Or(l.BatchOps, 1000)
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 16<<10)
	l.TargetBytes = cmp.Or(l.TargetBytes, 8<<10)
	l.Connections = cmp.Or(l.Connections, 8192)
	l.ResponseBytes = cmp.Or(l.ResponseBytes, 4<<20)
	l.HeaderTimeout = cmp.Or(l.HeaderTimeout, 10*time.Second)
	l.BodyTimeout = cmp.Or(l.BodyTimeout, 30*time.Second)
	l.IdleTimeout = cmp.Or(l.IdleTimeout, 2*time.Minute)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 30*time.Second)
	l.BatchWait = cmp.Or(l.BatchWait, 1500*time.Millisecond)
	l.Grace = cmp.Or(l.Grace, 30*time.Second)
	l.Unfinished = cmp.Or(l.Unfinished, time.Second)
	l.SweepTime = cmp.Or(l.SweepTime, 10*time.Minute)
	l.Horizon = cmp.Or(l.Horizon, defaultHorizon)
	return l
}

// A body of more than smallBody counts against the budget of bodies, by the buffer that holds its
// bytes so far, until its request is answered. Smaller ones are bounded by the number of
// connections, and cost nothing here.
const SmallBody = 16 << 10
