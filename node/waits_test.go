package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/test/testkit"
	"carillon/timer"
)

// waits polls until a timer waits for a cause, and returns the object of its wait.
func (r *running) waits(topic, id, cause string) string {
	r.t.Helper()
	var v map[string]any
	until(r.t, fmt.Sprintf("%s of %s waits for %s", id, topic, cause), func() bool {
		v = r.timer(topic, id)
		return v["waits_for"] == cause
	})
	on, _ := v["waits_on"].(string)
	return on
}

func (r *running) waitsOn(topic, id, cause, want string) {
	r.t.Helper()
	if on := r.waits(topic, id, cause); on != want {
		r.t.Errorf("it waits on %q, want %q", on, want)
	}
}

// hanging is a receiver that answers when it is released.
func hanging(t *testing.T) (url string, release func()) {
	t.Helper()
	released := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-released:
		case <-req.Context().Done():
		}
	}))
	done := false
	release = func() {
		if !done {
			done = true
			close(released)
		}
	}
	t.Cleanup(func() { release(); server.Close() })
	return server.URL, release
}

// TestWaits: a timer that is due names its cause of waiting, and the object of its wait, and its
// topic's counts have it.
func TestWaits(t *testing.T) {
	n := start(t, t.TempDir())
	asked := map[string]bool{}
	for cause := range elsewhere {
		asked[cause.String()] = true
	}
	for name, test := range map[string]func(*testing.T, *running){
		"topic_paused": waitsForPausedTopic, "paused": waitsForResume, "breaker": waitsForBreaker, "key": waitsForKey,
		"key of a consumer": waitsForKeyOfConsumer, "key_rate": waitsForKeyRate, "key that is full": waitsForFullKey, "concurrency": waitsForConcurrency, "rate": waitsForRate,
		"spread": waitsForSpread, "slots": waitsForSlots, "no_callback": waitsForNoCallback, "refused_address": waitsForRefusedAddress,
		"window": waitsForWindow, "window of a consumer": waitsForWindowOfConsumer,
		"batch": waitsForBatch, "order": waitsForOrder,
	} {
		asked[strings.Fields(name)[0]] = true
		t.Run(name, func(t *testing.T) { test(t, &running{t: t, base: n.base, node: n.node, stop: n.stop}) })
	}
	for _, cause := range timer.WaitCauses() {
		name := cause.String()
		if !asked[name] {
			t.Errorf("nothing waits for %s", name)
		}
		if _, was := countedCauses.Load(name); !was && cause != timer.WaitZone && cause != timer.WaitLeader && cause != timer.WaitTurn {
			t.Errorf("no counts say that something waits for %s", name)
		}
	}
}

// elsewhere are the causes that other tests ask for.
var elsewhere = map[timer.WaitCause]string{
	timer.WaitBackoff: "waitsForBreaker", timer.WaitConsumer: "waitsForKeyOfConsumer", timer.WaitZone: "of package shard",
	timer.WaitLeader: "TestWaitsForLeader of package shard, TestWaitsOfAShardWithoutLeader",
	timer.WaitTurn:   "TestWaitsOfAHerdAreCounted of package shard",
}

// countedCauses are the causes that running.counted has seen.
var countedCauses sync.Map

// counted polls until a topic's counts say of so many timers that they wait for a cause, and of no
// others that they wait.
func (r *running) counted(topic, cause string, n int) {
	r.t.Helper()
	want := fmt.Sprintf(`"waiting":{%q:%d}`, cause, n)
	until(r.t, topic+" counts "+want, func() bool { return strings.Contains(r.must(200, "GET", "/v1/topics/"+topic, ""), want) })
	countedCauses.Store(cause, true)
}

