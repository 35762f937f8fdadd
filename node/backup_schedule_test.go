package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/internal/backup"
	"carillon/internal/bucket"
	"carillon/test/s3server"
	"carillon/test/testkit"
	"carillon/transport/api/backend"
)

// fakeBackups is a store in memory, and the cluster whose backups it has.
type fakeBackups struct {
	nowMs     int64
	objects   map[string]time.Time
	saves     int
	abandoned int
	down      error // of every request
	refuses   error // of saves
	removing  error
}

func (f *fakeBackups) Save(_ context.Context, key string, _ func(context.Context, io.Writer) error) (backup.Head, int64, error) {
	f.saves++
	if err := errors.Join(f.down, f.refuses); err != nil {
		return backup.Head{}, 0, err
	}
	f.objects[key] = time.UnixMilli(f.nowMs)
	return backup.Head{TimeMs: f.nowMs}, 1, nil
}

func (f *fakeBackups) List(_ context.Context, prefix string) (all []bucket.Object, err error) {
	for key, at := range f.objects {
		if strings.HasPrefix(key, prefix) {
			all = append(all, bucket.Object{Key: key, Modified: at})
		}
	}
	return all, f.down
}

func (f *fakeBackups) Remove(_ context.Context, key string) error {
	if f.removing == nil {
		delete(f.objects, key)
	}
	return f.removing
}

func (f *fakeBackups) Abandon(context.Context, string) error {
	f.abandoned++
	return nil
}

func (f *fakeBackups) keys() []string { return slices.Sorted(maps.Keys(f.objects)) }

// backupsOf is a cluster as one node sees it: whether that node makes the backups.
type backupsOf struct{ leads bool }

func (b *backupsOf) leadsBackups() bool                      { return b.leads }
func (b *backupsOf) clusterID() string                       { return "c0ffee" }
func (b *backupsOf) Backup(context.Context, io.Writer) error { return nil }

type scheduleHarness struct {
	t     *testing.T
	store *fakeBackups
	fault string
}

// node is one more node with the schedule.
func (h *scheduleHarness) node(keep int) *backupSchedule {
	return &backupSchedule{
		store: h.store, prefix: "n/", every: "*/10 * * * *", keep: keep, nowMs: func() int64 { return h.store.nowMs }, fault: func() string { return h.fault },
		log: slog.New(slog.DiscardHandler), failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "failures"}),
	}
}

func newScheduleHarness(t *testing.T, at string) *scheduleHarness {
	h := &scheduleHarness{t: t, store: &fakeBackups{objects: map[string]time.Time{}}}
	h.at(at)
	return h
}

func (h *scheduleHarness) at(clock string) {
	h.t.Helper()
	at, err := time.Parse(time.DateTime, "2027-01-01 "+clock)
	testkit.Must(h.t, err)
	h.store.nowMs = at.UnixMilli()
}

