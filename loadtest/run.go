package loadtest

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"carillon/client"
	"carillon/loadtest/sink"
)

// run is one run's state, wired.
type run struct {
	network  network
	tls      *tls.Config // of https targets
	config   Config
	targets  []target
	names    *names
	ledger   *ledger
	tally    *tally
	callback string
	external bool // deliveries go to somebody else's receiver
	start    time.Time
	measure  time.Time // end of the warm-up
	watch    *watch
	cpu      cpuUse
	loaded   time.Time // end of the load
	gone     bool      // no server took connections at the end

	pausedTopic string // one of the run's that is paused after the load; "": none is
	around      Surroundings

	// Of a run with many receivers.
	receivers *receivers // nil: there is one
	api       *client.Client
	other     *other
	earlier   int64 // timers in its topics before it began

	earlierDead int64 // dead letters in them
	drained     time.Duration
	undrained   int64
	end         atomic.Pointer[time.Time] // when nothing was due any more; nil before
}

// Run plays the configured mode, prints progress to errOut and the table to
// out, writes the files asked for, and returns the report. Ending the context
// cuts the run short; it is still reported. The error means that the run could
// not be made, ErrConfig that it was asked for wrongly, never that the server broke a
// promise: see Report.Failures.
func Run(ctx context.Context, config Config, out, errOut io.Writer) (Report, error) {
	return runOn(ctx, network{new(net.Dialer).DialContext, net.Listen}, config, out, errOut)
}

type dialFunc func(ctx context.Context, kind, address string) (net.Conn, error)

// network is the way by which a run reaches the server, and is reached.
type network struct {
	dial   dialFunc
	listen func(kind, address string) (net.Listener, error)
}

func runOn(ctx context.Context, via network, config Config, out, errOut io.Writer) (Report, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := config.tryFiles(); err != nil {
		return Report{}, err
	}
	r := &run{network: via, config: config, callback: config.Sink, external: config.Sink != ""}
	for _, text := range config.URL {
		t, err := parseTarget(text)
		if err != nil {
			return Report{}, err
		}
		r.targets = append(r.targets, t)
	}
	var err error
	if r.tls, err = client.LoadTLS(config.CA, config.ClientCert); err != nil {
		return Report{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	r.tls.NextProtos = []string{"http/1.1"}
	// Resumed, as by clients that connect often.
	r.tls.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	if _, err := r.reachable(ctx); err != nil {
		return Report{}, err
	}
	r.around = r.lookAround(ctx)
	synced := r.fsyncs(ctx)
	r.start = time.Now()
	r.measure = r.start.Add(config.Warmup)
	r.ledger = newLedger(r.start.UnixMilli())
	r.tally = newTally(r.start.UnixMilli())
	r.names = newNames(config, runID())
	if name := r.paused(ctx); name != "" && config.Mode != ModeAdd {
		return Report{}, fmt.Errorf("loadtest: topic %s is paused: its timers would wait; carillon ctl topics resume %s, or name another with --topic", name, name)
	}
	r.watch = newWatch(r.tally, r.start, errOut, config)

	receiving, stopReceiving := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReceiving()
	received := make(chan error, 1)
	if err := r.receive(receiving, received); err != nil {
		return Report{}, err
	}
	r.countEarlier(ctx)
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch.run(watching)
	}()

	before := sampleCPU()
	r.withOther(ctx, func() {
		r.load(ctx)
		r.cpu = useBetween(before, sampleCPU())
		r.around.FsyncMs = r.fsyncs(ctx).medianSince(synced)
		if r.receivers != nil {
			r.drainReceivers(ctx)
		}
		r.drain(ctx)
	})
	if config.Mode == ModeFire { // the part that fire measures continues after the load
		r.cpu = useBetween(before, sampleCPU())
	}
	if takeAudit(r.ledger, time.Now().UnixMilli()).lost > 0 {
		r.pausedTopic = r.paused(context.WithoutCancel(ctx))
	}
	r.cancelPending(ctx)
	cut := ctx.Err() != nil

	stopReceiving()
	if err := <-received; err != nil {
		return Report{}, err
	}
	stopWatching()
	<-watched
	report := r.report(cut)
	if config.JSON == "-" { // a program that reads it from there wants nothing else in it
		report.writeTable(errOut)
	} else {
		report.writeTable(out)
	}
	return report, report.writeFiles(out)
}

// runID distinguishes the timers of this run from those of any other on the server.
func runID() string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return hex.EncodeToString(random[:])
}

// reachable is which servers take connections, an error if none does.
func (r *run) reachable(ctx context.Context) ([]target, error) {
	var there []target
	var faults []error
	for _, t := range r.targets {
		within, cancel := context.WithTimeout(ctx, r.config.Timeout)
		conn, err := r.network.dial(within, "tcp", t.address)
		cancel()
		if err != nil {
			faults = append(faults, err)
			continue
		}
		conn.Close()
		there = append(there, t)
	}
	if len(there) == 0 {
		return nil, fmt.Errorf("loadtest: no server to load: %w", errors.Join(faults...))
	}
	return there, nil
}

