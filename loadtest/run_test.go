package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"carillon/test/testkit"
)

// quick fills a configuration for a short run against the fake.
func quick(f *fake, c Config) Config {
	c.URL = append([]string{f.url}, f.others...)
	if c.Connections == 0 {
		c.Connections = 4
	}
	if c.Timers == 0 {
		c.Timers = 100
	}
	if c.Delay == "" {
		c.Delay = "250ms"
	}
	if c.Grace == 0 {
		c.Grace = 5 * time.Second // ample: it is waited for only if something is lost
	}
	c.Quiet = true
	return c
}

// bubble runs a test in a bubble of synctest. It stays until the receiver's
// worker pool has looked for idle workers for the last time; the time is free.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) })
		test(t)
	})
}

// startServerDate starts fasthttp's clock for the Date header, which never ends
// and therefore must not be first started inside a bubble.
func startServerDate() {
	var header fasthttp.ResponseHeader
	header.AppendBytes(nil)
}

func play(t *testing.T, f *fake, c Config) (Report, string) {
	t.Helper()
	var out bytes.Buffer
	report, err := runOn(t.Context(), f.pipes.network(), quick(f, c), &out, io.Discard)
	testkit.Must(t, err)
	return report, out.String()
}

// TestPausedTopic: its timers would wait, and be called lost. An add that is not to be called may
// be measured there.
func TestPausedTopic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		f.paused.Store(true)
		config := quick(f, Config{Mode: ModeFire, Timers: 10})
		_, err := runOn(t.Context(), f.pipes.network(), config, io.Discard, io.Discard)
		if want := "loadtest: topic loadtest is paused: its timers would wait; carillon ctl topics resume loadtest, or name another with --topic"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if r, out := play(t, f, Config{Mode: ModeAdd, Timers: 10, Delay: "1h"}); r.Added != 10 || len(r.Failures()) > 0 {
			t.Error(out)
		}
	})
}

// TestTopicIsPausedMeanwhile: its timers are not lost. They are there, as their cancel shows; the
// report names the topic.
func TestTopicIsPausedMeanwhile(t *testing.T) {
	for _, keep := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r, out := play(t, newFake(t, every(10, faultPaused)), Config{Mode: ModeFire, Timers: 100, Grace: 1500 * time.Millisecond, Keep: keep})
			if r.Lost != 0 || r.Overdue != 10 || r.Paused != "loadtest" || len(r.Failures()) > 0 {
				t.Errorf("keep %v: lost %d, overdue %d, paused %q, failures %q", keep, r.Lost, r.Overdue, r.Paused, r.Failures())
			}
			if want := "  10 timers were due and not yet delivered: topic loadtest is paused (carillon ctl topics resume loadtest)\n"; !strings.Contains(out, want) {
				t.Errorf("%s\nlacks %s", out, want)
			}
		})
	}
}

func TestFaultsAreCaught(t *testing.T) {
	type counts struct {
		lost, early, duplicate, cancelledFired, stale, wrong, unexpected, unknown, retries, fired int64
	}
	// Each tenth of 100 timers has the fault; fired counts timers, not calls.
	for _, c := range []struct {
		name   string
		fault  fault
		config Config
		want   counts
	}{
		{"none", faultNone, Config{}, counts{fired: 100}},
		{"drops", faultDrop, Config{Grace: 1500 * time.Millisecond}, counts{lost: 10, fired: 90}},
		{"fires early", faultEarly, Config{Delay: "800ms"}, counts{early: 10, fired: 100}},
		{"fires early and lies about due", faultEarlyLie, Config{Delay: "800ms"}, counts{early: 10, wrong: 10, fired: 100}},
		{"fires twice", faultDouble, Config{}, counts{duplicate: 10, fired: 100}},
		{"answers 503 but fires", faultErrorButFires, Config{Batch: 1}, counts{unknown: 10, fired: 100}},
		{"answers 503 in a batch but fires", faultErrorButFires, Config{Batch: 25}, counts{unknown: 10, fired: 100}},
		{"answers 503 and fires twice", faultErrorFiresTwice, Config{}, counts{unknown: 10, fired: 100}},
		{"answers 503 and forgets", faultErrorAndForgets, Config{}, counts{unknown: 10, fired: 90}},
		{"answers 429 but fires", faultRefuseButFires, Config{}, counts{unexpected: 10, fired: 100}},
		{"cuts the connection but fires", faultCutConnection, Config{Batch: 1}, counts{unknown: 10, fired: 100}},
		{"never answers but fires", faultHangButFires, Config{Batch: 1, Connections: 10, Timeout: 50 * time.Millisecond, Delay: "1500ms"}, counts{unknown: 10, fired: 100}},
		{"delivers another body", faultCorrupt, Config{}, counts{wrong: 10, fired: 100}},
		{"does not say which attempt it is", faultNoAttempt, Config{}, counts{wrong: 10, fired: 100}},
		{"has no webhook-id", faultNoWebhookID, Config{}, counts{wrong: 10, fired: 100}},
		{"fires under another id, too", faultAlias, Config{}, counts{wrong: 10, fired: 100}},
		{"retries", faultRetry, Config{}, counts{retries: 10, fired: 100}},
		{"forgets what it acknowledged", faultVanish, Config{Delay: "1h", Drain: time.Millisecond}, counts{lost: 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := newFake(t, every(10, c.fault))
				c.config.Mode = ModeFire
				r, out := play(t, f, c.config)
				got := counts{r.Lost, r.Early, r.Duplicate, r.CancelledFired, r.Stale, r.WrongPayload, r.Unexpected, r.Unknown, r.Retries, r.Fired}
				if got != c.want {
					t.Errorf("counts = %+v, want %+v\n%s", got, c.want, out)
				}
				w := c.want
				if failed := w.lost+w.early+w.wrong+w.unexpected > 0; failed != (len(r.Failures()) > 0) {
					t.Errorf("failures = %q", r.Failures())
				}
			})
		})
	}
}

