package member

import (
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	slowSync = 500 * time.Millisecond // an fsync is slow
	hungSync = time.Second            // one fsync of this length is enough
	// A node that was unhealthy stays so for this long, so that leaderships do not flap.
	unhealthyHold = 10 * time.Second
)

// none is a moment that never was.
const none = time.Duration(math.MinInt64)

// Health watches the conditions under which a node must not lead: a disk that syncs slowly, a wrong
// clock, a missing key.
type Health struct {
	mu     sync.Mutex
	slow   [10]int // fsyncs of over half a second in each of the last seconds
	all    [10]int
	second int64
	since  time.Duration // the fsync that is under way began; none
	lack   string        // what the log waits for: room on its disk
	reason string
	until  time.Duration
}

func newHealth() *Health { return &Health{since: none} }

// SyncBegins records that an fsync begins. There is one log, so only one runs at a time.
func (h *Health) SyncBegins(now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = now
}

// Synced records the duration of an fsync that has ended.
func (h *Health) Synced(now, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = none
	h.passLocked(now)
	h.all[h.second%10]++
	if took > slowSync {
		h.slow[h.second%10]++
	}
}

// Waits records what lacks where the log waits for room; "": it does not wait.
func (h *Health) Waits(lack string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lack = lack
}

// passLocked clears the seconds that have passed since the last call.
func (h *Health) passLocked(now time.Duration) {
	for second := int64(now / time.Second); h.second < second; {
		h.second = max(h.second+1, second-10)
		h.all[h.second%10], h.slow[h.second%10] = 0, 0
	}
}

// check returns why this node must not lead now; "": it may. clock is what is wrong with its clock,
// key the one that it lacks, see Config.LacksKey.
func (h *Health) check(now time.Duration, clock, key string) string {
	reason := clock
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passLocked(now)
	all, slow := 0, 0
	for i := range h.all {
		all, slow = all+h.all[i], slow+h.slow[i]
	}
	if slow > 0 && slow*100 > all {
		reason = fmt.Sprintf("%d of its last %d fsyncs took over %s", slow, all, slowSync)
	}
	// It may never end, whatever the earlier ones took.
	if lasts := now - h.since; h.since != none && lasts > hungSync {
		reason = fmt.Sprintf("an fsync takes longer than %s", hungSync)
	}
	if h.lack != "" {
		reason = h.lack + ": the log waits"
	}
	if key != "" {
		reason = key
	}
	if reason != "" {
		h.reason, h.until = reason, now+unhealthyHold
	} else if now >= h.until {
		h.reason = ""
	}
	return h.reason
}

// Why is the last answer of check.
func (h *Health) Why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}