// receive starts the built-in receiver unless there is an external one.
func (r *run) receive(ctx context.Context, done chan<- error) error {
	if r.external {
		done <- nil
		return nil
	}
	receiver := newReceiver(r.names, r.ledger, r.tally, r.measure.UnixMicro())
	listener, err := r.network.listen("tcp", r.config.SinkListen)
	if err != nil {
		return fmt.Errorf("loadtest: listen for callbacks: %w", err)
	}
	handler, many := sink.Handler(receiver.receive), 0
	if r.config.Receivers > 0 {
		many = maxReceiverConns
		if handler, err = r.manyReceivers(listener, handler); err != nil {
			return err
		}
	}
	server := sink.NewServer(r.config.SinkListen, handler)
	server.Expect(many)
	server.Use(listener)
	r.callback = "http://" + listener.Addr().String() + "/"
	go func() { done <- server.Run(ctx) }()
	return nil
}

// load sends until time or timers are used up.
func (r *run) load(ctx context.Context) {
	var instantMs int64
	if r.config.SameInstant {
		instantMs = r.instant().UnixMilli()
	}
	pace := pace{measure: r.measure}
	if r.config.Duration > 0 {
		pace.end = r.measure.Add(r.config.Duration)
	}
	between := time.Duration(0)
	if r.config.Rate > 0 {
		between = time.Duration(float64(time.Second) * float64(r.config.Batch) / r.config.Rate)
		pace.every = max(between*time.Duration(r.config.Connections), 1)
	}
	var workers sync.WaitGroup
	leaders := r.leadersAmong(r.targets)
	for i := range r.config.Connections {
		w := r.worker(i, r.targets, leaders)
		generator := newGenerator(r.config, r.ledger, i, instantMs)
		generator.receivers = r.receivers
		w.source = generator
		w.pace = pace
		w.pace.first = r.start.Add(between * time.Duration(i))
		workers.Go(func() { w.run(ctx) })
	}
	workers.Wait()
	if r.config.Rate > 0 && (r.config.Timers == 0 || r.ledger.issued.Load() < r.config.Timers) {
		// The last send may be well before the end of the time that the rate is of.
		pause(ctx, time.Until(pace.end))
	}
	r.loaded = time.Now()
}

func (r *run) worker(number int, targets []target, leaders *client.Leaders) *worker {
	w := &worker{own: number % len(targets), leaders: leaders,
		requests: newRequests(r.names, r.ledger, r.callback, r.receivers),
		ledger:   r.ledger, tally: r.tally}
	for _, t := range targets {
		w.links = append(w.links, &link{target: t, dial: r.network.dial, tls: r.tls, timeout: r.config.Timeout, fixed: fixedHeaders(t.host, r.config.Token)})
	}
	return w
}

// leadersAmong is what the workers learn of who leads which shard; nil where they go to any node.
func (r *run) leadersAmong(targets []target) *client.Leaders {
	if len(targets) == 1 || r.config.AnyNode {
		return nil
	}
	var addresses []string
	for _, t := range targets {
		addresses = append(addresses, t.address)
	}
	return client.NewLeaders(addresses)
}

// awaitUntilMs is the due time up to which timers are waited for.
func (r *run) awaitUntilMs() int64 { return r.loaded.Add(r.config.Drain).UnixMilli() }

// drain waits for the timers that fall due soon: until they are all there, or
// nothing has come for the grace time while something is overdue. Timers that
// were cancelled are given the chance to break their word, too.
func (r *run) drain(ctx context.Context) {
	if r.external {
		r.drainUnseen(ctx)
		return
	}
	untilMs := r.awaitUntilMs()
	fired, progressed := int64(-1), time.Now()
	for step := time.Millisecond; ctx.Err() == nil; step = min(step*2, 250*time.Millisecond) {
		looked := time.Now()
		if now := r.tally.fired.Load(); now != fired {
			fired, progressed = now, time.Now()
		}
		if takeAudit(r.ledger, untilMs).lost == 0 {
			break
		}
		// Timers that are not due yet are no reason to give up.
		if takeAudit(r.ledger, time.Now().Add(-r.config.Grace).UnixMilli()).lost == 0 {
			progressed = time.Now()
		}
		if time.Since(progressed) > r.config.Grace {
			break
		}
		// A look at millions of timers must not distort the measurement.
		pause(ctx, max(step, 20*time.Since(looked)))
	}
	if last := r.lastDueMs(markPrevented); last > 0 {
		pause(ctx, time.Until(time.UnixMilli(last).Add(min(r.config.Grace, cancelledLinger))))
	}
}

// cancelledLinger is how long after its due time a cancelled timer could still
// be caught firing.
const cancelledLinger = time.Second

// lastDueMs is the last due time to wait for among the timers that have one of
// the marks, 0 if there is none.
func (r *run) lastDueMs(with mark) (last int64) {
	untilMs := r.awaitUntilMs()
	for number := range r.ledger.issued.Load() {
		m := r.ledger.marks(number)
		if due := r.ledger.lastDueMs(number, m); m.has(with) && due <= untilMs {
			last = max(last, due)
		}
	}
	return last
}