func TestCancelledMustNotFire(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(10, faultFireCancelled))
		r, out := play(t, f, Config{Mode: ModeChurn, CancelShare: 1, Delay: "800ms", Timers: 100, Payload: 80})
		// Nothing is owed after the cancels: it is for this that the drain waits for
		// the due times of the cancelled, too.
		if r.CancelledFired != 10 || len(r.Failures()) != 1 {
			t.Errorf("cancelled fired = %d, want 10\n%s", r.CancelledFired, out)
		}
	})
}

func TestChurnCancelsItsShare(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		r, out := play(t, f, Config{Mode: ModeChurn, CancelShare: 0.8, Timers: 1000, Delay: "1s", Topics: 3, Keys: 7})
		if r.Added != 1000 || r.Prevented < 700 || r.Prevented > 900 || r.Fired != 1000-r.Prevented {
			t.Errorf("added %d, prevented %d, fired %d\n%s", r.Added, r.Prevented, r.Fired, out)
		}
		if len(r.Failures()) > 0 || r.Errors > 0 {
			t.Errorf("failures = %q, errors = %d", r.Failures(), r.Errors)
		}
	})
}

func TestUnansweredCancelExcuses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(2, faultCancelUnanswered))
		r, out := play(t, f, Config{Mode: ModeChurn, CancelShare: 1, Timers: 100})
		if r.Unknown != 50 || r.Prevented != 50 || r.Lost != 0 || r.Errors != 50 {
			t.Errorf("unknown %d, prevented %d, lost %d, errors %d\n%s", r.Unknown, r.Prevented, r.Lost, r.Errors, out)
		}
	})
}

func TestMixed(t *testing.T) {
	for _, c := range []struct {
		name         string
		fault        fault
		batch        int
		stale, wrong bool
	}{
		{"as promised", faultNone, 1, false, false},
		{"in batches", faultNone, 8, false, false},
		{"old version fires", faultOldVersion, 1, true, false},
		{"old payload at the new time", faultTorn, 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				f := newFake(t, every(1, c.fault))
				r, out := play(t, f, Config{Mode: ModeMixed, Timers: 400, Batch: c.batch, Delay: "uniform:300ms-500ms", Mix: "add=40,patch=30,cancel=10,get=20", Topics: 2, Keys: 5})
				if (r.Stale > 0) != c.stale || (r.WrongPayload > 0) != c.wrong || r.Lost+r.Early+r.Duplicate+r.CancelledFired > 0 {
					t.Errorf("failures = %q\n%s", r.Failures(), out)
				}
				for op, n := range r.ByOp {
					if n == 0 {
						t.Errorf("no %s was made", op)
					}
				}
				if r.Fired+r.Prevented < 400 {
					t.Errorf("fired %d and prevented %d do not cover 400 timers\n%s", r.Fired, r.Prevented, out)
				}
			})
		})
	}
}

