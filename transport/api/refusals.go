package api

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"carillon/internal/audit"
)

// refusalWindow is how long refusals of one token, with one status, make one entry.
const refusalWindow = time.Minute

// refusals keep the audit log from being filled with requests that were refused, which cost a
// client nothing: of each token and status the first goes to the log at once; the further ones of
// its minute are counted, and their number is recorded when the minute is over. Memory is bounded
// by the number of tokens times that of statuses. Safe for use by any goroutine.
type refusals struct {
	record func(audit.Entry) // nil: nothing is recorded
	now    func() time.Time

	mu    sync.Mutex
	first map[refusalKey]*firstRefusal
}

type refusalKey struct {
	token  [sha256.Size]byte // zero for a request without a token
	status int
}

// firstRefusal is one that was recorded.
type firstRefusal struct {
	at   time.Time
	who  string
	more int // since then
}

func (r *refusals) add(token [sha256.Size]byte, c audit.Entry) {
	key, now := refusalKey{token, c.Status}, r.now()
	r.mu.Lock()
	before := r.first[key]
	if before != nil && !before.over(now) {
		before.more++
		r.mu.Unlock()
		return
	}
	c.Refused = 1
	if before != nil {
		c.Refused += before.more
	}
	if r.first == nil {
		r.first = map[refusalKey]*firstRefusal{}
	}
	r.first[key] = &firstRefusal{at: now, who: c.Who}
	r.mu.Unlock()
	r.record(c)
}

// over reports whether the minute has passed. A clock that was set back has ended it, too.
func (f *firstRefusal) over(now time.Time) bool {
	since := now.Sub(f.at)
	return since >= refusalWindow || since < 0
}

// flush records the numbers of the minutes that are over, or of all.
func (r *refusals) flush(all bool) {
	now := r.now()
	var ended []audit.Entry
	r.mu.Lock()
	for key, f := range r.first {
		if !all && !f.over(now) {
			continue
		}
		delete(r.first, key)
		if f.more > 0 {
			ended = append(ended, audit.Entry{Who: f.who, What: auditRefused, Object: nobody, From: nobody, Status: key.status, Refused: f.more})
		}
	}
	r.mu.Unlock()
	for _, c := range ended {
		r.record(c)
	}
}

// run flushes until the context ends, and then once more.
func (r *refusals) run(ctx context.Context) {
	if r.record == nil {
		return
	}
	tick := time.NewTicker(refusalWindow)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.flush(false)
		case <-ctx.Done():
			r.flush(true)
			return
		}
	}
}