// drainUnseen waits for the last due time: an external receiver reports
// nothing, so the settlement asks the server instead.
func (r *run) drainUnseen(ctx context.Context) {
	if last := r.lastDueMs(markAcked | markUnknown); last > 0 {
		pause(ctx, time.Until(time.UnixMilli(last).Add(r.config.Grace)))
	}
}

// cancelPending cancels the timers that were not waited for, or could not come as a topic is
// paused, and thereby checks that they are there.
func (r *run) cancelPending(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	there, err := r.reachable(ctx)
	if err != nil {
		r.gone = ctx.Err() == nil
		return
	}
	if r.config.Keep {
		return // they stay pending in the account
	}
	afterMs := r.awaitUntilMs()
	if r.external || r.pausedTopic != "" {
		afterMs = -1
	}
	s := &verification{ledger: r.ledger, names: r.names, afterMs: afterMs, unseen: r.external, paused: r.pausedTopic != "",
		overdueMs: time.Now().Add(-r.config.Grace).UnixMilli()}
	var workers sync.WaitGroup
	leaders := r.leadersAmong(there)
	for i := range min(r.config.Connections, 4) {
		w := r.worker(i, there, leaders)
		w.source, w.settling = s, s
		workers.Go(func() { w.run(ctx) })
	}
	workers.Wait()
}

// report closes the account.
func (r *run) report(cut bool) Report {
	byMs := r.awaitUntilMs()
	if cut {
		byMs = time.Now().Add(-r.config.Grace).UnixMilli()
	}
	a := takeAudit(r.ledger, byMs)
	t := r.tally
	report := Report{
		Ops: t.ops.Load(), Errors: t.errors.Load(), Fired: t.fired.Load(), Lost: a.lost + a.vanished, Early: t.early.Load(), Duplicate: t.duplicate.Load(),
		TesterCPU: r.cpu.cores, TesterWaited: r.cpu.waited, Starved: r.cpu.starved(),
		Faults: Faults{
			CancelledFired: t.cancelledFired.Load(), Stale: t.stale.Load(), WrongPayload: t.wrong.Load(), StaleReads: t.staleReads.Load(),
			Unexpected: t.unexpected.Load(), Vanished: t.vanished.Load(),
		},
		Events: Events{
			Added: t.added.Load(), Changed: t.changed.Load(), Refused: t.refused.Load(), Unknown: t.unknown.Load(), ServerErrors: t.serverErrors.Load(),
			Timeouts: t.timeouts.Load(), Broken: t.broken.Load(), Prevented: t.prevented.Load(), Conflicts: t.conflicts.Load(), Dead: t.dead.Load(),
			Retries: t.retries.Load(), AddedLate: t.addedLate.Load(), Pending: a.pending, Unsent: t.unsent.Load(), Overdue: t.overdue.Load(), Paused: r.pausedTopic,
		},
		FirstError: t.firstError(), Foreign: t.foreign.Load(), ByOp: map[string]int64{},
		CutShort: cut, Gone: r.gone, Bottleneck: r.cpu.bottleneck || (r.config.Mode == ModeFire && r.watch.saturated),
		Config: r.config, Started: r.start, Surroundings: r.around, Receivers: r.ofReceivers(),
	}
	for op := range t.byOperation {
		report.ByOp[operation(op).String()] = t.byOperation[op].Load()
	}
	if r.pausedTopic != "" && (cut || r.config.Keep) { // nobody has asked for what may only wait
		report.Overdue, report.Lost = report.Overdue+report.Lost, 0
	}
	report.Seconds = max(r.loaded.Sub(r.measure).Seconds(), 0)
	report.OpsPerSecond = perSecond(report.Ops, report.Seconds)
	report.FiredPerSecond = perSecond(report.Fired, float64(t.lastFiredUs.Load()-t.firstFiredUs.Load())/1e6)
	w := r.watch // has returned
	report.Latency, report.Lateness = w.latency.Summary(), w.lateness.Summary()
	report.latencyCurve, report.latenessCurve = w.latency.Curve(), w.lateness.Curve()
	report.series = w.series
	return report
}

func perSecond(n int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}

func (r Report) writeFiles(out io.Writer) error {
	if r.Config.JSON == "-" {
		if err := r.WriteJSON(out); err != nil {
			return err
		}
	} else if err := toFile(r.Config.JSON, r.WriteJSON); err != nil {
		return err
	}
	return toFile(r.Config.HTML, r.WriteHTML)
}

// tryFiles finds out before the run whether its report can be written.
func (c Config) tryFiles() error {
	for _, path := range []string{c.JSON, c.HTML} {
		if path == "" || (path == "-" && path == c.JSON) {
			continue
		}
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return fmt.Errorf("loadtest: write report: %w", err)
		}
		file.Close()
	}
	return nil
}

func toFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("loadtest: write report: %w", err)
	}
	if err := write(file); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("loadtest: write report: %w", err)
	}
	return nil
}
