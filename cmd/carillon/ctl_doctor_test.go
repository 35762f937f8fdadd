package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
)

// oneNode is a cluster whose only reachable node answers with these texts. In the view HTTP stands
// for its address.
func oneNode(t *testing.T, view, metrics string, ready int, receivers ...string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/cluster":
			w.Write([]byte(strings.ReplaceAll(view, "HTTP", r.Host)))
		case "/metrics":
			w.Write([]byte(metrics))
		case "/v1/destinations":
			w.Write([]byte(`{"destinations":[` + strings.Join(receivers, ",") + `]}`))
		case "/healthz":
		case "/readyz":
			w.WriteHeader(ready)
			w.Write([]byte(`{"code":"unavailable","detail":"not ready: shard 3 has no leader"}`))
		default:
			t.Errorf("asked for %s", r.URL)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const (
	goodView = `{"cluster_id":"c0ffee","healthy":true,"replicas":3,"feature_level":2,"nodes":[` +
		`{"name":"n1","http":"HTTP","state":"alive","version":"v1","feature_level":2,"clock_offset_ms":3},` +
		`{"name":"n2","state":"alive","version":"v1","feature_level":2,"clock_offset_ms":-3},` +
		`{"name":"n3","state":"alive","version":"v1","feature_level":2,"clock_offset_ms":0}],"shards":[` +
		`{"shard":1,"leader":"n1","replicas":["n1","n2","n3"],"state":"ok"},{"shard":2,"leader":"n2","replicas":["n2","n1","n3"],"state":"ok"}]}`
	goodMetrics = "# HELP x\ncarillon_disk_free_bytes 5.4e+10\ncarillon_disk_low_bytes 2.68435456e+08\nprocess_open_fds 40\nprocess_max_fds 1.048576e+06\n"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	soon := fmt.Sprint(time.Now().Add(13 * 24 * time.Hour).Unix())
	change := func(s string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(s) }
	for _, tt := range []struct {
		name          string
		view, metrics string
		ready         int
		code          int
		want          []string
	}{
		{"all is well", goodView, goodMetrics, 200, 0, []string{
			"ok     n2          is alive\n", "2: 2 ok", "all nodes run v1", "if n1 went  all shards would keep running", "50.3 GiB free on its disk", "40 of 1048576 open files",
		}},
		{"the node waits for its cluster", `{"version":"v1","nodes":[],"shards":[]}`, "", 503, 2, []string{
			"GRADE    ABOUT    FINDING\nproblem  cluster  the node that was asked is in none yet: not ready: shard 3 has no leader (503 unavailable)\n",
		}},
		{"a node is down", change(goodView, `"n3","state":"alive"`, `"n3","state":"down"`, `"state":"ok"`, `"state":"degraded"`), goodMetrics, 200, 2, []string{
			"problem  n3          is down; start it", "warning  shards      2: 2 degraded", "warning  if n1 went  2 of 2 shards would stop until it is back",
		}},
		{"a node is cut off", change(goodView, `"n3","state":"alive"`, `"n3","http":"HTTP","state":"down"`), goodMetrics, 200, 2, []string{
			"problem  n3          is not heard by the node that was asked, and answers from here: repair the network between the nodes (ports --peer, TCP, and --gossip, TCP and UDP), or give them the same --gossip-key, and certificates of the same --peer-ca; their logs say which\n",
		}},
		{"a node's certificate has ended, so that it is cut off", change(goodView, `"n3","state":"alive"`, `"n3","http":"HTTP","state":"down"`),
			goodMetrics + "carillon_certificate_not_after_timestamp_seconds{of=\"peer_cert\"} 1.7e+09\n", 200, 2, []string{
				"problem  n3          a certificate of --peer-cert has ended, 2023-11-14T22:13:20Z: replace the file, and send SIGHUP\n",
			}},
		{"the node that is asked is cut off", change(goodView, `"n2","state":"alive"`, `"n2","http":"HTTP","state":"down"`, `"n3","state":"alive"`, `"n3","http":"HTTP","state":"down"`,
			`"state":"ok"`, `"state":"no_quorum"`), goodMetrics, 200, 2, []string{
			"problem  shards      the node that was asked hears no majority of 1, 2; n2, n3 may serve them: ask there (--url)\n",
		}},
		{"memory is short", goodView, goodMetrics + "carillon_memory_needed_bytes 8e8\ncarillon_memory_limit_bytes 1e9\n", 200, 2, []string{
			"refuses adds: it needs 762.9 MiB of memory, and takes none beyond 715.3 MiB of the 953.7 MiB that it may use: give it more memory, or remove timers",
		}},
		{"memory gets short", goodView, goodMetrics + "carillon_memory_needed_bytes 7e8\ncarillon_memory_limit_bytes 1e9\n", 200, 1, []string{
			"needs 667.6 MiB of memory; beyond 715.3 MiB it refuses adds",
		}},
		{"memory is enough", goodView, goodMetrics + "carillon_memory_needed_bytes 4e8\ncarillon_memory_limit_bytes 1e9\n", 200, 0, []string{
			"needs 381.5 MiB of memory; beyond 715.3 MiB it refuses adds",
		}},
		{"a replica is wrong, a disk was damaged", goodView, goodMetrics + "carillon_replica_faults 2\ncarillon_damaged_folders 1\n", 200, 2, []string{
			"2 replicas are stopped or differ from the others; its log says which and why",
			"its disk has damaged the log: check it, then delete the folders damaged-… in its data directory",
		}},
		{"a shard is full", goodView, goodMetrics + "carillon_full_shards 1\n", 200, 2, []string{
			"problem  n1          1 shard is full and refuses adds, whatever memory there is: carillon ctl shards makes more of them\n",
		}},
		{"a node is suspect", change(goodView, `"n3","state":"alive"`, `"n3","state":"suspect","silent_ms":1700`), goodMetrics, 200, 1, []string{"it was last heard 1.7 s ago"}},
		{"no quorum", change(goodView, `"n2","n1","n3"],"state":"ok"`, `"n2","n1","n3"],"state":"no_quorum"`), goodMetrics, 200, 2, []string{"problem  shards      2: 1 no_quorum, 1 ok"}},
		{"most nodes are down", change(goodView, `"n2","state":"alive"`, `"n2","state":"down"`, `"n3","state":"alive"`, `"n3","state":"down"`, `"leader":"n1",`, "", `"leader":"n2",`, "",
			`"state":"ok"`, `"state":"no_quorum"`), goodMetrics, 200, 2, []string{
			"problem  n2          is down; start it with its data directory: 2 shards have no majority without it\n",
			"problem  n3          is down; start it with its data directory: 2 shards have no majority without it\n",
			"problem  shards      no majority: 1, 2; these answer 503 and fire nothing until enough of n2, n3 are started, and then fire what is late; only if their data is lost for good, " +
				"restore a backup into an empty directory (docs/backup.md)\n",
			"warning  if n1 went  2 of 2 shards have no majority now; nothing more would stop\n",
		}},
		{"a majority of one shard is down", change(goodView, `"n3","state":"alive"`, `"n3","state":"down"`, `"leader":"n2","replicas":["n2","n1","n3"],"state":"ok"`, `"replicas":["n3"],"state":"no_quorum"`), goodMetrics, 200, 2, []string{
			"problem  n3          is down; start it with its data directory: 1 shard has no majority without it\n",
			"no majority: 2; ", "until enough of n3 are started", "warning  if n1 went  1 of 2 shards would stop until it is back\n",
		}},
		{"unfit, and a clock that is off", change(goodView, `"clock_offset_ms":-3`, `"clock_offset_ms":-900,"unfit":"its disk is slow"`), goodMetrics, 200, 2, []string{
			"problem  n2          should not lead: its disk is slow", "warning  n2          its clock is -900 ms",
		}},
		{"shards double", change(goodView, `"nodes":[`, `"resharding":{"from":2,"to":4,"done":1},"nodes":[`), goodMetrics, 200, 0, []string{"ok     shards      resharding from 2 to 4: 1 of 2 new shards"}},
		{"shards cannot double", change(goodView, `"nodes":[`, `"resharding":{"from":2,"to":4,"done":1,"shard":2,"waits_for":"majority"},"nodes":[`), goodMetrics, 200, 2, []string{
			"problem  shards      resharding from 2 to 4: 1 of 2 new shards; shard 2 has lost most of its replicas",
		}},
		{"shards wait for a disk", change(goodView, `"nodes":[`, `"resharding":{"from":2,"to":4,"done":1,"shard":2,"waits_for":"disk"},"nodes":[`), goodMetrics, 200, 1, []string{
			"warning  shards      resharding from 2 to 4: 1 of 2 new shards; the disk of a node with a replica of shard 2 is almost full",
		}},
		{"half an upgrade", change(goodView, `"n2","state":"alive","version":"v1","feature_level":2`, `"n2","state":"alive","version":"v2","feature_level":3`,
			`"nodes":[`, `"upgrade":{"feature_level":3,"lacking":["n1","n3"]},"nodes":[`), goodMetrics, 200, 1, []string{
			"the nodes run v1 and v2", "warning  releases    feature level 2; 3 when these run the newer release, too, and the upgrade is finalized: n1, n3",
		}},
		{"an upgrade that is not finalized", change(goodView, `"nodes":[`, `"upgrade":{"feature_level":3,"lacking":[]},"nodes":[`), goodMetrics, 200, 1, []string{
			"warning  releases    feature level 2; the upgrade to 3 waits to be finalized: carillon ctl upgrade finalize",
		}},
		{"too few replicas", change(goodView, `["n1","n2","n3"]`, `["n1","n2"]`), goodMetrics, 200, 1, []string{"1 have fewer replicas than the 3"}},
		{"little disk", goodView, change(goodMetrics, "5.4e+10", "1.5e+09"), 200, 1, []string{"warning  n1          1.4 GiB free on its disk; below 256.0 MiB it refuses adds"}},
		{"no disk", goodView, change(goodMetrics, "5.4e+10", "1e+08"), 200, 2, []string{"problem  n1          refuses adds: 95.4 MiB free", "make room"}},
		{"few files", goodView, change(goodMetrics, "1.048576e+06", "1024"), 200, 1, []string{"may open 1024 files; allow at least 65536"}},
		{"no files", goodView, change(goodMetrics, "fds 40", "fds 1e6"), 200, 2, []string{"1000000 of 1048576 open files are in use"}},
		{"a scheduled backup", goodView, goodMetrics + "carillon_backup_last_success_timestamp_seconds 1.8e+09\ncarillon_backup_overdue_seconds 0\n", 200, 0, []string{
			"ok     backups     the last one was made 2027-01-15T08:00:00Z, by n1\n",
		}},
		{"a scheduled backup is tried again", goodView, goodMetrics + "carillon_backup_overdue_seconds 90\n", 200, 1, []string{"warning  backups     one has been due for 1m30s", "none is known"}},
		{"a scheduled backup is not made", goodView, goodMetrics + "carillon_backup_last_success_timestamp_seconds 1.8e+09\ncarillon_backup_overdue_seconds 7300\n", 200, 2, []string{
			"problem  backups     one has been due for 2h1m40s and is not made; the log of n", "the last one was made 2027-01-15T08:00:00Z",
		}},
		{"certificates end", goodView, goodMetrics + "carillon_certificate_not_after_timestamp_seconds{of=\"http_cert\"} " + soon + "\ncarillon_certificate_not_after_timestamp_seconds{of=\"peer_ca\"} 4e9\n", 200, 1, []string{
			"warning  n1          a certificate of --http-cert ends 20", ": replace the file, and send SIGHUP\n",
		}},
		{"a certificate has ended", goodView, goodMetrics + "carillon_certificate_not_after_timestamp_seconds{of=\"peer_ca\"} 1.7e+09\n", 200, 2, []string{
			"problem  n1          a certificate of --peer-ca has ended, 2023-11-14T22:13:20Z: replace the file, and send SIGHUP\n",
		}},
		{"of a node that is not ready", goodView, "carillon_certificate_not_after_timestamp_seconds{of=\"peer_cert\"} 1.7e+09\n", 503, 2, []string{"is not ready", "--peer-cert has ended"}},
		{"no certificate ends", goodView, goodMetrics + "carillon_certificate_not_after_timestamp_seconds{of=\"peer_ca\"} 4e9\n", 200, 0, []string{"50.3 GiB free"}},
		{"locked topics", goodView, goodMetrics + "carillon_topic_locked{topic=\"orders\"} 1\n", 200, 2, []string{"topic orders", "its calls wait for a secrets key", "carillon ctl topics rotate orders"}},
		{"timers without a URL", goodView, goodMetrics + "carillon_waiting{reason=\"no_callback\"} 3\ncarillon_waiting{reason=\"breaker\"} 9\n", 200, 2, []string{"3 timers have no URL", "topics set TOPIC callback.url=URL"}},
		{"a timer without a URL", goodView, goodMetrics + "carillon_waiting{reason=\"no_callback\"} 1\n", 200, 2, []string{"1 timer has no URL, nor has its topic: "}},
		{"a topic is paused", goodView, goodMetrics + "carillon_waiting{reason=\"topic_paused\"} 3\n", 200, 1, []string{
			"warning  n1          3 timers wait: their topics are paused; carillon ctl topics resume TOPIC; carillon ctl topics list shows where",
		}},
		{"a topic that nobody pulls", goodView, goodMetrics + "carillon_waiting{reason=\"consumer\"} 3\ncarillon_topic_oldest_overdue_seconds{topic=\"jobs\"} 61\n", 200, 1, []string{
			"warning  n1          3 timers wait to be pulled: if nobody does, start consumers; carillon ctl pull TOPIC takes one by hand; carillon ctl topics list shows where",
		}},
		{"consumers are on their way", goodView, goodMetrics + "carillon_waiting{reason=\"consumer\"} 3\ncarillon_topic_oldest_overdue_seconds{topic=\"jobs\"} 59\n", 200, 0, []string{"40 of 1048576 open files"}},
		{"a burst", goodView, goodMetrics + "carillon_waiting{reason=\"leader\"} 90000\n", 200, 1, []string{"warning  n1          90000 timers wait for their shard's leader; a burst passes by itself"}},
		{"locked topics of a node that is not ready", goodView, goodMetrics + "carillon_topic_locked{topic=\"orders\"} 1\n", 503, 2, []string{"is not ready", "carillon ctl topics rotate orders"}},
		{"a token without the scope cluster", change(goodView, `"nodes":[`, `"scopes":["read"],"nodes":[`), goodMetrics, 200, 1, []string{"warning  topics      those that wait for a secrets key are not shown to this token, which lacks the scope cluster"}},
		{"a token with the scope cluster", change(goodView, `"nodes":[`, `"scopes":["read","cluster"],"nodes":[`), goodMetrics, 200, 0, []string{"50.3 GiB free"}},
		{"a node that listens at all addresses is asked where it was reached", change(goodView, `"http":"HTTP"`, `"http":"[::]:1"`), goodMetrics, 200, 0, []string{"50.3 GiB free"}},
		{"not ready", goodView, goodMetrics, 503, 2, []string{"problem  n1          is not ready", "shard 3 has no leader"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := carillon(t, "", nil, "ctl", "doctor", "--url", oneNode(t, tt.view, tt.metrics, tt.ready))
			if got.code != tt.code || got.err != "" {
				t.Errorf("exit %d, want %d; stderr %q", got.code, tt.code, got.err)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.out, want) {
					t.Errorf("%s\nlacks %q", got.out, want)
				}
			}
		})
	}
	url := oneNode(t, goodView, goodMetrics, 200, `{"destination":"http://a:80","state":"open","waiting":1,"failures":9,"last_error":"timeout"}`,
		`{"destination":"http://b:80","state":"closed","failures":7,"last_error":"redirect 302"}`, `{"destination":"http://c:80","state":"closed","failures":1,"last_error":"timeout"}`)
	if got := carillon(t, "", nil, "ctl", "doctor", "--url", url); got.code != 1 || strings.Contains(got.out, "http://c") ||
		!strings.Contains(got.out, "http://a:80 is unhealthy: its calls are paused, 1 timer waits for it until a probe succeeds; repair it; last error: timeout") ||
		!strings.Contains(got.out, "warning  receiver    http://b:80: the last 7 calls failed (redirect 302); repair it, or pause its topics before their attempts are used up") {
		t.Errorf("receivers: %+v", got)
	}
	nine := strings.Repeat(`,{"destination":"http://b:80","state":"closed","failures":7}`, 9)[1:]
	if got := carillon(t, "", nil, "ctl", "doctor", "--url", oneNode(t, goodView, goodMetrics, 200, nine)); !strings.Contains(got.out, "receivers   4 more are so: carillon ctl destinations") {
		t.Errorf("nine receivers: %+v", got)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/cluster":
			w.Write([]byte(strings.ReplaceAll(goodView, "HTTP", r.Host)))
		case "/metrics":
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte(`{"code":"forbidden","detail":"the token may not do this"}`))
		}
	}))
	t.Cleanup(server.Close)
	const wants = "not shown to this token (403 forbidden): they come from /metrics, for which it needs the scopes read and cluster\n"
	if got := carillon(t, "", nil, "ctl", "doctor", "--url", server.URL); got.code != 1 || !strings.Contains(got.out, wants) {
		t.Errorf("a token of one topic: %+v", got)
	}
	if got := carillon(t, "", nil, "ctl", "doctor", "--help"); !strings.Contains(strings.Join(strings.Fields(got.out), " "), `the scopes read and cluster`) {
		t.Errorf("help: %s", got.out)
	}
	got := carillon(t, "", nil, "ctl", "doctor", "--json", "--url", oneNode(t, goodView, goodMetrics, 503))
	if got.code != 2 || !strings.HasPrefix(got.out, `{"grade":"problem","findings":[{"grade":"ok","about":"n1","text":"is alive"},`) {
		t.Errorf("%+v", got)
	}
}