func TestAddSettlesByCancelling(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		r, out := play(t, f, Config{Mode: ModeAdd, Timers: 1500, Delay: "1h", Topics: 7, Batch: 10, Keys: 3})
		if r.Added != 1500 || r.Prevented != 1500 || r.Ops != 1500 || r.Pending != 0 || len(r.Failures()) > 0 {
			t.Errorf("added %d, prevented %d, ops %d, pending %d\n%s", r.Added, r.Prevented, r.Ops, r.Pending, out)
		}
	})
}

func TestDeadLettersAreAccountedFor(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(10, faultDead))
		r, out := play(t, f, Config{Mode: ModeAdd, Timers: 100, Delay: "1h"})
		if r.Dead != 10 || r.Prevented != 90 || r.Lost != 0 {
			t.Errorf("dead %d, prevented %d, lost %d\n%s", r.Dead, r.Prevented, r.Lost, out)
		}
	})
}

func TestSameInstantAndOpenLoop(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		r, out := play(t, f, Config{Mode: ModeFire, SameInstant: true, Timers: 200, Rate: 1000, Delay: "600ms"})
		if r.Fired != 200 || r.Lost > 0 || r.Early > 0 {
			t.Errorf("fired %d, %d deliveries failed\n%s", r.Fired, f.failed.Load(), out)
		}
		if r.Seconds < 0.18 {
			t.Errorf("200 operations at 1000/s took %v s", r.Seconds)
		}
		if !strings.Contains(out, "open loop at 1,000/s") {
			t.Errorf("the table does not say open loop:\n%s", out)
		}
	})
}

func TestExternalSinkAsksTheServer(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(10, faultVanish))
		other := newFakeOn(t, f.pipes, nil) // its 404 or 400 will do: the fake does not retry
		r, out := play(t, f, Config{Mode: ModeFire, Grace: time.Second, Sink: other.url + "/v1/topics/x/y"})
		if r.Fired != 90 || r.Lost != 10 {
			t.Errorf("fired %d, lost %d, want 90 and 10\n%s", r.Fired, r.Lost, out)
		}
	})
}

// A server that stalls once must show in the latency of every request that it
// kept from being sent, not only of the one that it stalled.
func TestOpenLoopCorrectsCoordinatedOmission(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		stall := make(chan struct{})
		time.AfterFunc(100*time.Millisecond, func() { f.stall.Store(&stall) })
		time.AfterFunc(500*time.Millisecond, func() { close(stall) })
		c := Config{Mode: ModeAdd, Timers: 600, Rate: 1000, Connections: 2, Delay: "1h"}
		r, out := play(t, f, c)
		// Of 600 requests meant for 0–600 ms, those of 100–500 ms waited: 400 ms
		// down to none. Uncorrected, only two would have: p90 would be about 1 ms.
		if r.Ops != 600 || r.Latency.P50 < 50 || r.Latency.P90 < 200 || r.Latency.Max < 300 {
			t.Errorf("latency = %+v\n%s", r.Latency, out)
		}
	})
}

// TestRequestsGoToLeaders: a request about one timer goes to the server that leads its shard, once
// an answer has named it; with AnyNode it does not.
func TestRequestsGoToLeaders(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		const timers, connections = 600, 4
		for _, c := range []struct {
			any         bool
			least, most int64
		}{{false, 1, 2 * connections * fakeShards}, {true, timers, 2 * timers}} {
			f := newFake(t, nil)
			f.also(t)
			f.also(t)
			r, out := play(t, f, Config{Mode: ModeMixed, Connections: connections, Timers: timers, AnyNode: c.any})
			if n := f.passed.Load(); n < c.least || n > c.most || r.Lost+r.Errors+r.Broken != 0 || r.Fired == 0 {
				t.Errorf("%d requests went to another server than the leader, want %d to %d\n%s", n, c.least, c.most, out)
			}
		}
	})
}

func TestUnsentIsCounted(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(1, faultHangButFires))
		r, out := play(t, f, Config{Mode: ModeAdd, Rate: 1000, Connections: 2, Duration: 300 * time.Millisecond, Timeout: 100 * time.Millisecond, Delay: "1h", Timers: 1000})
		if r.Unsent == 0 || r.Timeouts < 2 || r.Errors < 2 || r.Ops != 0 {
			t.Errorf("unsent %d, timeouts %d, errors %d, ops %d\n%s", r.Unsent, r.Timeouts, r.Errors, r.Ops, out)
		}
	})
}

