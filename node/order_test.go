package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestSerialTopicWithOneKey: all in one shard, one at a time, in order, and found by their plain
// ids.
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

// TestDeadLettersByPlainIDs: in a topic with a key, a redrive and a purge find dead letters by the
// plain ids that reads and changes know them by, those of before the topic had a key too.
func TestDeadLettersByPlainIDs(t *testing.T) {
	n := start(t, t.TempDir())
	rec := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(410) })
	n.must(201, "PUT", "/v1/topics/line", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/line/timers", `{"id":"old","delay":"0s"}`)
	n.eventually("line", "old", "dead")
	n.must(200, "PATCH", "/v1/topics/line", `{"key":"all"}`)
	for _, id := range []string{"a", "b"} {
		n.must(201, "POST", "/v1/topics/line/timers", `{"id":"`+id+`","delay":"0s"}`)
		n.eventually("line", id, "dead")
	}
	const redrive, purge, dry = "/v1/topics/line/dead/redrive", "/v1/topics/line/dead/purge", "?dry_run=true"
	for _, c := range []struct{ path, ids, want string }{
		{redrive + dry, `"a","old","{all}b","none"`, `{"matched":4,"changed":3,"skipped":1,"dry_run":true,`},
		{purge + dry, `"b","old","none"`, `{"matched":3,"changed":2,"skipped":1,"dry_run":true,`},
		{redrive, `"a","old","none"`, `{"matched":3,"changed":2,"skipped":1,"skips":[{"id":"none",`},
	} {
		if got := n.must(200, "POST", c.path, `{"ids":[`+c.ids+`]}`); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s of %s: %s", c.path, c.ids, got)
		}
	}
	for _, id := range []string{"a", "old"} {
		n.eventually("line", id, "dead")
	}
	if got := n.must(200, "POST", purge, `{"ids":["a","{all}b","old"]}`); got != `{"matched":3,"changed":3,"skipped":0}` {
		t.Error(got)
	}
}

// TestForcedChangeOfKey: a forced change of a topic's key tells how many pending timers keep their
// ids. They are found by these whole ids, changed, cancelled and called; none is lost.
func TestForcedChangeOfKey(t *testing.T) {
	n := start(t, t.TempDir())
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/line", fmt.Sprintf(`{"key":"all","callback":{"url":%q}}`, rec.URL))
	for _, id := range []string{"a", "b", "c"} {
		n.must(201, "POST", "/v1/topics/line/timers", `{"id":"`+id+`","delay":"1h"}`)
	}
	if got := n.must(409, "PATCH", "/v1/topics/line", `{"key":"new"}`); !strings.Contains(got, `"code":"in_use"`) || !strings.Contains(got, "3 pending timers would keep ids") {
		t.Error(got)
	}
	if got := n.must(200, "PATCH", "/v1/topics/line?force=true", `{"history":"9h"}`); strings.Contains(got, "former_ids") {
		t.Errorf("the key is as it was: %s", got)
	}
	if got := n.must(200, "PATCH", "/v1/topics/line?force=true", `{"key":"new"}`); !strings.Contains(got, `"former_ids":3`) {
		t.Error(got)
	}
	n.must(404, "GET", "/v1/topics/line/timers/a", "")
	for _, id := range []string{"a", "b", "c"} {
		n.must(200, "GET", "/v1/topics/line/timers/%7Ball%7D"+id, "")
	}
	if got := n.must(200, "GET", "/v1/topics/line/timers?id_prefix=%7Ball%7D", ""); strings.Count(got, `"key":"all"`) != 3 {
		t.Errorf("the list shows %s", got)
	}
	if got := n.must(201, "POST", "/v1/topics/line/timers", `{"id":"a","delay":"1h"}`); !strings.Contains(got, `"id":"{new}a"`) {
		t.Error(got)
	}
	n.must(200, "DELETE", "/v1/topics/line/timers/%7Ball%7Db", "")
	n.must(200, "PATCH", "/v1/topics/line/timers/%7Ball%7Dc", `{"delay":"0s"}`)
	n.must(200, "PUT", "/v1/topics/line?force=true", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(200, "POST", "/v1/topics/line/timers/%7Ball%7Da/fire", "")
	n.must(200, "POST", "/v1/topics/line/timers/%7Bnew%7Da/fire", "")
	called := map[string]bool{}
	for _, c := range rec.await(t, 3) {
		called[c.timer] = true
	}
	if !called["{all}a"] || !called["{all}c"] || !called["{new}a"] {
		t.Errorf("called were %v", called)
	}
}

// TestChangeOfKeyCountsFormerIDs: a change of a topic's key counts the pending timers that their
// plain ids lead to before it and not after it, and no others: neither those of another key, nor
// those that have the new key in front already.
func TestChangeOfKeyCountsFormerIDs(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/line", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	add := func(id string) {
		t.Helper()
		n.must(201, "POST", "/v1/topics/line/timers", `{"id":"`+id+`","delay":"1h"}`)
	}
	refused := func(key, words string) {
		t.Helper()
		if got := n.must(409, "PATCH", "/v1/topics/line", `{"key":`+key+`}`); !strings.Contains(got, `"code":"in_use"`) || !strings.Contains(got, words) {
			t.Errorf("to the key %s: %s", key, got)
		}
	}
	allowed := func(query, key, former string) {
		t.Helper()
		if got := n.must(200, "PATCH", "/v1/topics/line"+query, `{"key":`+key+`}`); former == "" && strings.Contains(got, "former_ids") || !strings.Contains(got, former) {
			t.Errorf("to the key %s: %s, want %q", key, got, former)
		}
	}
	for _, id := range []string{"{all}a", "{all}b", "{other}c"} {
		add(id)
	}
	n.must(201, "POST", "/v1/topics/line/timers", `{"key":"all","delay":"1h"}`)
	allowed("", `"all"`, "")
	refused("null", "3 pending timers would keep ids")
	refused(`"other"`, "3 pending timers would keep ids")
	n.must(200, "DELETE", "/v1/topics/line/timers/b", "")
	allowed("?force=true", `"other"`, `"former_ids":2`)
	add("d") // {other}d, beside {other}c
	refused("null", "2 pending timers would keep ids")
	allowed("?force=true", "null", `"former_ids":2`)
	add("e")
	refused(`"other"`, "1 pending timer would keep ids")
	allowed("?force=true", `"other"`, `"former_ids":1`)
	refused(`"all"`, "2 pending timers would keep ids") // e is found by its plain id as before
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
