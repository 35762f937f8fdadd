package node

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/internal/backup"
	"carillon/internal/bucket"
	"carillon/timer/recurrence"
	"carillon/transport/api/backend"
)

// Times of the schedule.
const (
	backupLook     = 2 * time.Second // between looks at the clock
	backupRetry    = time.Minute     // after a failure; doubled for each one more
	backupAgainMax = 15 * time.Minute
)

// backupName is the end of an object's key: the minute for which the backup was made, UTC. All
// nodes give the backup of one minute the same name, so that a second one replaces the first.
const backupName = "20060102T150405Z.backup"

// backupStore is where backups are kept: bucket.Place.
type backupStore interface {
	Save(ctx context.Context, key string, make func(context.Context, io.Writer) error) (backup.Head, int64, error)
	List(ctx context.Context, prefix string) ([]bucket.Object, error)
	Remove(ctx context.Context, key string) error
	Abandon(ctx context.Context, prefix string) error
}

// backupSource is the cluster of which backups are made.
type backupSource interface {
	leadsBackups() bool // this node makes them: it leads the meta group
	clusterID() string
	Backup(ctx context.Context, to io.Writer) error
}

// backupSchedule makes a backup each time that a cron expression names. Only the leader of the meta
// group does. What was made is read from the store alone: a new leader finds the backups of the one
// before it there, and makes the last one if it is missing. Its goroutine is run's. It is the
// prometheus.Collector of its own metrics.
type backupSchedule struct {
	store  backupStore // nil: there is no schedule
	prefix string
	every  string
	keep   int
	nowMs  func() int64
	fault  func() string // of the clock
	log    *slog.Logger

	lookedMs int64 // when it was looked last
	known    bool  // what is in the store
	newestMs int64 // the minute of the newest backup there; 0: there is none
	nextMs   int64 // when the next one is due, once it is known what is there
	againMs  int64 // nothing is tried before
	failed   int   // in a row

	made     atomic.Int64 // when the last one was whole in the store, Unix ms; 0: not known here
	dueSince atomic.Int64 // since when one is missing; 0: none is
	failure  atomic.Value // string: why the last try failed, "" after one that did not
	failures prometheus.Counter
}

// newBackupSchedule makes the schedule that the configuration asks for. It has been validated.
func newBackupSchedule(cfg *Config, nowMs func() int64, fault func() string) (*backupSchedule, error) {
	b := &backupSchedule{
		every: cfg.BackupEvery, keep: cfg.BackupKeep, nowMs: nowMs, fault: fault, log: cfg.Logger,
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_backup_failures_total", Help: "Scheduled backups that failed on this node; each is tried again."}),
	}
	if cfg.BackupTo == "" {
		return b, nil
	}
	place, err := bucket.Open(cfg.BackupTo)
	if err != nil {
		return nil, err
	}
	if b.store, b.prefix = place, place.Key(); b.prefix != "" && !strings.HasSuffix(b.prefix, "/") {
		b.prefix += "/"
	}
	if cfg.SecretsKeyFile == "" {
		b.log.Warn("backups are not encrypted, as there is no --secrets-key: payloads, credentials and signing secrets are in them in the clear", "to", cfg.BackupTo)
	}
	return b, nil
}

// look makes the backup that is due, if this node is to.
func (b *backupSchedule) look(ctx context.Context, of backupSource) {
	if !of.leadsBackups() {
		b.forget()
		return
	}
	now := b.nowMs()
	if now < b.lookedMs { // the clock was set back: no time of the schedule's is right
		b.forget()
	}
	b.lookedMs = now
	if b.fault() != "" || now < b.againMs || b.known && now < b.nextMs {
		return
	}
	slotMs := lastCron(b.every, now)
	if slotMs == 0 {
		return
	}
	err := b.bring(ctx, of, slotMs)
	switch {
	case err == nil:
		b.failed, b.againMs, b.nextMs = 0, 0, recurrence.FirstCron(b.every, "UTC", slotMs+1)
		b.dueSince.Store(0)
		b.failure.Store("")
	case ctx.Err() == nil:
		b.dueSince.CompareAndSwap(0, now)
		wait := min(backupRetry<<min(b.failed, 10), backupAgainMax)
		b.failed, b.againMs = b.failed+1, b.nowMs()+wait.Milliseconds()
		b.failures.Inc()
		b.failure.Store(err.Error())
		b.log.Error("a scheduled backup has failed", "error", err, "again_in", wait)
	}
}

// forget has the schedule begin as on a node that has just become the leader.
func (b *backupSchedule) forget() {
	b.known, b.failed, b.againMs = false, 0, 0
	b.made.Store(0)
	b.dueSince.Store(0)
	b.failure.Store("")
}