// Operations for which the time did not suffice are not counted one by one: at a rate out of reach
// that would take longer than the run.
func TestUnsentOfAnAbsurdRate(t *testing.T) {
	start := time.Now()
	for _, c := range []struct{ left, every, want time.Duration }{{-1, 1, 0}, {0, 1, 0}, {1, 1, 1}, {10, 5, 2}, {11, 5, 3}, {1, 5, 1}, {24 * time.Hour, 1, 24 * time.Hour}} {
		w := &worker{tally: newTally(0), pace: pace{end: start.Add(c.left), every: c.every}}
		w.skip(start)
		if n := w.tally.unsent.Load(); n != int64(c.want) {
			t.Errorf("%d unsent, one each %v, %v before the end", n, c.every, c.left)
		}
	}
}

// A connection whose next turn is after the end does not wait for it: the measured time would be
// longer than asked for.
func TestOpenLoopEndsInTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		for rate, want := range map[float64]int64{200: 600, 1: 3} {
			r, out := play(t, f, Config{Mode: ModeAdd, Rate: rate, Connections: 64, Duration: 3 * time.Second, Timers: 1000, Delay: "1h"})
			if r.Ops != want || r.Seconds < 2.99 || r.Seconds > 3.01 || r.Unsent != 0 {
				t.Errorf("%d operations in %v s at %v/s, %d unsent\n%s", r.Ops, r.Seconds, rate, r.Unsent, out)
			}
		}
	})
}

func TestWarmupIsNotMeasured(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		r, out := play(t, f, Config{Mode: ModeAdd, Rate: 1000, Timers: 400, Warmup: 200 * time.Millisecond, Delay: "1h"})
		if r.Added != 400 || r.Ops < 150 || r.Ops > 210 {
			t.Errorf("added %d, ops %d, want 400 and about 200\n%s", r.Added, r.Ops, out)
		}
	})
}

func TestCutShortStillReports(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		c := quick(f, Config{Mode: ModeAdd, Duration: time.Hour, Delay: "1h", Timers: 10_000_000})
		added := make(chan struct{})
		once := sync.OnceFunc(func() { close(added) })
		f.faults = func(number int64) fault {
			if number == 50 {
				once()
			}
			return faultNone
		}
		go func() {
			<-added
			cancel()
		}()
		var out bytes.Buffer
		r, err := runOn(ctx, f.pipes.network(), c, &out, io.Discard)
		testkit.Must(t, err)
		if !r.CutShort || r.Added < 50 || r.Pending != r.Added || len(r.Failures()) > 0 {
			t.Errorf("cut %v, added %d, pending %d, failures %q", r.CutShort, r.Added, r.Pending, r.Failures())
		}
		if r.FirstError != "" || r.Gone {
			t.Errorf("a cut is no error: %q, gone %v", r.FirstError, r.Gone)
		}
		if !strings.Contains(out.String(), "cut short") {
			t.Errorf("the table does not say so:\n%s", out.String())
		}
	})
}

func TestBadConfigurationIsTold(t *testing.T) {
	if _, err := Run(t.Context(), Config{Mode: "sing"}, io.Discard, io.Discard); !errors.Is(err, ErrConfig) {
		t.Errorf("error = %v, want ErrConfig", err)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	c := Config{Mode: ModeAdd, URL: []string{"http://127.0.0.1:1"}, Timers: 4, Output: Output{Quiet: true}}
	if _, err := Run(t.Context(), c, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error = %v, want one that names the server", err)
	}
}

func TestOneServerOfTwoIsGone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		c := quick(f, Config{Mode: ModeAdd, Timers: 40, Connections: 2, Delay: "1h"})
		c.URL = append(c.URL, "http://127.0.0.1:1")
		var out bytes.Buffer
		r, err := runOn(t.Context(), f.pipes.network(), c, &out, io.Discard)
		testkit.Must(t, err)
		if r.Added == 0 || r.Broken == 0 || r.Added+r.Unknown != 40 || len(r.Failures()) > 0 {
			t.Errorf("added %d, broken %d, unknown %d\n%s", r.Added, r.Broken, r.Unknown, out.String())
		}
	})
}

// The settlement asks every timer's fate of the servers that answer: a server that is gone takes
// none of them with it.
func TestSettlementPassesOverTheDead(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		c := quick(f, Config{Mode: ModeAdd, Timers: 4000, Batch: 100, Connections: 2, Delay: "1h"})
		c.URL = append(c.URL, "http://127.0.0.1:1")
		var out bytes.Buffer
		r, err := runOn(t.Context(), f.pipes.network(), c, &out, io.Discard)
		testkit.Must(t, err)
		if r.Added == 0 || r.Pending != 0 || r.Prevented != r.Added {
			t.Errorf("added %d, prevented %d, pending %d\n%s", r.Added, r.Prevented, r.Pending, out.String())
		}
	})
}

