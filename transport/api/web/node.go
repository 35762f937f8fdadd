package web

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"carillon/transport/api/backend"
)

// Settings are the part of a server's configuration that handlers need. Zero fields take the
// default.
type Settings struct {
	Engine backend.Engine // required
	Limits Limits         // none: DefaultLimits
	Logger *slog.Logger

	Clock func() time.Time // of timers; time.Now
	Now   func() time.Time // of quotas, and of what is counted by the minute; Clock
	// ClockFault is the reason why Clock cannot be believed now: then no time is reckoned from it.
	// "": it can; nil: always.
	ClockFault func() string
	Rand       func() uint64 // 64 random bits for ids and uids; any goroutine; math/rand/v2
	// Digest is a number that stands for a secret where the content of adds is compared, so that
	// nobody can try which secret it was. Its error is the engine's. nil: the secret is hashed like
	// any text.
	Digest func(text string) (uint64, error)
	// RefusedURL is the reason why a callback may not go to this URL, which is well-formed. Only an
	// address can be judged here: names are judged when they are dialled. Good ones are remembered
	// until Server.ForgetURLs. nil refuses nothing.
	RefusedURL func(url string) error
	// ClusterError names an error of Cluster as package backend does; nil: they are named so.
	ClusterError func(error) error
	// KnownTopicsOnly: an add to, or a pull from, a topic that is not there does not make it but is
	// 404.
	KnownTopicsOnly bool
}

// Node is what all requests of a server share.
type Node struct {
	Settings
	Salt      uint64 // see shardAt
	Audits    bool   // outcomes are wanted
	URLs      URLCache
	Principal func(token [sha256.Size]byte) *Principal // nil: it is none any more

	// Base is the context of every call into the engine. It outlives Serve's: requests in flight
	// may finish.
	Base context.Context
	// Ending ends with Serve's context: operations that would take longer than the grace stop then.
	Ending context.Context

	Answers               Memory
	Bulks, Streams, Polls Lasting
	Backups               chan struct{} // as many as are being taken
	Beat                  time.Duration // of streams
	Batches               Gate
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
