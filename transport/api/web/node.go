package web

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"carillon/transport/api/backend"
)

// Node is what all requests of a server share.
type Node struct {
	Engine backend.Engine
	Limits Limits
	Logger *slog.Logger

	Clock      func() time.Time // of timers
	Now        func() time.Time // of the machine
	ClockFault func() string
	Rand       func() uint64
	Digest     func(text string) (uint64, error)
	Salt       uint64 // see shardAt

	RefusedURL      func(url string) error
	ClusterError    func(error) error
	KnownTopicsOnly bool
	Audits          bool // outcomes are wanted
	URLs            URLCache
	Principal       func(token [sha256.Size]byte) *Principal // nil: it is none any more

	// Base is the context of every call into the engine. It outlives Serve's: requests in flight
	// may finish.
	Base context.Context
	// Ending ends with Serve's context: operations that would take longer than the grace stop then.
	Ending context.Context

	Answers                Memory
	Sweeps, Streams, Polls Lasting
	Backups                chan struct{} // as many as are being taken
	Beat                   time.Duration // of streams
	Batches                Gate
}

// Memory is shared by what clients have the server hold.
type Memory interface {
	Take(owner Sender, n int64) bool // or nothing
	Give(owner Sender, n int64)
}

// Lasting are places for requests that last. One that is taken is given back by its token.
type Lasting interface {
	Take(who *Principal) (token [sha256.Size]byte, refused *Problem)
	Give(token [sha256.Size]byte)
}

// NowMs is the server's clock in Unix ms, rounded up.
func (n *Node) NowMs() int64 { return ceilMs(n.Clock()) }

// KnowsNow refuses to compute a time from now while this node does not know the time.
// Another node may.
func (n *Node) KnowsNow() *Problem {
	why := n.ClockFault()
	if why == "" {
		return nil
	}
	return Fail(503, Unavailable, "this node cannot tell the instant: "+why+"; nothing was changed. Give an instant (at, at_ms), or ask another node")
}

// Sleep waits, or ends early with false when the server stops.
func (n *Node) Sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-n.Base.Done():
		return false
	}
}

// LogCause keeps an error that has no place in the contract from being lost.
func (n *Node) LogCause(p *Problem) {
	if p.Cause != nil {
		n.Logger.Error("the engine failed", "error", p.Cause)
	}
}
