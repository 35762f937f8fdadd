// Package metrics is what /metrics shows of a node. Its Metrics counts what the host, the log and
// the API report; gauges, and counters that other parts keep, are asked for at a scrape.
package metrics

import (
	"cmp"
	"encoding/hex"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"carillon/internal/delivery"
	"carillon/internal/history"
	"carillon/node/feed"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/callback"
)

// Sources are asked at a scrape, from the time on at which the host has read its log.
type Sources struct {
	Host   func() *shard.Host
	State  func() *ring.State
	Locked func() []string // topics whose calls wait for a key that is not there
	Pool   *callback.Pool
}

// Metrics are the series of /metrics. It is the host's shard.Observer.
type Metrics struct {
	*prometheus.Registry

	adds, modifies prometheus.Counter
	cancels        map[timer.Code]prometheus.Counter
	fired          map[table.OutcomeKind]prometheus.Counter
	dead           map[timer.Reason]prometheus.Counter
	deadReplaced   prometheus.Counter
	made, unmade   prometheus.Counter // outcomes
	elections      prometheus.Counter

	sent, received transfers

	callback, fsync, frame, snapshot prometheus.Histogram
	lateness, heldLateness           prometheus.Observer

	Rates feed.Rates // of the last minute
}

// transfers are snapshots that went one way between nodes.
type transfers struct{ count, bytes prometheus.Counter }

func (t *transfers) add(bytes int64) {
	t.count.Inc()
	t.bytes.Add(float64(bytes))
}

func New(version string, from Sources) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		m.MustRegister(h)
		return h
	}
	labelled := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		m.MustRegister(v)
		return v
	}
	m.adds = counter("carillon_add_total", "Timers created or replaced whole.")
	m.modifies = counter("carillon_modify_total", "Changes to pending timers: patched, or fired by hand.")
	cancels := labelled("carillon_cancel_total", "Cancels by outcome.", "outcome")
	m.cancels = map[timer.Code]prometheus.Counter{
		timer.Prevented: cancels.WithLabelValues("prevented"), timer.CancelInFlight: cancels.WithLabelValues("in_flight"),
		timer.OverFired: cancels.WithLabelValues("already_fired"), timer.OverDead: cancels.WithLabelValues("dead"),
	}
	fired := labelled("carillon_fired_total", "Attempts by result.", "result")
	m.fired = map[table.OutcomeKind]prometheus.Counter{
		table.Ack: fired.WithLabelValues("success"), table.RetryLater: fired.WithLabelValues("retry"), table.Kill: fired.WithLabelValues("dead"),
	}
	dead := labelled("carillon_dead_total", "Timers that were given up, by reason.", "reason")
	m.dead = map[timer.Reason]prometheus.Counter{
		timer.MaxAttempts: dead.WithLabelValues("max_attempts"), timer.Expired: dead.WithLabelValues("expired"),
		timer.Stopped: dead.WithLabelValues("stopped"), timer.Refused: dead.WithLabelValues("refused"),
	}
	m.deadReplaced = counter("carillon_dead_replaced_total", "Dead letters that were dropped early, because their id had 100 of them and got another.")
	outcomes := labelled("carillon_outcomes_total", "Timers that on_done and on_dead made. lost: their topic was deleted by force.", "result")
	m.made, m.unmade = outcomes.WithLabelValues("made"), outcomes.WithLabelValues("lost")
	m.elections = counter("carillon_raft_elections_total", "Leaderships this node has won.")
	count := labelled("carillon_snapshot_transfers_total", "Snapshots that were sent to other nodes, or received and used by this one.", "direction")
	bytes := labelled("carillon_snapshot_transfer_bytes_total", "Bytes of those snapshots.", "direction")
	m.sent = transfers{count.WithLabelValues("sent"), bytes.WithLabelValues("sent")}
	m.received = transfers{count.WithLabelValues("received"), bytes.WithLabelValues("received")}
	lateness := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "carillon_lateness_seconds", Help: "Time from due to the start of the first attempt. held: whether a pause, a breaker, its key or a limit delayed it.",
		Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60, 600},
	}, []string{"held"})
	m.MustRegister(lateness)
	m.lateness, m.heldLateness = lateness.WithLabelValues("no"), lateness.WithLabelValues("yes")
	m.callback = histogram("carillon_callback_seconds", "Duration of calls to receivers, once for each timer that a call attempted.", prometheus.ExponentialBuckets(0.001, 2, 16))
	m.fsync = histogram("carillon_wal_fsync_seconds", "Duration of the log's fsyncs.", prometheus.ExponentialBuckets(0.0001, 2, 16))
	m.frame = histogram("carillon_wal_frame_operations", "Timer operations in one frame of the log.", prometheus.ExponentialBuckets(1, 2, 14))
	m.snapshot = histogram("carillon_snapshot_seconds", "Duration of snapshots.", prometheus.ExponentialBuckets(0.01, 2, 14))
	m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &gauges{from}, NewTopics(from, ShownTopics))
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "carillon_build_info", Help: "1; the labels name the build.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	build.Set(1)
	m.MustRegister(build)
	m.Gauge("carillon_feature_level", "Feature level that the cluster uses.", func() int64 { return int64(from.State().Upgrade().Level) })
	m.Gauge("carillon_upgrade_waits", "1 while all nodes understand a higher feature level and nobody has finalized the upgrade.", func() int64 {
		if u := from.State().Upgrade(); u.Waits() {
			return 1
		}
		return 0
	})
	return m
}