// bring brings the store to where the schedule wants it: a backup of that minute is there.
func (b *backupSchedule) bring(ctx context.Context, of backupSource, slotMs int64) error {
	prefix := b.prefix + "carillon-" + of.clusterID() + "-"
	if !b.known {
		all, err := b.list(ctx, prefix)
		if err != nil {
			return err
		}
		b.newestMs = 0
		for _, o := range all {
			if o.slotMs <= slotMs { // one that a wrong clock named for later counts for nothing
				b.newestMs = max(b.newestMs, o.slotMs)
			}
			b.made.Store(max(b.made.Load(), o.Modified.UnixMilli()))
		}
		b.known = true
	}
	if b.newestMs >= slotMs {
		return nil
	}
	b.dueSince.CompareAndSwap(0, b.nowMs())
	begun := b.nowMs()
	key := prefix + time.UnixMilli(slotMs).UTC().Format(backupName)
	head, size, err := b.store.Save(ctx, key, of.Backup)
	if err != nil {
		return err
	}
	b.newestMs = slotMs
	b.made.Store(b.nowMs())
	b.log.Info("a scheduled backup is made", "key", key, "bytes", size, "as_of", time.UnixMilli(head.TimeMs).UTC(), "took", time.Duration(b.nowMs()-begun)*time.Millisecond)
	if of.leadsBackups() { // else the next leader tidies up
		b.tidy(ctx, prefix, key)
	}
	return nil
}

// slotObject is a backup of the schedule's.
type slotObject struct {
	bucket.Object
	slotMs int64
}

// list returns the schedule's backups. Other objects with the prefix are none of its business.
func (b *backupSchedule) list(ctx context.Context, prefix string) (all []slotObject, err error) {
	objects, err := b.store.List(ctx, prefix)
	for _, o := range objects {
		if at, err := time.Parse(backupName, strings.TrimPrefix(o.Key, prefix)); err == nil {
			all = append(all, slotObject{o, at.UnixMilli()})
		}
	}
	return all, err
}

// tidy removes the oldest backups beyond those to keep, now that a newer one has been verified, and
// parts of uploads that were cut off.
func (b *backupSchedule) tidy(ctx context.Context, prefix, made string) {
	all, err := b.list(ctx, prefix)
	slices.SortFunc(all, func(x, y slotObject) int {
		return cmp.Or(y.Modified.Compare(x.Modified), cmp.Compare(y.slotMs, x.slotMs))
	})
	for _, o := range all[min(b.keep, len(all)):] {
		if err == nil && o.Key != made {
			if err = b.store.Remove(ctx, o.Key); err == nil {
				b.log.Info("an old backup is removed", "key", o.Key)
			}
		}
	}
	if err == nil {
		err = b.store.Abandon(ctx, prefix)
	}
	if err != nil && ctx.Err() == nil {
		b.failures.Inc()
		b.log.Warn("the backup is made, but older ones, or parts of uploads, could not be removed", "error", err)
	}
}

// lastCron returns the last occurrence of a cron expression, in UTC, that is not after a moment; 0:
// there was none in eight years. It looks back twice as far each time, and so passes few
// occurrences.
func lastCron(every string, nowMs int64) (last int64) {
	for back := time.Minute; back < 8*366*24*time.Hour && last == 0; back *= 2 {
		for next := recurrence.FirstCron(every, "UTC", nowMs-back.Milliseconds()); next != 0 && next <= nowMs; next = recurrence.FirstCron(every, "UTC", next+1) {
			last = next
		}
	}
	return last
}

var (
	backupMadeDesc    = prometheus.NewDesc("carillon_backup_last_success_timestamp_seconds", "When the last scheduled backup was whole in its store; only on the node that makes them.", nil, nil)
	backupOverdueDesc = prometheus.NewDesc("carillon_backup_overdue_seconds", "For how long a scheduled backup has been due and is not made; 0 on nodes that make none.", nil, nil)
)

func (b *backupSchedule) overdueMs() int64 {
	if since := b.dueSince.Load(); since != 0 {
		return b.nowMs() - since
	}
	return 0
}

// stats is how the schedule stands; nil: there is none.
func (b *backupSchedule) stats() *backend.BackupStats {
	if b.store == nil {
		return nil
	}
	failure, _ := b.failure.Load().(string)
	return &backend.BackupStats{Every: b.every, MadeMs: b.made.Load(), OverdueMs: b.overdueMs(), Error: failure}
}

func (b *backupSchedule) Describe(ch chan<- *prometheus.Desc) {
	ch <- backupMadeDesc
	ch <- backupOverdueDesc
	b.failures.Describe(ch)
}

func (b *backupSchedule) Collect(ch chan<- prometheus.Metric) {
	if made := b.made.Load(); made != 0 {
		ch <- prometheus.MustNewConstMetric(backupMadeDesc, prometheus.GaugeValue, float64(made)/1000)
	}
	ch <- prometheus.MustNewConstMetric(backupOverdueDesc, prometheus.GaugeValue, float64(b.overdueMs())/1000)
	b.failures.Collect(ch)
}