func waitsForNoCallback(t *testing.T, n *running) {
	n.must(201, "PUT", "/v1/topics/lost", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	n.must(200, "POST", "/v1/topics/lost/pause", "")
	n.must(201, "POST", "/v1/topics/lost/timers", `{"id":"a","delay":"0s"}`)
	n.counted("lost", "topic_paused", 1)
	n.must(200, "PUT", "/v1/topics/lost?force=true", `{}`)
	n.must(200, "POST", "/v1/topics/lost/resume", "")
	n.waitsOn("lost", "a", "no_callback", "lost")
	n.counted("lost", "no_callback", 1)
	until(t, "the metrics show it", func() bool {
		return strings.Contains(n.must(200, "GET", "/metrics", ""), `carillon_waiting{reason="no_callback"} 1`)
	})
	n.must(200, "POST", "/v1/topics/lost/timers/a/fire", "")
	n.waits("lost", "a", "no_callback")
	n.must(201, "POST", "/v1/topics/gone/timers", `{"id":"a","delay":"1h","callback":{"url":"http://127.0.0.1:1/"}}`)
	n.must(200, "POST", "/v1/topics/gone/pause", "")
	n.must(200, "PATCH", "/v1/topics/gone/timers/a", `{"delay":"0s"}`)
	n.counted("gone", "topic_paused", 1)
	n.must(200, "DELETE", "/v1/topics/gone/timers/a", "")
	if got := n.must(200, "GET", "/v1/topics/gone", ""); !strings.Contains(got, `"ready":0`) || strings.Contains(got, `"waiting":{"t`) || strings.Contains(got, `"oldest_overdue_ms":1`) {
		t.Errorf("what was cancelled is counted as waiting: %s", got)
	}
	rec := newReceiver(t, nil)
	n.must(200, "PATCH", "/v1/topics/lost", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.eventually("lost", "a", "done")
}

// shutToday is a window that is not open on any day around today.
func shutToday() string {
	except := make([]string, 3)
	for i := range except {
		except[i] = time.Now().UTC().AddDate(0, 0, i-1).Format(`"2006-01-02"`)
	}
	return `{"zone":"UTC","except":[` + strings.Join(except, ",") + `]}`
}

func waitsForWindow(t *testing.T, n *running) {
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/office", fmt.Sprintf(`{"callback":{"url":%q},"window":%s}`, rec.URL, shutToday()))
	n.must(201, "POST", "/v1/topics/office/timers", `{"id":"a","delay":"0s"}`)
	n.waitsOn("office", "a", "window", "office")
	n.counted("office", "window", 1)
	n.must(200, "POST", "/v1/topics/office/timers/a/fire", "") // no way around it
	n.waits("office", "a", "window")
	n.must(200, "PATCH", "/v1/topics/office", `{"window":null}`)
	n.eventually("office", "a", "done")
}

func waitsForBatch(t *testing.T, n *running) {
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/many", fmt.Sprintf(`{"callback":{"url":%q},"batch":{"max":9,"wait":"1m"}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/many/timers", `{"id":"a","delay":"0s"}`)
	n.waitsOn("many", "a", "batch", "many")
	n.counted("many", "batch", 1)
	n.must(200, "PATCH", "/v1/topics/many", `{"batch":{"wait":"0s"}}`)
	n.eventually("many", "a", "done")
}

// An array of collect waits for the one before it, which somebody holds.
func waitsForOrder(t *testing.T, n *running) {
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/mails", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/mails/timers", `{"id":"a","delay":"1h","payload":1,"merge":"collect","collect_max":2}`)
	n.must(200, "POST", "/v1/topics/mails/timers/a/pause", "")
	for range 3 {
		n.must(200, "POST", "/v1/topics/mails/timers", `{"id":"a","delay":"1h","payload":1,"merge":"collect","collect_max":2}`)
	}
	until(t, "the second array waits for the first", func() bool {
		return strings.Contains(n.must(200, "GET", "/v1/topics/mails/timers", ""), `"waits_for":"order"`)
	})
	until(t, "both are counted", func() bool {
		return strings.Contains(n.must(200, "GET", "/v1/topics/mails", ""), `"waiting":{"paused":1,"order":1}`)
	})
	countedCauses.Store("order", true)
	n.must(200, "POST", "/v1/topics/mails/timers/a/resume", "")
	n.eventually("mails", "a", "done")
}

func waitsForWindowOfConsumer(t *testing.T, n *running) {
	n.must(201, "PUT", "/v1/topics/desk", `{"delivery":"pull","window":`+shutToday()+`}`)
	n.must(201, "POST", "/v1/topics/desk/timers", `{"id":"a","delay":"0s"}`)
	n.waits("desk", "a", "window")
	if got := n.must(200, "POST", "/v1/topics/desk/pull", `{}`); strings.Contains(got, `"id"`) {
		t.Errorf("a window that is shut hands out %s", got)
	}
	n.must(200, "PATCH", "/v1/topics/desk", `{"window":null}`)
	until(t, "it is handed out", func() bool {
		return strings.Contains(n.must(200, "POST", "/v1/topics/desk/pull", `{}`), `"id":"a"`)
	})
}