// Count shows a counter that another part keeps.
func (m *Metrics) Count(name, help string, value func() int64) {
	m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
}

// Gauge shows a value of another part.
func (m *Metrics) Gauge(name, help string, value func() int64) {
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
}

// History shows what a history keeps, and what it has left out.
func (m *Metrics) History(of *history.Store) {
	m.Count("carillon_history_records_total", "Ends and attempts written to the history.", func() int64 { return int64(of.Stats().Recorded) })
	m.Count("carillon_history_dropped_total", "Ends and attempts that the history left out: too many at once, the disk failed or is almost full.",
		func() int64 { return int64(of.Stats().Dropped) })
	m.Count("carillon_history_damaged_total", "Places in the history's files that could not be read.", func() int64 { return int64(of.Stats().Damaged) })
	m.Gauge("carillon_history_bytes", "Size of the history's files.", func() int64 { return of.Stats().Bytes })
	m.Gauge("carillon_history_files", "Number of the history's files.", func() int64 { return int64(of.Stats().Files) })
}

func (m *Metrics) Command(kind timer.Kind, code timer.Code) {
	switch kind {
	case timer.Add, timer.Put:
		if code == timer.Created || code == timer.OK || code == timer.Merged {
			m.adds.Inc()
			m.Rates.Count(feed.Added)
		}
	case timer.Modify, timer.Fire, timer.Pause, timer.Resume:
		if code == timer.OK {
			m.modifies.Inc()
			m.Rates.Count(feed.Changed)
		}
	case timer.Cancel:
		if code == timer.Prevented || code == timer.CancelInFlight {
			m.Rates.Count(feed.Cancelled)
		}
		if c := m.cancels[code]; c != nil {
			c.Inc()
		}
	}
}

func (m *Metrics) Outcome(_ timer.TopicID, o *table.Outcome) {
	c := m.fired[o.Kind]
	if !o.ByConsumer && (c != nil || o.Kind == table.Accepted) {
		m.callback.Observe(float64(o.EndedMs-o.StartedMs) / 1000)
	}
	if c == nil {
		return // given back, or not over
	}
	c.Inc()
	switch o.Kind {
	case table.Ack:
		m.Rates.Count(feed.Succeeded)
	case table.RetryLater:
		m.Rates.Count(feed.Retried)
	case table.Kill:
		m.Rates.Count(feed.Died)
		m.dead[o.Reason].Inc()
	}
}

func (m *Metrics) Expired() { m.dead[timer.Expired].Inc() }

func (m *Metrics) Outcomes(made, lost int) {
	m.made.Add(float64(made))
	m.unmade.Add(float64(lost))
}

func (m *Metrics) DeadReplaced(n int) { m.deadReplaced.Add(float64(n)) }

func (m *Metrics) Frame(operations int) { m.frame.Observe(float64(operations)) }

func (m *Metrics) Lateness(ms int64, held bool, traceID *[16]byte) {
	to := m.heldLateness
	if !held {
		to = m.lateness
		m.Rates.Late(ms) // the console's lateness is the node's own, too
	}
	if traceID == nil {
		to.Observe(float64(ms) / 1000)
		return
	}
	to.(prometheus.ExemplarObserver).ObserveWithExemplar(float64(ms)/1000, prometheus.Labels{"trace_id": hex.EncodeToString(traceID[:])})
}

func (m *Metrics) Elected() { m.elections.Inc() }

func (m *Metrics) Snapshot(took time.Duration) { m.snapshot.Observe(took.Seconds()) }

func (m *Metrics) SnapshotSent(bytes int64) { m.sent.add(bytes) }

func (m *Metrics) SnapshotReceived(bytes int64) { m.received.add(bytes) }

// Sync is for wal.Observe.
func (m *Metrics) Sync(took time.Duration) { m.fsync.Observe(took.Seconds()) }

// gauges is the prometheus.Collector of what is read when scraped.
type gauges struct{ Sources }