// A cluster of which no node answers is a problem, no warning.
func TestDoctorWithoutANode(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(nil)
	server.Close()
	got := carillon(t, "", nil, "ctl", "doctor", "--url", server.URL)
	if want := "problem  cluster  no node answers at " + server.URL; got.code != 2 || !strings.Contains(got.out, want) || got.err != "" {
		t.Errorf("lacks %q: %+v", want, got)
	}
	if got := carillon(t, "", nil, "ctl", "doctor", "--json", "--url", server.URL); got.code != 2 || !strings.HasPrefix(got.out, `{"grade":"problem","findings":[{"grade":"problem","about":"cluster"`) {
		t.Errorf("%+v", got)
	}
}

// A node that was started on the directory of another cluster is named as that.
func TestDoctorNamesAStranger(t *testing.T) {
	t.Parallel()
	other := oneNode(t, strings.Replace(goodView, "c0ffee", "dada", 1), goodMetrics, 200)
	asked := oneNode(t, strings.Replace(goodView, `"n2","state":"alive"`, `"n2","http":"`+strings.TrimPrefix(other, "http://")+`","state":"down"`, 1), goodMetrics, 200)
	got := carillon(t, "", nil, "ctl", "doctor", "--url", asked)
	if want := "problem  n2          its address is now that of a node of another cluster, dada: start n2 with its own data directory"; got.code != 2 || !strings.Contains(got.out, want) || strings.Contains(got.out, "network") {
		t.Errorf("lacks %q: %+v", want, got)
	}
}