// A refusal wins over the backoff: to wait does not help.
func waitsForRefusedAddress(t *testing.T, n *running) {
	n.must(201, "PUT", "/v1/topics/guarded", `{"retry":{"min_backoff":"1h"}}`)
	n.must(201, "POST", "/v1/topics/guarded/timers", fmt.Sprintf(`{"id":"a","delay":"0s","callback":{"url":"http://localhost:%s/"}}`, n.base[strings.LastIndexByte(n.base, ':')+1:]))
	if on := n.waits("guarded", "a", "refused_address"); !strings.HasPrefix(on, "refused: ") {
		t.Errorf("it waits on %q", on)
	}
	n.counted("guarded", "refused_address", 1)
	n.must(200, "DELETE", "/v1/topics/guarded/timers/a", "")
	until(t, "nothing is counted", func() bool { return !strings.Contains(n.must(200, "GET", "/v1/topics/guarded", ""), `"waiting"`) })
}

func waitsForResume(t *testing.T, n *running) {
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/hold", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/hold/timers", `{"id":"a","delay":"1h"}`)
	n.must(200, "POST", "/v1/topics/hold/timers/a/pause", "")
	n.must(200, "PATCH", "/v1/topics/hold/timers/a", `{"delay":"0s"}`)
	n.must(200, "POST", "/v1/topics/hold/timers/a/fire", "")
	n.waitsOn("hold", "a", "paused", "")
	n.counted("hold", "paused", 1)
	until(t, "the metrics show it", func() bool {
		return strings.Contains(n.must(200, "GET", "/metrics", ""), `carillon_waiting{reason="paused"} 1`)
	})
	n.must(200, "POST", "/v1/topics/hold/timers/a/resume", "")
	n.eventually("hold", "a", "done")
}

func waitsForPausedTopic(t *testing.T, n *running) {
	n.must(201, "PUT", "/v1/topics/held", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	n.must(200, "POST", "/v1/topics/held/pause", "")
	n.must(201, "POST", "/v1/topics/held/timers", `{"id":"a","delay":"0s"}`)
	n.must(201, "POST", "/v1/topics/held/timers", `{"id":"later","delay":"1h"}`)
	n.waitsOn("held", "a", "topic_paused", "held")
	if v := n.timer("held", "later"); v["waits_for"] != nil {
		t.Errorf("one whose time has not come waits for %v", v["waits_for"])
	}
	var list struct {
		Timers []struct {
			ID string
			W  string `json:"waits_for"`
		}
	}
	testkit.Must(t, json.Unmarshal([]byte(n.must(200, "GET", "/v1/topics/held/timers", "")), &list))
	if got := fmt.Sprint(list.Timers); got != "[{a topic_paused} {later }]" {
		t.Errorf("the list shows %s", got)
	}
	n.must(200, "POST", "/v1/topics/held/timers/a/fire", "") // the gate stays
	n.waits("held", "a", "topic_paused")
}

func waitsForBreaker(t *testing.T, n *running) {
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(500) })
	n.must(201, "PUT", "/v1/topics/sick", fmt.Sprintf(`{"callback":{"url":%q},"breaker":{"failures":1,"open":"10m"}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/sick/timers", `{"id":"first","delay":"0s","retry":{"min_backoff":"1h"}}`)
	n.waits("sick", "first", "backoff")
	n.counted("sick", "backoff", 1)
	n.must(201, "POST", "/v1/topics/sick/timers", `{"id":"next","delay":"0s"}`)
	until(t, "both are counted", func() bool {
		return strings.Contains(n.must(200, "GET", "/v1/topics/sick", ""), `"waiting":{"backoff":1,"breaker":1}`)
	})
	countedCauses.Store("breaker", true)
	if on := n.waits("sick", "next", "breaker"); !strings.HasPrefix(on, rec.URL+" (open, next probe 2") {
		t.Errorf("it waits on %q", on)
	}
}

func waitsForKey(t *testing.T, n *running) {
	url, release := hanging(t)
	n.must(201, "PUT", "/v1/topics/line", fmt.Sprintf(`{"serial":true,"callback":{"url":%q,"timeout":"5m"}}`, url))
	n.must(201, "POST", "/v1/topics/line/timers", `{"id":"{k}1","delay":"0s"}`)
	n.eventually("line", "{k}1", "leased")
	n.must(201, "POST", "/v1/topics/line/timers", `{"id":"{k}2","delay":"0s"}`)
	n.waitsOn("line", "{k}2", "key", "{k}1")
	n.counted("line", "key", 1)
	release()
	n.eventually("line", "{k}2", "done")
}

// The holder of the key may be a consumer, whose lease the line does not name.
func waitsForKeyOfConsumer(t *testing.T, n *running) {
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull","serial":true,"lease":"10m"}`)
	n.must(201, "POST", "/v1/topics/jobs/timers", `{"id":"{k}1","delay":"0s"}`)
	n.waits("jobs", "{k}1", "consumer")
	n.counted("jobs", "consumer", 1)
	n.must(201, "POST", "/v1/topics/jobs/timers", `{"id":"{k}2","delay":"0s"}`)
	if got := n.pull("jobs", `{"wait":"60s"}`); len(got.Timers) != 1 || got.Timers[0].ID != "{k}1" {
		t.Fatalf("pulled %v", got)
	}
	n.waitsOn("jobs", "{k}2", "key", "{k}1")
}

