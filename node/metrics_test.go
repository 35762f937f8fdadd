package node

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/node/metrics"
	"carillon/ring"
	"carillon/shard"
	"carillon/test/testkit"
)

// seriesOf reads a collector: values by name and labels.
func seriesOf(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families, err := r.Gather()
	testkit.Must(t, err)
	list := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			list[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return list
}

// TestMetricsOfTopics: the busiest topics have series of their own, the rest is one; no counter
// goes back when that changes.
func TestMetricsOfTopics(t *testing.T) {
	n := start(t, t.TempDir())
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		if a.topic == "sick" {
			w.WriteHeader(410)
		}
	})
	for _, topic := range []string{"a", "b", "busy", "sick"} {
		n.must(201, "PUT", "/v1/topics/"+topic, fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
		n.must(201, "POST", "/v1/topics/"+topic+"/timers", `{"id":"later","delay":"1h"}`)
	}
	added := 0
	fire := func(topic, state string, timers int) {
		for range timers {
			added++
			n.must(201, "POST", "/v1/topics/"+topic+"/timers", fmt.Sprintf(`{"id":"t%d","delay":"0s"}`, added))
		}
		n.eventually(topic, fmt.Sprint("t", added), state)
		until(t, "all have ended", func() bool {
			return strings.Count(n.must(200, "GET", "/v1/topics/"+topic+"/timers", ""), `"id"`) == 1
		})
	}
	fire("busy", "done", 3)
	fire("sick", "dead", 2)
	fire("a", "done", 1)
	core := n.node.run.Load().core.Load
	m := metrics.NewTopics(metrics.Sources{
		Host:  func() *shard.Host { return core().host },
		State: func() *ring.State { return core().member.State },
	}, 2)
	got := seriesOf(t, m)
	want := map[string]float64{
		"carillon_topic_fired_total success busy": 3, "carillon_topic_fired_total dead sick": 2, "carillon_topic_fired_total success _other": 1,
		"carillon_topic_timers scheduled busy": 1, "carillon_topic_timers done busy": 3, "carillon_topic_timers dead sick": 2,
		"carillon_topic_timers scheduled _other": 2, "carillon_topic_timers done _other": 1, "carillon_topic_oldest_overdue_seconds _other": 0,
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
	if len(got) != 3*8 {
		t.Errorf("%d series: %v", len(got), got)
	}
	fire("a", "done", 20)
	if again := seriesOf(t, m); again["carillon_topic_fired_total success a"] != 20 || again["carillon_topic_fired_total success _other"] != 1 {
		t.Errorf("one that became busy: %v", again)
	}
	fire("sick", "dead", 60) // more than twice as busy as a
	fire("busy", "done", 60)
	last := seriesOf(t, m)
	if _, shown := last["carillon_topic_fired_total success a"]; shown || last["carillon_topic_fired_total dead sick"] != 62 ||
		last["carillon_topic_fired_total success busy"] != 63 || last["carillon_topic_fired_total success _other"] != 1 {
		t.Errorf("one that is busy again: %v", last)
	}
}

// TestShutWindowIsNoBacklog: timers that wait for their topic's window are as they should be. The
// alerts for a backlog would page somebody each night.
func TestShutWindowIsNoBacklog(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/office", fmt.Sprintf(`{"callback":{"url":"http://127.0.0.1:9/"},"window":%s}`, shutToday()))
	n.must(201, "POST", "/v1/topics/office/timers", `{"id":"a","delay":"0s"}`)
	n.waits("office", "a", "window")
	until(t, "it is late", func() bool {
		got := n.must(200, "GET", "/v1/topics/office", "")
		return strings.Contains(got, `"ready":1`) && !strings.Contains(got, `"oldest_overdue_ms":0`)
	})
	text := n.must(200, "GET", "/metrics", "")
	for _, want := range []string{
		"carillon_overdue 0\n", `carillon_topic_oldest_overdue_seconds{topic="office"} 0` + "\n", `carillon_waiting{reason="window"} 1` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	n.must(200, "POST", "/v1/topics/office/pause", "")
	n.must(200, "PATCH", "/v1/topics/office", `{"window":null}`)
	until(t, "a pause is a backlog", func() bool {
		text := n.must(200, "GET", "/metrics", "")
		return strings.Contains(text, "carillon_overdue 1\n") && !strings.Contains(text, `carillon_topic_oldest_overdue_seconds{topic="office"} 0`+"\n")
	})
}

// TestUndividedShardIsNotCounted: while the number of shards grows, each that is counted has its
// timers and a leader. The alert for a shard without a leader would page somebody for as long as a
// growth lasts, or waits.
func TestUndividedShardIsNotCounted(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	value := func(text, name string) (v int) {
		_, rest, _ := strings.Cut(text, "\n"+name+" ")
		if _, err := fmt.Sscan(rest, &v); err != nil {
			t.Fatal(name, err)
		}
		return v
	}
	n.must(202, "POST", "/v1/cluster/shards", `{"shards":16}`)
	for shards := 0; shards < 16; {
		text := "\n" + n.must(200, "GET", "/metrics", "")
		shards = value(text, "carillon_shards")
		if leads := value(text, "carillon_raft_leaders"); leads < shards { // one may be counted just before
			t.Fatalf("%d shards are counted, and this node, which is alone, leads %d groups", shards, leads)
		}
	}
	n.awaitGrown(16)
}

// TestMetricsOfTheAPI: requests are counted by route and status, and which build it is.
func TestMetricsOfTheAPI(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/t", `{}`)
	n.must(404, "GET", "/v1/topics/t/timers/none", "")
	n.must(404, "GET", "/v1/topics/t/timers/none", "")
	n.must(404, "GET", "/nothing", "")
	text := n.must(200, "GET", "/metrics", "")
	for _, want := range []string{
		`carillon_http_requests_total{code="201",route="PUT /v1/topics/{topic}"} 1`,
		`carillon_http_requests_total{code="404",route="GET /v1/topics/{topic}/timers/{id}"} 2`,
		`carillon_http_requests_total{code="404",route="none"} 1`,
		`carillon_http_refused_total{code="404"} 3`, `carillon_http_refused_total{code="403"} 0`,
		`carillon_http_request_seconds_count{route="GET /v1/topics/{topic}/timers/{id}"} 2`,
		`carillon_lateness_seconds_count{held="no"} 0`, `carillon_lateness_seconds_count{held="yes"} 0`,
		`carillon_build_info{go="go1.`, `version="test"} 1`,
		`carillon_adds_refused_total{reason="low_disk"} 0`, `carillon_adds_refused_total{reason="memory"} 0`,
		`carillon_topic_timers{state="scheduled",topic="t"} 0`, `carillon_topic_timers{state="scheduled",topic="_other"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// A token without the scope cluster sees the metrics that name no topic and no receiver, if it
// reads every topic.
func TestMetricsWithoutTopics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.yaml")
	var lines strings.Builder
	for name, rule := range map[string]string{"operator": "[admin, cluster], topics: [\"*\"]", "reader": "[read], topics: [\"*\"]", "tenant": "[read, admin], topics: [\"t\"]"} {
		fmt.Fprintf(&lines, "- {name: %s, sha256: \"%x\", scopes: %s}\n", name, sha256.Sum256([]byte(name)), rule)
	}
	testkit.Must(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	n := start(t, t.TempDir(), func(c *Config) { c.AuthFile = file })
	ask := func(token, method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, n.base+path, strings.NewReader(body))
		testkit.Must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		resp, err := http.DefaultClient.Do(r)
		testkit.Must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		return resp.StatusCode, string(text)
	}
	if status, text := ask("operator", "PUT", "/v1/topics/t", `{}`); status != 201 {
		t.Fatal(status, text)
	}
	if status, _ := ask("tenant", "GET", "/metrics", ""); status != 403 {
		t.Errorf("a tenant: %d", status)
	}
	_, all := ask("operator", "GET", "/metrics", "")
	_, some := ask("reader", "GET", "/metrics", "")
	for _, series := range []string{"carillon_add_total ", "process_open_fds ", `carillon_http_refused_total{code="403"} 1`} {
		if !strings.Contains(all, series) || !strings.Contains(some, series) {
			t.Errorf("%s is not shown to both", series)
		}
	}
	if !strings.Contains(all, `topic="t"`) || strings.Contains(some, "topic=") || strings.Contains(some, "destination=") {
		t.Error("topics are shown without the scope cluster, or not with it")
	}
}