// Two nodes that do not hear each other may both hear the one that is asked.
func TestDoctorNamesALinkThatIsCut(t *testing.T) {
	t.Parallel()
	cut := oneNode(t, strings.Replace(goodView, `"n3","state":"alive"`, `"n3","state":"down"`, 1), goodMetrics, 503)
	asked := oneNode(t, strings.Replace(goodView, `"n2","state":"alive"`, `"n2","http":"`+strings.TrimPrefix(cut, "http://")+`","state":"alive"`, 1), goodMetrics, 200)
	got := carillon(t, "", nil, "ctl", "doctor", "--url", asked)
	if want := "problem  n2          does not hear n3, which others hear: repair the network"; got.code != 2 || !strings.Contains(got.out, want) {
		t.Errorf("lacks %q: %+v", want, got)
	}
}

// A node that hangs takes connections, and answers nothing: that costs one wait, whatever the
// number of them, and no "start it", which its port would refuse.
func TestDoctorNamesNodesThatHang(t *testing.T) {
	t.Parallel()
	stands, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = stands.Close() })
	for _, state := range []string{"alive", "down"} {
		view := strings.NewReplacer(`"n2","state":"alive"`, `"n2","http":"`+stands.Addr().String()+`","state":"`+state+`"`,
			`"n3","state":"alive"`, `"n3","http":"`+stands.Addr().String()+`","state":"`+state+`"`).Replace(goodView)
		started := time.Now()
		got := carillon(t, "", nil, "ctl", "doctor", "--timeout", "3s", "--url", oneNode(t, view, goodMetrics, 200))
		for _, name := range []string{"n2", "n3"} {
			line := regexp.MustCompile("(?m)^problem  " + name + " .*its process takes connections at " + stands.Addr().String() + " and does not answer: end it .*, and start it again")
			if got.code != 2 || !line.MatchString(got.out) {
				t.Errorf("%s, %s: %+v", name, state, got)
			}
		}
		if took := time.Since(started); took > 7*time.Second {
			t.Errorf("%s: took %v", state, took)
		}
	}
}