func waitsForKeyRate(t *testing.T, n *running) {
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/calm", fmt.Sprintf(`{"per_key":{"rate":{"per_second":0.001}},"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/calm/timers", `{"id":"{k}1","delay":"0s"}`)
	n.eventually("calm", "{k}1", "done")
	n.must(201, "POST", "/v1/topics/calm/timers", `{"id":"{k}2","delay":"0s"}`)
	n.must(201, "POST", "/v1/topics/calm/timers", `{"id":"{l}1","delay":"0s"}`)
	n.eventually("calm", "{l}1", "done")
	n.waits("calm", "{k}2", "key_rate")
	n.counted("calm", "key_rate", 1)
}

func waitsForFullKey(t *testing.T, n *running) {
	url, release := hanging(t)
	n.must(201, "PUT", "/v1/topics/pairs", fmt.Sprintf(`{"per_key":{"concurrency":2},"callback":{"url":%q,"timeout":"5m"}}`, url))
	for _, id := range []string{"{k}1", "{k}2", "{l}1"} {
		n.must(201, "POST", "/v1/topics/pairs/timers", fmt.Sprintf(`{"id":%q,"delay":"0s","weight":3}`, id))
		n.eventually("pairs", id, "leased")
	}
	n.must(201, "POST", "/v1/topics/pairs/timers", `{"id":"{k}3","delay":"0s"}`)
	n.waitsOn("pairs", "{k}3", "key", "{k}2")
	n.counted("pairs", "key", 1)
	release()
	n.eventually("pairs", "{k}3", "done")
}

func waitsForConcurrency(t *testing.T, n *running) {
	url, _ := hanging(t)
	n.must(201, "PUT", "/v1/topics/few", fmt.Sprintf(`{"concurrency":1,"callback":{"url":%q,"timeout":"5m"}}`, url))
	n.must(201, "POST", "/v1/topics/few/timers", `{"id":"a","delay":"0s"}`)
	n.eventually("few", "a", "leased")
	n.must(201, "POST", "/v1/topics/few/timers", `{"id":"b","delay":"0s"}`)
	n.counted("few", "concurrency", 1)
	n.waitsOn("few", "b", "concurrency", "few")
}

func waitsForRate(t *testing.T, n *running) {
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/slow", fmt.Sprintf(`{"rate":{"per_second":0.001,"burst":1},"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/slow/timers", `{"id":"a","delay":"0s"}`)
	n.eventually("slow", "a", "done")
	n.must(201, "POST", "/v1/topics/slow/timers", `{"id":"b","delay":"0s"}`)
	n.counted("slow", "rate", 1)
	n.waits("slow", "b", "rate")
}

func waitsForSpread(t *testing.T, n *running) {
	n.must(201, "PUT", "/v1/topics/herd", `{"spread":"1h","callback":{"url":"http://127.0.0.1:1/"}}`)
	n.must(201, "POST", "/v1/topics/herd/timers", `{"id":"a","delay":"0s"}`)
	n.waits("herd", "a", "spread")
	n.counted("herd", "spread", 1)
}

