package api

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

func TestDueIsCounted(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/orders", `{}`).want(201)
	h.engine.due = &backend.Due{Buckets: []int64{3, 0, 4}, Overdue: 1, Later: 9, Shards: 4, Counted: 3}
	r := h.do("GET", fmt.Sprintf("/v1/due?until=%d&buckets=3&topic=orders", noonMs+10_000), "").want(200)
	r.has("counts.0", "3", "counts.2", "4", "from_ms", fmt.Sprint(noonMs), "bucket_ms", "3334", "until_ms", fmt.Sprint(noonMs+3*3334), "overdue", "1", "later", "9", "shards", "4", "shards_counted", "3")
	orders, _ := topicsOf(h.engine).Here("orders")
	if q := h.engine.asked; q.All || !slices.Equal(q.Topics, []timer.TopicID{orders.ID}) || q.FromMs != noonMs || q.BucketMs != 3334 || q.Buckets != 3 {
		t.Errorf("%+v", q)
	}
	h.engine.due = nil
	h.do("GET", "/v1/due", "").want(200).has("bucket_ms", "60000", "until_ms", fmt.Sprint(noonMs+3_600_000))
	if q := h.engine.asked; !q.All || q.Buckets != 60 {
		t.Errorf("%+v", q)
	}
	h.do("GET", fmt.Sprintf("/v1/due?until=%d", noonMs), "").problem(400, web.BadTime)
	h.do("GET", fmt.Sprintf("/v1/due?until=%d", int64(timer.MaxMs)+1), "").problem(400, web.BadTime)
	for _, query := range []string{"buckets=0", "buckets=1001", "buckets=x", "from=1"} {
		h.do("GET", "/v1/due?"+query, "").problem(400, web.BadRequest)
	}
	h.do("GET", "/v1/due?topic=nothing", "").problem(404, web.UnknownTopic)
	h.engine.fails = timer.ErrNoLeader
	h.do("GET", "/v1/due", "").problem(503, "no_leader")
}

// TestBeforeTheCore: a node that is not of a cluster yet, or reads its log, answers what is its own
// alone.
func TestBeforeTheCore(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{}`).want(201)
	h.engine.noCore = timer.ErrRecovering
	h.do("GET", "/healthz", "").want(200)
	h.do("GET", clusterPath, "").want(200)
	for _, path := range []string{orders, timersPath, "/v1/topics", "/v1/cluster/stats", "/v1/cluster/shards/1", "/v1/destinations", "/v1/due", "/v1/events"} {
		h.do("GET", path, "").problem(503, "unavailable")
	}
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).problem(503, "unavailable")
}

// TestDueOfATokensTopics: the timers of other topics do not count.
func TestDueOfATokensTopics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root read,admin "*"`, `shop read "orders.*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	var own []timer.TopicID
	for _, name := range []string{"orders.a", "other", "orders.b"} {
		h.do("PUT", "/v1/topics/"+name, `{}`, "Authorization: Bearer root").want(201)
		if topic, _ := topicsOf(h.engine).Here(name); strings.HasPrefix(name, "orders") {
			own = append(own, topic.ID)
		}
	}
	h.do("GET", "/v1/due", "", "Authorization: Bearer shop").want(200)
	if q := h.engine.asked; q.All || !slices.Equal(q.Topics, own) {
		t.Errorf("%+v", q)
	}
	h.do("GET", "/v1/due?topic=other", "", "Authorization: Bearer shop").problem(404, web.UnknownTopic)
	h.do("GET", "/v1/due", "", "Authorization: Bearer root").want(200)
	if q := h.engine.asked; !q.All {
		t.Errorf("%+v", q)
	}
}

func TestStatsOfTheCluster(t *testing.T) {
	h := newHarness(t)
	h.engine.stats = &backend.ClusterStats{Lateness: backend.Lateness{Count: 6, P50: 2, P90: 3, P99: 4, Max: 5}, Nodes: []backend.NodeStats{
		{Name: "n1", Minute: backend.Minute{WindowMs: 60_000, Added: 90, Succeeded: 5, Retried: 4, Died: 3, AddedEach: []int64{1, 2, 3}, FiredEach: []int64{4}}, Scheduled: 7, Overdue: 1, Leads: 2,
			Backup: &backend.BackupStats{Every: "0 * * * *", MadeMs: 1_800_000_000_000, OverdueMs: 90_000, Error: "no such bucket"}},
		{Name: "n2", Minute: backend.Minute{WindowMs: 1_000, Added: 30, AddedEach: []int64{10}, FiredEach: []int64{5}}, Scheduled: 8, Dead: 2},
		{Name: "n3", Error: "no answer"},
	}}
	h.do("GET", "/v1/cluster/stats", "").want(200).has("nodes.0.name", `"n1"`, "nodes.0.adds_per_second", "1.5", "nodes.0.fired_per_second", "0.2", "nodes.0.fired.retry", "4",
		"nodes.0.backup.every", `"0 * * * *"`, "nodes.0.backup.last_success", `"2027-01-15T08:00:00.000Z"`, "nodes.0.backup.overdue_ms", "90000", "nodes.0.backup.error", `"no such bucket"`,
		"nodes.1.adds_per_second", "30", "nodes.1.lateness_ms.count", "0", "nodes.2.error", `"no answer"`,
		"total.added", "120", "total.adds_per_second", "2", "total.scheduled", "15", "total.dead", "2", "total.overdue", "1", "total.lateness_ms.p99", "4",
		"total.added_each_second.0", "1", "total.added_each_second.2", "13", "total.fired_each_second.0", "9")
}
