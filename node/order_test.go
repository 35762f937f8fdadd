package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSerialTopicWithOneKey: all in one shard, one at a time, in order, and found by their plain ids.
func TestSerialTopicWithOneKey(t *testing.T) {
	n := start(t, t.TempDir())
	running, most := make(chan int, 100), 0
	running <- 0
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) {
		now := <-running + 1
		most = max(most, now)
		running <- now
		w.WriteHeader(200)
		running <- <-running - 1
	})
	n.must(201, "PUT", "/v1/topics/line", fmt.Sprintf(`{"serial":true,"key":"all","callback":{"url":%q}}`, rec.URL))
	var ops []string
	for i := range 20 {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%d","delay":"0s"}`, i))
	}
	n.must(200, "POST", "/v1/topics/line/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	for i, a := range rec.await(t, 20) {
		if a.timer != fmt.Sprintf("{all}%d", i) {
			t.Errorf("call %d is of %s", i, a.timer)
		}
	}
	if most != 1 {
		t.Errorf("%d calls at once", most)
	}
	until(t, "the history has one by its plain id", func() bool {
		return strings.Contains(n.must(200, "GET", "/v1/topics/line/history?id=3", ""), `"id":"{all}3"`)
	})
	shards := map[string]bool{}
	for range 8 {
		var v struct{ ID, UID string }
		if err := json.Unmarshal([]byte(n.must(201, "POST", "/v1/topics/line/timers", `{"delay":"1h"}`)), &v); err != nil {
			t.Fatal(err)
		}
		shards[v.UID[:4]] = true
		plain, keyed := strings.CutPrefix(v.ID, "{all}")
		if !keyed {
			t.Errorf("the id %s has no key", v.ID)
		}
		n.must(200, "GET", "/v1/topics/line/timers/"+plain, "")
		n.must(200, "DELETE", "/v1/topics/line/timers/"+plain, "")
	}
	if len(shards) != 1 {
		t.Errorf("in shards %v", shards)
	}
}

// TestForcedDeletionInSlices: more timers than one command drops.
func TestForcedDeletionInSlices(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	n := start(t, t.TempDir())
	const timers = 40_000
	for from := 0; from < timers; from += 1000 {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, ",{\"op\":\"add\",\"id\":\"%d\",\"delay\":\"1h\",\"callback\":{\"url\":\"http://127.0.0.1:9/\"}}", from+i)
		}
		n.must(200, "POST", "/v1/topics/big/batch?brief=true", `{"ops":[`+b.String()[1:]+`]}`)
	}
	n.must(409, "DELETE", "/v1/topics/big", "")
	if got := n.must(200, "DELETE", "/v1/topics/big?force=true", ""); got != fmt.Sprintf(`{"cancelled":%d}`, timers) {
		t.Error(got)
	}
	n.must(404, "GET", "/v1/topics/big", "")
}
