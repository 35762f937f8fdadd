package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestOrderedTopic: all in one shard, one at a time, in order; and the policy changes only while
// there is nothing.
func TestOrderedTopic(t *testing.T) {
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
	policy := fmt.Sprintf(`{"ordered":true,"callback":{"url":%q}}`, rec.URL)
	n.must(201, "PUT", "/v1/topics/line", policy)
	var ops []string
	for i := range 20 {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"{k%d}%d","delay":"0s"}`, i%5, i))
	}
	n.must(200, "POST", "/v1/topics/line/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)
	for i, a := range rec.await(t, 20) {
		if !strings.HasSuffix(a.timer, fmt.Sprintf("}%d", i)) {
			t.Errorf("call %d is of %s", i, a.timer)
		}
	}
	if most != 1 {
		t.Errorf("%d calls at once", most)
	}
	shards := map[string]bool{}
	for range 8 {
		var v struct{ ID, UID string }
		if err := json.Unmarshal([]byte(n.must(201, "POST", "/v1/topics/line/timers", `{"delay":"1h"}`)), &v); err != nil {
			t.Fatal(err)
		}
		shards[v.UID[:4]] = true
		if v.ID[1:5] != v.UID[:4] {
			t.Errorf("the id %s is of another shard than %s", v.ID, v.UID)
		}
		n.must(200, "GET", "/v1/topics/line/timers/"+v.ID, "")
	}
	if len(shards) != 1 {
		t.Errorf("in shards %v", shards)
	}
	fence := rec.all[19].fence

	other := strings.Replace(policy, "true", "false", 1)
	if got := n.must(409, "PUT", "/v1/topics/line", other); !strings.Contains(got, "not_empty") {
		t.Error(got)
	}
	// Anything else may change.
	n.must(200, "PUT", "/v1/topics/line", strings.Replace(policy, "{", `{"spread":"0s",`, 1))
	// It is open again.
	n.must(201, "POST", "/v1/topics/line/timers", `{"id":"more","delay":"1h"}`)
	var list struct{ Timers []struct{ ID string } }
	if err := json.Unmarshal([]byte(n.must(200, "GET", "/v1/topics/line/timers", "")), &list); err != nil || len(list.Timers) != 9 {
		t.Fatalf("%d timers, %v", len(list.Timers), err)
	}
	for _, v := range list.Timers {
		n.must(200, "DELETE", "/v1/topics/line/timers/"+v.ID, "")
	}
	n.must(200, "POST", "/v1/topics/line/pause", "")
	if got := n.must(200, "PUT", "/v1/topics/line", other); !strings.Contains(got, `"ordered":false`) || !strings.Contains(got, `"paused":true`) {
		t.Error(got)
	}
	n.must(200, "POST", "/v1/topics/line/resume", "")
	n.must(201, "POST", "/v1/topics/line/timers", `{"id":"{k1}1","delay":"0s"}`)
	if a := rec.await(t, 21)[20]; a.timer != "{k1}1" || a.fence <= fence {
		t.Errorf("%s has fence %d after %d", a.timer, a.fence, fence)
	}
	n.must(200, "PUT", "/v1/topics/line", policy)
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