// A report that cannot be written is no reason to have run for nothing, and one that goes to the
// standard output is alone there.
func TestReportsGoWhereTheyAreAsked(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		c := quick(f, Config{Mode: ModeAdd, Timers: 10, Delay: "1h", Output: Output{HTML: filepath.Join(t.TempDir(), "no", "such", "folder")}})
		if _, err := runOn(t.Context(), f.pipes.network(), c, io.Discard, io.Discard); err == nil || len(f.timers) > 0 {
			t.Errorf("error = %v with %d timers made", err, len(f.timers))
		}
		c.HTML, c.JSON = "", "-"
		var out, errOut bytes.Buffer
		if _, err := runOn(t.Context(), f.pipes.network(), c, &out, &errOut); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(out.Bytes()) || !strings.Contains(errOut.String(), "p99.9") {
			t.Errorf("standard output: %s\nstandard error: %s", out.String(), errOut.String())
		}
	})
}

// A wrong request ends with the server's error.
func TestTheFirstErrorIsTold(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(1, faultErrorAndForgets))
		for _, batch := range []int{1, 10} {
			r, out := play(t, f, Config{Mode: ModeAdd, Batch: batch, Delay: "1h"})
			if r.Ops != 0 || !strings.Contains(r.FirstError, "add answered 503: ") || !strings.Contains(out, r.FirstError) {
				t.Errorf("%d operations, first error %q\n%s", r.Ops, r.FirstError, out)
			}
		}
	})
}

func TestPlainIsOneLine(t *testing.T) {
	if got := plain("a\x1b[31m\nb" + strings.Repeat("ü", 400)); len([]rune(got)) != firstErrorRunes || !strings.HasPrefix(got, "a [31m büü") {
		t.Errorf("%q", got)
	}
}

// A server that is gone at the end is distinguished from one that lost timers.
func TestTheServerIsGone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(1, faultDrop))
		time.AfterFunc(time.Second, func() { f.server.Close() })
		r, out := play(t, f, Config{Mode: ModeFire, Timers: 10, Delay: "2s"})
		if r.Lost != 10 || !r.Gone || !strings.Contains(out, "may only be late") {
			t.Errorf("lost %d, gone %v\n%s", r.Lost, r.Gone, out)
		}
	})
}

// Nobody is asked forever, however few timers there are to ask about.
func TestSettlementGivesUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, every(1, faultDeaf))
		began := time.Now()
		r, out := play(t, f, Config{Mode: ModeAdd, Timers: 5, Delay: "1h", Timeout: 100 * time.Millisecond})
		if took := time.Since(began); r.Added != 5 || r.Pending != 5 || took > 30*time.Second {
			t.Errorf("added %d, pending %d after %v\n%s", r.Added, r.Pending, took, out)
		}
	})
}

func TestReportFiles(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		f := newFake(t, nil)
		dir := t.TempDir()
		jsonFile, htmlFile := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html")
		play(t, f, Config{Mode: ModeFire, Output: Output{JSON: jsonFile, HTML: htmlFile}})
		text := testkit.File(t, jsonFile)
		var fields map[string]json.RawMessage
		testkit.Must(t, json.Unmarshal(text, &fields))
		for _, key := range strings.Fields("ops ops_per_second errors latency_ms fired fired_per_second lateness_ms lost early duplicate tester_cpu surroundings") {
			if _, found := fields[key]; !found {
				t.Errorf("JSON lacks %q", key)
			}
		}
		var latency map[string]float64
		if err := json.Unmarshal(fields["latency_ms"], &latency); err != nil || len(latency) != 5 {
			t.Errorf("latency_ms = %s", fields["latency_ms"])
		}
		html := testkit.File(t, htmlFile)
		for _, want := range []string{"<svg", "Every acknowledged timer is accounted for", "lateness", "timers fired, none lost</h1>", "server v-fake; tester on ", "fsync p50 about 1.5 ms"} {
			if !bytes.Contains(html, []byte(want)) {
				t.Errorf("HTML lacks %q", want)
			}
		}
		for _, unwanted := range []string{"<script", "src=", "href=", "url(", "NaN", "Inf"} {
			if bytes.Contains(html, []byte(unwanted)) {
				t.Errorf("HTML has %q", unwanted)
			}
		}
	})
}