// want compares the minutes of the backups that are there.
func (h *scheduleHarness) want(when string, minutes ...string) {
	h.t.Helper()
	var want []string
	for _, m := range minutes {
		want = append(want, "n/carillon-c0ffee-20270101T"+m+"00Z.backup")
	}
	if got := h.store.keys(); !slices.Equal(got, want) {
		h.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// TestScheduledBackups: a backup is made for each occurrence, once, by the node that leads, the
// first one at once; after a pause the last one that was missed is made, and no other.
func TestScheduledBackups(t *testing.T) {
	h := newScheduleHarness(t, "10:03:00")
	b, leads, follows := h.node(10), &backupsOf{leads: true}, &backupsOf{}
	b.look(t.Context(), follows)
	h.want("a follower")
	for range 3 {
		b.look(t.Context(), leads)
	}
	h.want("the first", "1000")
	h.at("10:09:59")
	b.look(t.Context(), leads)
	h.want("not yet", "1000")
	h.at("10:10:00")
	b.look(t.Context(), leads)
	h.want("the second", "1000", "1010")
	h.at("11:47:00")
	b.look(t.Context(), leads)
	h.want("after a pause", "1000", "1010", "1140")
	if h.store.saves != 3 {
		t.Errorf("%d were made", h.store.saves)
	}
}

// TestScheduledBackupsAfterATakeover: the next leader makes none that is there, and the one that is
// missing at once. Two that both believe to lead make one.
func TestScheduledBackupsAfterATakeover(t *testing.T) {
	h := newScheduleHarness(t, "10:03:00")
	one, other := h.node(10), h.node(10)
	first, second := &backupsOf{leads: true}, &backupsOf{}
	look := func() { one.look(t.Context(), first); other.look(t.Context(), second) }
	look()
	first.leads, second.leads = false, true
	look()
	if h.want("taken over within the minute", "1000"); h.store.saves != 1 {
		t.Errorf("%d were made", h.store.saves)
	}
	h.at("10:10:00")
	h.store.refuses = errors.New("busy")
	look()
	first.leads, second.leads, h.store.refuses = true, false, nil
	look()
	if h.want("taken over from one that failed", "1000", "1010"); h.store.saves != 3 {
		t.Errorf("%d were made", h.store.saves)
	}
	second.leads = true
	look()
	h.at("10:20:30")
	look()
	h.want("two that lead", "1000", "1010", "1020")
	second.leads = false
	h.at("10:30:30")
	look()
	first.leads, second.leads = false, true
	look()
	if h.want("back to one that led before", "1000", "1010", "1020", "1030"); h.store.saves != 6 {
		t.Errorf("%d were made", h.store.saves)
	}
}

// TestScheduledBackupsThatFail: a failure is counted, is overdue, and is tried again, less often
// each time; no older one is removed for one that failed.
func TestScheduledBackupsThatFail(t *testing.T) {
	h := newScheduleHarness(t, "10:00:00")
	b, leads := h.node(1), &backupsOf{leads: true}
	b.look(t.Context(), leads)
	h.at("10:10:00")
	h.store.refuses = errors.New("no")
	begin, tries := h.store.nowMs, []int64{}
	for ; h.store.nowMs < begin+50*60_000; h.store.nowMs += 10_000 {
		before := h.store.saves
		if b.look(t.Context(), leads); h.store.saves > before {
			tries = append(tries, (h.store.nowMs-begin)/60_000)
		}
	}
	if want := []int64{0, 1, 3, 7, 15, 30, 45}; !slices.Equal(tries, want) {
		t.Errorf("tried after %v minutes, want %v", tries, want)
	}
	h.want("all failed", "1000")
	if n := gathered(t, b)["failures"]; n != 7 {
		t.Errorf("%v failures", n)
	}
	if got := gathered(t, b); got["carillon_backup_overdue_seconds"] != 50*60 || got["carillon_backup_last_success_timestamp_seconds"] != float64(begin/1000-600) {
		t.Errorf("%v", got)
	}
	if s := b.stats(); *s != (backend.BackupStats{Every: s.Every, MadeMs: begin - 600_000, OverdueMs: 50 * 60_000, Error: "no"}) {
		t.Errorf("%+v", s)
	}
	h.store.refuses = nil
	h.store.nowMs += 10 * 60_000
	b.look(t.Context(), leads)
	h.want("it works again", "1110")
	if s := b.stats(); *s != (backend.BackupStats{Every: "*/10 * * * *", MadeMs: h.store.nowMs}) {
		t.Errorf("%+v", s)
	}
	if got := gathered(t, b); got["carillon_backup_overdue_seconds"] != 0 || got["carillon_backup_last_success_timestamp_seconds"] != float64(h.store.nowMs/1000) {
		t.Errorf("%v", got)
	}
	// A store that cannot even be listed.
	h.store.down = errors.New("away")
	fresh := h.node(1)
	fresh.look(t.Context(), leads)
	h.store.nowMs += 60_000 - 1
	if got := gathered(t, fresh); got["carillon_backup_overdue_seconds"] < 59 || got["carillon_backup_last_success_timestamp_seconds"] != 0 || gathered(t, fresh)["failures"] != 1 {
		t.Errorf("%v", got)
	}
	fresh.look(t.Context(), &backupsOf{}) // another leads
	if got, s := gathered(t, fresh), fresh.stats(); got["carillon_backup_overdue_seconds"] != 0 || s.OverdueMs != 0 || s.Error != "" {
		t.Errorf("one that leads no more: %v, %+v", got, s)
	}
	if s := (&backupSchedule{}).stats(); s != nil {
		t.Errorf("without a schedule: %+v", s)
	}
}

// gathered are the figures without labels.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	all, err := r.Gather()
	testkit.Must(t, err)
	m := map[string]float64{}
	for _, f := range all {
		m[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
	}
	return m
}

// TestScheduledBackupsThatStay: the newest stay, those of another cluster and other objects too,
// and parts of uploads go. That an old one cannot be removed is a failure, and the new one is
// there.
func TestScheduledBackupsThatStay(t *testing.T) {
	h := newScheduleHarness(t, "10:00:00")
	b, leads := h.node(2), &backupsOf{leads: true}
	others := map[string]time.Time{"n/carillon-other-20200101T000000Z.backup": {}, "n/carillon-c0ffee-notes.txt": {}, "carillon-c0ffee-20200101T000000Z.backup": {}}
	maps.Copy(h.store.objects, others)
	for _, at := range []string{"10:00:00", "10:10:00", "10:20:00", "10:30:00"} {
		h.at(at)
		b.look(t.Context(), leads)
	}
	for key := range others {
		if _, there := h.store.objects[key]; !there {
			t.Errorf("%s was removed", key)
		}
		delete(h.store.objects, key)
	}
	if h.want("two stay", "1020", "1030"); h.store.abandoned != 4 {
		t.Errorf("abandoned %d times", h.store.abandoned)
	}
	h.at("10:40:00")
	h.store.removing = errors.New("no")
	b.look(t.Context(), leads)
	h.want("none can be removed", "1020", "1030", "1040")
	if n := gathered(t, b)["failures"]; n != 1 {
		t.Errorf("%v failures", n)
	}
}

// TestScheduledBackupsAndClocks: nothing is made by a clock that is not trusted, and a backup that
// such a clock named for next year keeps none from being made, nor takes its place.
func TestScheduledBackupsAndClocks(t *testing.T) {
	h := newScheduleHarness(t, "10:00:00")
	b, leads := h.node(1), &backupsOf{leads: true}
	h.fault = "it stepped"
	b.look(t.Context(), leads)
	h.want("not trusted")
	h.fault = ""
	h.store.objects["n/carillon-c0ffee-20280101T000000Z.backup"] = time.UnixMilli(h.store.nowMs - 1)
	b.look(t.Context(), leads)
	h.want("trusted again", "1000")
}

// TestScheduledBackupsAfterAClockWasSetBack: what a clock that was ahead has planned holds up no
// backup, whether it made one or failed to.
func TestScheduledBackupsAfterAClockWasSetBack(t *testing.T) {
	for _, refuses := range []error{nil, errors.New("the request is from the future")} {
		h := newScheduleHarness(t, "14:05:00")
		b, leads := h.node(10), &backupsOf{leads: true}
		h.store.refuses = refuses
		b.look(t.Context(), leads)
		h.at("10:03:00")
		for key := range h.store.objects { // by the store's clock
			h.store.objects[key] = time.UnixMilli(h.store.nowMs - 1)
		}
		if b.look(t.Context(), leads); b.stats().OverdueMs < 0 || b.stats().MadeMs > h.store.nowMs {
			t.Errorf("it is %v: %+v", time.UnixMilli(h.store.nowMs).UTC(), b.stats())
		}
		h.store.refuses = nil
		for range 3 {
			h.store.nowMs += 60_000
			b.look(t.Context(), leads)
		}
		minutes := []string{"1000", "1400"}
		if refuses != nil {
			minutes = minutes[:1]
		}
		h.want("set back", minutes...)
		if b.stats().MadeMs == 0 || b.stats().OverdueMs != 0 {
			t.Errorf("%+v", b.stats())
		}
	}
}

func TestLastCron(t *testing.T) {
	at := func(text string) int64 {
		v, err := time.Parse(time.DateTime, text)
		testkit.Must(t, err)
		return v.UnixMilli()
	}
	for _, tt := range []struct{ every, now, want string }{
		{"* * * * *", "2027-03-04 05:06:07", "2027-03-04 05:06:00"},
		{"* * * * *", "2027-03-04 05:06:00", "2027-03-04 05:06:00"},
		{"0 * * * *", "2027-03-04 05:59:59", "2027-03-04 05:00:00"},
		{"30 2 * * *", "2027-03-04 02:29:59", "2027-03-03 02:30:00"},
		{"* 0 * * *", "2027-03-04 13:00:00", "2027-03-04 00:59:00"},
		{"0 0 * * 1", "2027-03-04 05:06:07", "2027-03-01 00:00:00"},
		{"0 0 29 2 *", "2027-03-04 05:06:07", "2024-02-29 00:00:00"},
	} {
		if got := lastCron(tt.every, at(tt.now)); got != at(tt.want) {
			t.Errorf("%s at %s: %v, want %s", tt.every, tt.now, time.UnixMilli(got).UTC(), tt.want)
		}
	}
	if got := lastCron("0 0 30 2 *", at("2027-03-04 05:06:07")); got != 0 {
		t.Errorf("a day that does not come: %d", got)
	}
}

// TestOneNodeMakesScheduledBackups: of three nodes one makes the backups; when it is gone, another
// does. What is in the store is restored.
func TestOneNodeMakesScheduledBackups(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	store := s3server.Start(t)
	nodes := several(t, 3, func(c *Config) {
		c.BackupTo, c.BackupEvery, c.FeatureLevel = "s3://"+s3server.Bucket+"/cluster", "* * * * *", 1
	})
	nodes[0].must(201, "PUT", "/v1/topics/kept", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	nodes[0].must(201, "PUT", "/v1/topics/kept/timers/a", `{"delay":"1h"}`)
	added := time.Now().UnixMilli()
	maker := func() (makers []int) {
		for i, n := range nodes {
			if n != nil && strings.Contains(n.must(200, "GET", "/metrics", ""), "\ncarillon_backup_last_success_timestamp_seconds ") {
				makers = append(makers, i)
			}
		}
		return makers
	}
	until(t, "one node makes the backups", func() bool { return len(maker()) == 1 })
	gone := maker()[0]
	testkit.Must(t, nodes[gone].stop())
	nodes[gone] = nil
	until(t, "another node makes them", func() bool { return len(maker()) == 1 })
	files, err := filepath.Glob(filepath.Join(store.Dir, "cluster", "carillon-*.backup"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	out, err := Restore(RestoreConfig{From: "s3://" + s3server.Bucket + "/cluster/" + filepath.Base(files[len(files)-1]), DataDir: filepath.Join(t.TempDir(), "again"), Name: "n1"})
	testkit.Must(t, err)
	if early := out.Backup.TimeMs < added; !early && (out.Topics != 1 || out.Scheduled != 1) || out.Topics > 1 || out.Scheduled > 1 {
		t.Errorf("restored, from a backup that began ahead of the add %v: %+v", early, out)
	}
}

// fullAfter takes so many bytes, and refuses the next ones.
type fullAfter int

var errFull = errors.New("the store is full")

func (f *fullAfter) Write(p []byte) (int, error) {
	if *f -= fullAfter(len(p)); *f < 0 {
		return 0, errFull
	}
	return len(p), nil
}

// TestBackupThatIsNotTaken: an error of the store is returned for the schedule to log, once, and is
// not ascribed to the shard whose state was being written.
func TestBackupThatIsNotTaken(t *testing.T) {
	var log strings.Builder
	n := start(t, t.TempDir(), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for bytes := range fullAfter(700) {
		err := n.node.run.Load().core.Load().Backup(t.Context(), new(bytes))
		if err == nil {
			break
		}
		if !errors.Is(err, errFull) || strings.Contains(err.Error(), "shard ") {
			t.Fatalf("after %d bytes: %v", bytes, err)
		}
	}
	testkit.Must(t, n.stop())
	if strings.Contains(log.String(), "a backup has failed") {
		t.Errorf("it is logged twice:\n%s", log.String())
	}
}