var (
	timersDesc  = prometheus.NewDesc("carillon_timers", "Timers of the shards this node leads.", []string{"state"}, nil)
	waitingDesc = prometheus.NewDesc("carillon_waiting", "Timers that are due, or between attempts, by what they wait for; the reasons are those of waits_for.", []string{"reason"}, nil)
	overdueDesc = prometheus.NewDesc("carillon_overdue", "Timers that are due and wait: for a slot, a breaker, a paused topic; not for a shut window.", nil, nil)
	zoneDesc    = prometheus.NewDesc("carillon_unknown_zone_timers", "Timers that are due and wait, since this node's release does not know their time zone.", nil, nil)
	leadersDesc = prometheus.NewDesc("carillon_raft_leaders", "Raft groups this node leads.", nil, nil)
	faultsDesc  = prometheus.NewDesc("carillon_replica_faults", "Replicas of this node that are stopped, or whose state is wrong or differs from the others'.", nil, nil)
	fullDesc    = prometheus.NewDesc("carillon_full_shards", "Shards with a replica here that hold as much as one can: their adds are refused.", nil, nil)
	diskDesc    = prometheus.NewDesc("carillon_disk_free_bytes", "Free bytes of the data directory's file system.", nil, nil)
	diskLowDesc = prometheus.NewDesc("carillon_disk_low_bytes", "Adds are refused while this many bytes or fewer are free.", nil, nil)
	memoryDesc  = prometheus.NewDesc("carillon_table_bytes", "Memory that the timer tables hold.", nil, nil)
	heldDesc    = prometheus.NewDesc("carillon_memory_bytes", "Memory that the replicas of this node hold. It counts towards the mark at which adds are refused.", []string{"kind"}, nil)
	queuedDesc  = prometheus.NewDesc("carillon_queued_operations", "Client operations that have no answer yet.", nil, nil)
	sealedDesc  = prometheus.NewDesc("carillon_sealed_secrets", "Secrets by the key that sealed them: of topics, of callbacks of timers in the shards this node leads, and the cluster's own.", []string{"of", "key"}, nil)
	lockedDesc  = prometheus.NewDesc("carillon_topic_locked", "1 for a topic whose calls wait, since its secrets were sealed with a key that this node lacks; the first hundred.", []string{"topic"}, nil)
	refusedDesc = prometheus.NewDesc("carillon_adds_refused_total", "Adds, and other changes that need room, that this node's shards refused.", []string{"reason"}, nil)
	breakerDesc = prometheus.NewDesc("carillon_breaker_state", "0 closed, 1 half-open, 2 open.", []string{"destination"}, nil)
)

// maxBreakerSeries bounds the cardinality; those that are not closed come first.
const maxBreakerSeries = 200

var refusedNames = [...]string{shard.RefusedMemory: "memory", shard.RefusedLowDisk: "low_disk", shard.RefusedOverload: "overloaded"}

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{timersDesc, overdueDesc, zoneDesc, waitingDesc, leadersDesc, faultsDesc, fullDesc, diskDesc, diskLowDesc, memoryDesc, heldDesc, queuedDesc, sealedDesc, lockedDesc, refusedDesc, breakerDesc} {
		ch <- d
	}
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	disk := g.Host().Disk()
	gauge(diskDesc, int64(disk.Free))
	gauge(diskLowDesc, int64(disk.Limit))
	s := g.Host().Stats()
	gauge(timersDesc, s.Scheduled, "scheduled")
	gauge(timersDesc, s.Leased, "leased")
	gauge(timersDesc, s.Done, "done")
	gauge(timersDesc, s.Dead, "dead")
	gauge(overdueDesc, s.Overdue)
	gauge(zoneDesc, s.UnknownZone)
	for _, cause := range timer.WaitCauses() {
		gauge(waitingDesc, s.Waiting[cause], cause.String())
	}
	gauge(leadersDesc, int64(s.Leads))
	gauge(faultsDesc, int64(s.Faults))
	gauge(fullDesc, int64(s.FullShards))
	gauge(memoryDesc, s.MemoryBytes)
	gauge(heldDesc, s.Memory.Tables, "tables")
	gauge(heldDesc, s.Memory.Snapshots, "snapshots")
	gauge(heldDesc, s.Memory.Arrivals, "arrivals")
	gauge(heldDesc, s.Memory.Entries, "entries")
	gauge(heldDesc, s.Memory.Frames, "frames")
	gauge(heldDesc, s.Memory.Messages, "messages")
	gauge(queuedDesc, s.Queued)
	for key, n := range s.SealedBy {
		gauge(sealedDesc, n, "timers", key)
	}
	for key, n := range g.State().SealedBy() {
		gauge(sealedDesc, int64(n), "topics", cmp.Or(key, "none"))
	}
	gauge(sealedDesc, 1, "cluster", cmp.Or(g.State().SecretSealedBy(), "none"))
	for _, name := range g.Locked() {
		gauge(lockedDesc, 1, name)
	}
	for why, n := range g.Host().Refused() {
		ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), refusedNames[why])
	}
	g.breakers(func(destination string, state delivery.BreakerState) { gauge(breakerDesc, int64(state), destination) })
}

// breakers shows the states of at most maxBreakerSeries breakers. One look has each of them once:
// the same series twice would fail the whole answer.
func (g *gauges) breakers(show func(destination string, state delivery.BreakerState)) {
	left := maxBreakerSeries
	g.Pool.Breakers(func(destination string, state delivery.BreakerState) {
		if left > 0 {
			left--
			show(destination, state)
		}
	})
}
