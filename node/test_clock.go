package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/vfs"
	"carillon/node/member"
	"carillon/shard"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// Alone is the configuration of a node that has no others.
type Alone struct {
	// TestClock is when the clock of a new directory begins; zero: timers run by the machine's
	// clock. A directory belongs to the one kind of clock or to the other. The clock continues
	// where the directory's last process left it.
	TestClock time.Time `type:"clock" placeholder:"TIME" help:"For tests: timers run by a clock that stands still until POST /v1/clock moves it, from now or an RFC 3339 time on; one node, in its own --data (off)."`

	ports bool // Config.asksForPorts, before the defaults
}

// validateAlone: the clocks of several nodes would not move together.
func (c Config) validateAlone() (errs []error) {
	switch at := c.TestClock; {
	case at.IsZero():
	case at.UnixMilli() < 0 || at.After(lastTestTime):
		errs = append(errs, fmt.Errorf("test-clock: %s is out of 1970–9999", at.Format(time.RFC3339)))
	case c.ports:
		errs = append(errs, errors.New("test-clock: a node with a test clock has no others: "+
			"leave out peer, gossip, advertise, join, bootstrap-expect, gossip-key and peer-cert"))
	}
	return errs
}

// timeSource is the clock of timers, leases, retries, breakers and retention: the machine's, or one
// for tests. Everything else (raft, time limits of requests and calls, signatures, quotas, logs) is
// by the machine's: see docs/adr/0064.
type timeSource interface {
	shard.Clock
	Lease() time.Duration
	Wall() time.Time
	WallMs() int64
	Fault() string
}

// testClockFile marks the directory of a node with a test clock. It has the clock's time, in UTC.
const (
	testClockFile = "test-clock"
	testClockForm = "2006-01-02T15:04:05.000Z\n"
)

// lastTestTime bounds the clock: the file has no place for a longer time.
var lastTestTime = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Bounds of one move of the clock. Tests lower them.
var (
	moveCalls int64 = 100_000
	moveTime        = time.Minute // with the time in which it waits for its turn
)

// poolPoll is how long to wait for a call that has ended to leave the pool: some microseconds.
const poolPoll = 50 * time.Microsecond

// testClock is the clock of a node for tests. It implements backend.TestClock.
type testClock struct {
	*clocks.Manual
	file  vfs.File
	calls atomic.Int64  // started by this process
	turn  chan struct{} // capacity 1: the clock is being moved

	core *core // set before the API shows it

	counted int64 // calls that an answer has counted; the next counts from here if this one stopped
	stopped bool
	tidyMs  int64 // time of the last tidy
}

// openClocks sets the process's clocks, and refuses a directory of the other kind of clock.
func (p *process) openClocks() error {
	p.clock = clocks.NewKeeper(clocks.Config{Source: newClocks(), Confirm: true, Saved: readSavedClock(p.fsys, p.cfg.DataDir, p.bootID)})
	p.timers = p.clock
	path := filepath.Join(p.cfg.DataDir, testClockFile)
	text, err := vfs.ReadFile(p.fsys, path, nil, 64)
	marked := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("node: read the test clock: %w", err)
	case p.cfg.TestClock.IsZero() && marked:
		return stayDown(fmt.Errorf("node: the timers in %s run by a test clock: start with --test-clock=now, or give another --data", p.cfg.DataDir))
	case p.cfg.TestClock.IsZero():
		return nil
	}
	begin := p.cfg.TestClock
	if marked {
		if begin, err = time.Parse(strings.TrimSpace(testClockForm), strings.TrimSpace(string(text))); err != nil {
			return stayDown(fmt.Errorf("node: %s is damaged: %w", path, err))
		}
	} else {
		if _, err := member.ReadIdentity(p.fsys, p.cfg.DataDir); !errors.Is(err, fs.ErrNotExist) {
			return stayDown(fmt.Errorf("node: %s was made by a node without a test clock: give another --data, or leave --test-clock out", p.cfg.DataDir))
		}
		if err := vfs.WriteFileAtomic(p.fsys, path, []byte(begin.UTC().Format(testClockForm))); err != nil {
			return fmt.Errorf("node: keep the test clock: %w", err)
		}
	}
	t := &testClock{Manual: clocks.NewManual(p.clock, begin.UnixMilli()), turn: make(chan struct{}, 1)}
	if t.file, err = p.fsys.OpenFile(path, os.O_RDWR); err != nil {
		return fmt.Errorf("node: keep the test clock: %w", err)
	}
	p.testClock, p.timers = t, t
	p.log.Warn("timers run by a test clock, which stands still until POST /v1/clock moves it", "clock", begin.UTC(), "goes_on", marked)
	return nil
}