func waitsForSlots(t *testing.T, n *running) {
	url, _ := hanging(t)
	n.must(201, "PUT", "/v1/topics/full", fmt.Sprintf(`{"destination_concurrency":1,"callback":{"url":"%s/hook","timeout":"5m"}}`, url))
	n.must(201, "POST", "/v1/topics/full/timers", `{"id":"a","delay":"0s"}`)
	n.eventually("full", "a", "leased")
	n.must(201, "POST", "/v1/topics/full/timers", `{"id":"b","delay":"0s"}`)
	n.counted("full", "slots", 1)
	n.waitsOn("full", "b", "slots", url)
}

// TestWaitsOfAShardWithoutLeader: what is due in a shard that has no leader is in the metrics of a
// node that has a replica of it. A read does not guess.
func TestWaitsOfAShardWithoutLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/held", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	for i := range 3 {
		nodes[0].must(201, "POST", "/v1/topics/held/timers", fmt.Sprintf(`{"id":"t%d","delay":"12s"}`, i))
	}
	nodes[0].must(201, "POST", "/v1/topics/held/timers", `{"id":"later","delay":"1h"}`)
	for _, n := range nodes[1:] {
		testkit.Must(t, n.stop())
	}
	until(t, "three wait for a leader", func() bool {
		return strings.Contains(nodes[0].must(200, "GET", "/metrics", ""), "carillon_waiting{reason=\"leader\"} 3\n")
	})
	if got := nodes[0].must(503, "GET", "/v1/topics/held", ""); !strings.Contains(got, `"code":"no_leader"`) {
		t.Error(got)
	}
}

// TestWaitsThroughAnyNode: the leader of a timer's shard tells why it waits, whichever node is
// asked.
func TestWaitsThroughAnyNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/held", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	nodes[0].must(200, "POST", "/v1/topics/held/pause", "")
	for i := range 12 {
		nodes[i%3].must(201, "POST", "/v1/topics/held/timers", fmt.Sprintf(`{"id":"t%d","delay":"0s"}`, i))
	}
	for _, n := range nodes {
		for i := range 12 {
			n.waitsOn("held", fmt.Sprint("t", i), "topic_paused", "held")
		}
		until(t, "the list shows for all of them why they wait", func() bool {
			return strings.Count(n.must(200, "GET", "/v1/topics/held/timers", ""), `"waits_for":"topic_paused"`) == 12
		})
	}
}

type attemptLog struct {
	Log []struct {
		Attempt int
		Started int64  `json:"started_ms"`
		Ended   int64  `json:"ended_ms"`
		Late    *int64 `json:"lateness_ms"`
		Status  int
		Error   string
	} `json:"attempt_log"`
}

func (r *running) attempts(topic, id string) (a attemptLog) {
	r.t.Helper()
	testkit.Must(r.t, json.Unmarshal([]byte(r.must(200, "GET", "/v1/topics/"+topic+"/timers/"+id, "")), &a))
	return a
}

// TestAttemptLogOfOneTimer: a read of a timer has its attempts, while it goes on and when it has
// ended.
func TestAttemptLogOfOneTimer(t *testing.T) {
	n := start(t, t.TempDir())
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) { w.WriteHeader([]int{500, 503, 410}[a.attempt-1]) })
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"1ms","max_backoff":"1ms"}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"a","delay":"0s"}`)
	n.eventually("orders", "a", "dead")
	got := n.attempts("orders", "a")
	if len(got.Log) != 3 || got.Log[0].Late == nil || got.Log[1].Late != nil {
		t.Fatalf("%+v", got)
	}
	for i, want := range []int{500, 503, 410} {
		if a := got.Log[i]; a.Attempt != i+1 || a.Status != want || a.Started == 0 || a.Ended < a.Started {
			t.Errorf("%+v", a)
		}
	}
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"b","delay":"0s","retry":{"min_backoff":"1h","max_backoff":"1h"}}`)
	n.waits("orders", "b", "backoff")
	if got := n.attempts("orders", "b"); len(got.Log) != 1 || got.Log[0].Status != 500 || got.Log[0].Ended == 0 {
		t.Errorf("between attempts: %+v", got)
	}
}