// moveTo keeps the time before anything happens at it, so that a killed process does not go back.
func (t *testClock) moveTo(ms int64) error {
	if _, err := t.file.WriteAt([]byte(time.UnixMilli(ms).UTC().Format(testClockForm)), 0); err != nil {
		return fmt.Errorf("node: keep the test clock: %w", err)
	}
	t.MoveTo(ms)
	t.core.host.ClockMoved()
	return nil
}

// NowMs implements backend.TestClock.
func (t *testClock) NowMs() int64 { return t.WallMs() }

// Move implements backend.TestClock. The time goes from one instant at which something is due to
// the next. At each it stands still until all that is due is done.
func (t *testClock) Move(ctx context.Context, m backend.ClockMove) (backend.ClockMoved, error) {
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return backend.ClockMoved{}, fmt.Errorf("%w: another move of it has not ended", backend.ErrClockWaits)
	}
	defer func() { <-t.turn }()
	toMs := m.ToMs
	if m.By {
		toMs = t.NowMs() + min(m.ByMs, lastTestTime.UnixMilli())
	}
	switch {
	case toMs < t.NowMs():
		return backend.ClockMoved{}, backend.ErrClockPast
	case toMs > lastTestTime.UnixMilli():
		return backend.ClockMoved{}, backend.ErrClockEnd
	case toMs > t.LastMs():
		return backend.ClockMoved{}, backend.ErrClockFar
	}
	if err := t.core.mayCall(ctx); err != nil {
		return backend.ClockMoved{}, err
	}
	if !t.stopped {
		t.counted = t.calls.Load()
	}
	// Topics that are empty from here on are idle at the goal.
	idleMs := toMs - t.core.p.cfg.TopicIdle.Milliseconds()
	for _, ms := range []int64{idleMs, toMs} {
		if ms < t.NowMs() {
			continue
		}
		if err := t.passTo(ctx, ms); err != nil {
			return backend.ClockMoved{}, err
		}
		if t.stopped {
			break
		}
		if err := t.tidy(ctx); err != nil {
			return backend.ClockMoved{}, err
		}
	}
	calls := t.calls.Load()
	left, _ := t.core.host.Left()
	moved := backend.ClockMoved{NowMs: t.NowMs(), Calls: calls - t.counted, Left: left, Stopped: t.stopped}
	t.counted = calls
	return moved, nil
}

// passTo moves the clock to a time, unless it stops before.
func (t *testClock) passTo(ctx context.Context, ms int64) error {
	for {
		nextMs, settled := t.awaitRest(ctx)
		t.stopped = !settled || t.tooMany() && t.NowMs() < ms
		if t.stopped || nextMs > ms && t.NowMs() == ms {
			return nil
		}
		if err := t.moveTo(min(nextMs, ms)); err != nil {
			return err
		}
	}
}

// tidyInterval is how far the clock moves between two calls of tidy that drop something.
const tidyInterval = time.Minute

// tidy drops finished timers, history and topics that are past their retention by this clock.
// Otherwise they would go later, by the machine's clock.
func (t *testClock) tidy(ctx context.Context) error {
	now := t.NowMs()
	if now-t.tidyMs < min(tidyInterval, t.core.p.cfg.TopicIdle).Milliseconds() {
		return nil
	}
	for t.core.host.DropFinished() {
		if err := t.passTo(ctx, now); err != nil || t.stopped {
			return err
		}
	}
	t.tidyMs = now
	t.core.history.tidy()
	t.core.idle.Round(ctx)
	return nil
}

// tooMany reports that this move and those that stopped before it have made as many calls as one
// may.
func (t *testClock) tooMany() bool { return t.calls.Load()-t.counted > moveCalls }

// awaitRest waits until nothing is to be done at this instant, and returns the next one. It reports
// false if the context ends before, or if more is to start after moveCalls.
func (t *testClock) awaitRest(ctx context.Context) (nextMs int64, settled bool) {
	for {
		nextMs, settled = t.core.host.Settled()
		if settled && t.core.pool.Idle() {
			return nextMs, true
		}
		if t.tooMany() {
			if left, leased := t.core.host.Left(); left > leased {
				return 0, false
			} // else the last ones are about to end
		}
		turn := t.core.host.TurnEnded()
		var left <-chan time.Time
		if settled {
			left = time.After(poolPoll)
		}
		select {
		case <-ctx.Done():
			return 0, false
		case <-turn:
		case <-left:
		}
	}
}

// mayCall waits until the node may make calls of all topics: it is about to, if it is ready. Its
// error has the reason why the node is not.
func (c *core) mayCall(ctx context.Context) error {
	for {
		err := (&engine{p: c.p}).Ready()
		if err == nil {
			if c.p.ownAddresses.learned.Load() && c.member.State.Secret() != nil {
				return nil
			}
			err = timer.ErrRecovering
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", backend.ErrClockWaits, err)
		case <-time.After(readyPoll):
		}
	}
}
