package api

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"
)

// pages reads a listing to its end and gives the ids in order.
func (h *harness) pages(target string, perPage int) (ids []string) {
	h.t.Helper()
	sep := "?"
	if strings.Contains(target, "?") {
		sep = "&"
	}
	cursor := ""
	for range 1000 {
		next := fmt.Sprintf("%s%slimit=%d", target, sep, perPage)
		if cursor != "" {
			next += "&cursor=" + cursor
		}
		r := h.do("GET", next, "").want(200).json()
		page := r["timers"].([]any)
		for _, timer := range page {
			ids = append(ids, timer.(map[string]any)["id"].(string))
		}
		cursor, _ = r["next_cursor"].(string)
		if cursor == "" {
			return ids
		}
		if len(page) == 0 {
			h.t.Fatal("an empty page has a next one")
		}
	}
	h.t.Fatal("no end")
	return nil
}

func TestListOrderAndFilters(t *testing.T) {
	h := newHarness(t)
	// Due times fall as ids rise, in threes that are due together.
	var ops, want []string
	for i := range 60 {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%c-%02d","at_ms":%d,"labels":["n%d","all"],"payload":%d,%s}`, 'a'+i%2, i, 1780400000000-i/3*1000, i%5, i, cb))
	}
	for block := 19; block >= 0; block-- {
		group := []string{}
		for i := block * 3; i < block*3+3; i++ {
			group = append(group, fmt.Sprintf("%c-%02d", 'a'+i%2, i))
		}
		want = append(want, slices.Sorted(slices.Values(group))...)
	}
	h.do("POST", batches, `{"ops":[`+strings.Join(ops, ",")+`]}`).want(200)
	for _, perPage := range []int{1, 7, 60, 61, 1000} {
		if got := h.pages(timersPath, perPage); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("by %d:\n%v\n%v", perPage, got, want)
		}
	}
	count := func(query string, n int) {
		t.Helper()
		if got := h.pages(timersPath+"?"+query, 7); len(got) != n {
			t.Fatalf("%s: %d %v, want %d", query, len(got), got, n)
		}
	}
	count("label=n0", 12)
	count("label=n0&label=all", 12)
	count("label=n0&label=n1", 0)
	count("id_prefix=a-", 30)
	count("id_prefix=%7Bk", 0)
	count("due_from=1780399999000&due_to=1780400000000", 3)
	count("due_from=2026-06-02T11:33:20Z", 3)
	count("due_from="+url.QueryEscape("2026-06-02T13:33:20+02:00"), 3)
	count("due_to=0", 0)
	h.engine.set("orders", "a-00", func(t *timer.Timer) { t.State = timer.Done; t.EndedMs = noonMs })
	h.engine.set("orders", "b-01", func(t *timer.Timer) { t.State = timer.Leased })
	count("payload=true", 59)
	count("state=done", 1)
	count("state=scheduled,leased,done,dead,cancelled", 60)
	count("state=leased,leased", 1)
	r := h.do("GET", timersPath+"?limit=1&payload=false", "").want(200)
	r.has("timers.0.payload", "", "timers.0.content_type", `"application/json"`)

	// A cursor goes with its own query and topic only; the size of the page may change.
	next := strings.Trim(pick(h.do("GET", timersPath+"?limit=2", "").json(), "next_cursor"), `"`)
	h.do("GET", timersPath+"?limit=3&payload=false&cursor="+next, "").want(200)
	h.do("PUT", "/v1/topics/other", `{}`).want(201)
	for _, target := range []string{timersPath + "?label=all&cursor=" + next, timersPath + "?state=done&cursor=" + next, "/v1/topics/other/timers?cursor=" + next, orders + "/dead?cursor=" + next, "/v1/topics?cursor=" + next,
		timersPath + "?cursor=" + next[1:], timersPath + "?cursor=" + next[:len(next)-1], timersPath + "?cursor=" + next + "A", timersPath + "?cursor=" + next + "=="} {
		h.do("GET", target, "").problem(400, web.BadRequest)
	}
	for i := range next {
		forged := []byte(next)
		if forged[i] = 'A'; next[i] == 'A' {
			forged[i] = 'B'
		}
		h.do("GET", timersPath+"?cursor="+string(forged), "").problem(400, web.BadRequest)
	}
}

// A page ends early rather than grow without bound, and the next goes on from there.
func TestListBoundsItsAnswer(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.Limits.ResponseBytes = 10_000 })
	for i := range 20 {
		h.do("POST", timersPath, fmt.Sprintf(`{"id":"t%02d","at_ms":1780400000000,"payload":"%s",%s}`, i, strings.Repeat("x", 3000), cb)).want(201)
	}
	r := h.do("GET", timersPath+"?limit=1000", "").want(200)
	if n := len(r.json()["timers"].([]any)); n < 1 || n > 5 || pick(r.json(), "next_cursor") == "" {
		t.Fatal(n)
	}
	if got := h.pages(timersPath, 1000); len(got) != 20 {
		t.Fatal(got)
	}
}

func TestDeadLetters(t *testing.T) {
	h := newHarness(t)
	kill := func(id string, reason timer.Reason, endedMs int64) {
		h.do("PUT", timersPath+"/"+id, `{"delay":"1h","labels":["l-`+id[:1]+`"],`+cb+`}`).want(201)
		h.engine.set("orders", id, func(t *timer.Timer) { t.State, t.Reason, t.EndedMs, t.Attempts = timer.Dead, reason, endedMs, 16 })
	}
	for i := range 9 {
		kill(fmt.Sprintf("a%d", i), timer.MaxAttempts, noonMs-int64(i))
		kill(fmt.Sprintf("b%d", i), timer.Stopped, noonMs-100-int64(i))
	}
	h.do("POST", timersPath, `{"id":"alive","delay":"1h",`+cb+`}`).want(201)
	const dead = orders + "/dead"
	if got := h.pages(dead, 4); len(got) != 18 || got[0] != "b8" || got[17] != "a0" {
		t.Fatal(got)
	}
	for query, n := range map[string]int{"reason=stopped": 9, "reason=expired": 0, "label=l-a": 9, fmt.Sprintf("from=%d", noonMs-1): 2, fmt.Sprintf("to=%d", noonMs-100): 8} {
		if got := h.pages(dead+"?"+query, 4); len(got) != n {
			t.Fatalf("%s: %v", query, got)
		}
	}
	h.do("GET", dead+"?limit=1", "").has("timers.0.reason", `"stopped"`, "timers.0.state", `"dead"`)

	redrive, purge := dead+"/redrive", dead+"/purge"
	swept := func(target, body, matched, changed, skipped string) {
		t.Helper()
		h.do("POST", target, body).want(200).has("matched", matched, "changed", changed, "skipped", skipped)
	}
	swept(redrive, `{"ids":["a0","alive","gone"],"delay":"1m","callback":{"url":"http://new.example/","timeout":"1s"}}`, "3", "1", "2")
	h.do("GET", timersPath+"/a0", "").has("state", `"scheduled"`, "attempts", "0", "next_attempt_ms", fmt.Sprint(noonMs+60_000), "callback.url", `"http://new.example/"`, "callback.timeout", `"1s"`)
	h.do("POST", redrive, `{"ids":["a0"]}`).want(200).has("skips.0.id", `"a0"`, "skips.0.code", `"not_found"`)
	uid := func(id string) string { return pick(h.do("GET", timersPath+"/"+id, "").want(200).json(), "uid") }
	h.do("POST", redrive+"?dry_run=true", `{"uids":[`+uid("a1")+`,`+uid("a0")+`]}`).want(200).has("matched", "2", "changed", "1", "skipped", "1", "skips.0.uid", uid("a0"))
	h.do("POST", purge, `{"uids":[`+uid("a1")+`,`+uid("alive")+`,"0001-77-00000000"]}`).want(200).has("matched", "3", "changed", "1", "skipped", "2", "skips.1.uid", `"0001-77-00000000"`, "skips.1.code", `"not_found"`)
	swept(redrive, `{"filter":{"reason":"stopped","label":["l-b"],"from":"2026-06-01T00:00:00Z"}}`, "9", "9", "0")
	swept(redrive, `{"filter":{"reason":"stopped"},"all":true}`, "0", "0", "0")
	swept(purge, `{"filter":{"label":"l-a","to":`+fmt.Sprint(noonMs-6)+`}}`, "2", "2", "0")
	swept(purge, `{"ids":[]}`, "0", "0", "0")
	swept(purge, `{"all":true}`, "5", "5", "0")
	h.do("GET", timersPath+"/a5", "").problem(404, web.UnknownTimer)
	kill("twice", timer.Stopped, noonMs)
	kill("again", timer.Stopped, noonMs)
	twice := uid("twice")
	swept(redrive, `{"uids":[`+twice+`,`+twice+`]}`, "1", "1", "0")
	h.do("POST", redrive, `{"uids":[`+twice+`,`+twice+`,"0001-77-00000000","0001-77-00000000"]}`).want(200).has("matched", "2", "changed", "0", "skipped", "2",
		"skips.0.uid", twice, "skips.1.uid", `"0001-77-00000000"`, "skips.1.code", `"not_found"`)
	swept(purge, `{"ids":["again","again"]}`, "1", "1", "0")

	var cases []refused
	for body, code := range map[string]string{
		`{}`: web.BadRequest, `{"all":false}`: web.BadRequest, `{"filter":{}}`: web.BadRequest, `{"ids":["a"],"all":true}`: web.BadRequest, `{"ids":["a"],"filter":{"reason":"stopped"}}`: web.BadRequest, `{"ids":"a"}`: web.BadRequest,
		`{"ids":["a/b"]}`: web.BadName, `{"uids":["a"]}`: web.BadName, `{"uids":["0001-1-0000000G"]}`: web.BadName, `{"uids":["1-1-00000001"]}`: web.BadName, `{"ids":["a"],"uids":[]}`: web.BadRequest, `{"uids":[],"all":true}`: web.BadRequest, `{"ids":[1]}`: web.BadRequest, `{"all":1}`: web.BadRequest, `{"filter":{"reason":"x"}}`: web.BadRequest, `{"filter":{"state":"dead"}}`: web.UnknownField, `{"filter":{"label":1}}`: web.BadRequest, `{"filter":{"label":[""]}}`: web.BadRequest,
		`{"filter":{"from":"x"}}`: web.BadTime, `{"filter":{"from":-1}}`: web.BadTime, `{"filter":{"to":1.5}}`: web.BadTime, `{"filter":{"reason":"stopped","reason":"stopped"}}`: web.BadJSON, `{"all":true,"all":true}`: web.BadJSON, `{"all":true} x`: web.BadJSON, `{"All":true}`: web.UnknownField,
		`{"filter":null}`: web.BadRequest, `{"ids":null}`: web.BadRequest, ``: web.BadJSON,
	} {
		cases = append(cases, refused{method: "POST", target: purge, body: body, status: 400, code: code}, refused{method: "POST", target: redrive, body: body, status: 400, code: code})
	}
	ids := `{"ids":[` + strings.Repeat(`"a",`, 1000) + `"a"]}`
	cases = append(cases, refused{method: "POST", target: purge, body: ids, status: 413, code: web.TooLarge},
		refused{method: "POST", target: purge, body: `{"all":true,"delay":"1s"}`, status: 400, code: web.UnknownField},
		refused{method: "POST", target: redrive, body: `{"all":true,"delay":"-1s"}`, status: 400, code: web.BadTime}, refused{method: "POST", target: redrive, body: `{"all":true,"delay":1}`, status: 400, code: web.BadTime},
		refused{method: "POST", target: redrive, body: `{"all":true,"delay":"999999h"}`, status: 422, code: "beyond_horizon"},
		refused{method: "POST", target: redrive, body: `{"all":true,"delay":"999999w"}`, status: 422, code: "beyond_horizon"},
		refused{method: "POST", target: redrive, body: `{"all":true,"callback":{"url":"x"}}`, status: 400, code: web.BadURL}, refused{method: "POST", target: redrive, body: `{"all":true,"callback":null}`, status: 400, code: web.BadRequest},
		refused{method: "POST", target: redrive, body: `{"all":true,"callback":{"headers":{"X-Key":"REDACTED"}}}`, status: 400, code: web.BadHeader})
	checkRefused(t, h, cases)
}

// More dead letters than a bulk change holds at a time.
func TestBulkOfManyDeadLetters(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"}}`).want(201)
	for block := range 3 {
		var ops []string
		for i := range 600 {
			ops = append(ops, fmt.Sprintf(`{"op":"add","id":"d-%d-%d","delay":"1h"}`, block, i))
		}
		h.do("POST", batches+"?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`).want(200)
	}
	h.engine.mu.Lock()
	for _, x := range h.engine.timers {
		x.State, x.Reason, x.EndedMs = timer.Dead, timer.Expired, noonMs
	}
	h.engine.mu.Unlock()
	h.do("POST", orders+"/dead/redrive", `{"all":true}`).want(200).has("changed", "1800", "skipped", "0")
	h.do("GET", orders, "").has("counts.dead", "0", "counts.scheduled", "1800")
}

// TestListOfAllTopics: one listing has the timers of all topics that the token reaches, by due
// time. A page may end between timers of two topics that have one id, one time and one number.
func TestListOfAllTopics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `root read,add,admin "*"`, `shop read "orders.*"`, `none read "nothing.*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	const root, shop = "Authorization: Bearer root", "Authorization: Bearer shop"
	names := []string{"orders.b", "mail", "orders.a"}
	for _, name := range names {
		h.do("PUT", "/v1/topics/"+name, `{`+cb+`}`, root).want(201)
		for i := range 12 {
			h.do("PUT", fmt.Sprintf("/v1/topics/%s/timers/t-%d", name, i), fmt.Sprintf(`{"at_ms":%d,"labels":["n%d"]}`, 1780400000000+i/4*1000, i%2), root).want(201)
			h.engine.set(name, fmt.Sprintf("t-%d", i), func(t *timer.Timer) { t.Seq = uint64(1 + i) })
		}
	}
	list := func(query, token string, perPage int) (got []string) {
		t.Helper()
		for cursor := ""; ; {
			r := h.do("GET", fmt.Sprintf("/v1/timers?%slimit=%d%s", query, perPage, cursor), "", token).want(200).json()
			for _, row := range r["timers"].([]any) {
				row := row.(map[string]any)
				got = append(got, row["topic"].(string)+"/"+row["id"].(string))
			}
			next, more := r["next_cursor"].(string)
			if !more {
				return got
			}
			cursor = "&cursor=" + next
		}
	}
	var want, own []string
	for second := range 3 {
		for i := range 4 {
			for _, name := range names { // by their numbers
				want = append(want, fmt.Sprintf("%s/t-%d", name, second*4+i))
			}
		}
	}
	slices.SortStableFunc(want[24:], func(a, b string) int { // t-10 and t-11 are before t-8
		return strings.Compare(a[strings.Index(a, "/"):], b[strings.Index(b, "/"):])
	})
	for _, one := range want {
		if strings.HasPrefix(one, "orders.") {
			own = append(own, one)
		}
	}
	for _, perPage := range []int{1, 2, 5, 100} {
		if got := list("", root, perPage); !slices.Equal(got, want) {
			t.Errorf("by %d:\n%v\n%v", perPage, got, want)
		}
		if got := list("", shop, perPage); !slices.Equal(got, own) {
			t.Errorf("of the token's topics, by %d:\n%v\n%v", perPage, got, own)
		}
	}
	for query, want := range map[string]string{
		"id=t-1&": "[orders.b/t-1 orders.a/t-1]", "id=t&": "[]", "label=n1&id_prefix=t-1&": "[orders.b/t-1 orders.a/t-1 orders.b/t-11 orders.a/t-11]", "state=dead&": "[]",
	} {
		if got := list(query, shop, 7); fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if got := list("", "Authorization: Bearer none", 7); len(got) != 0 {
		t.Errorf("a token without topics sees %v", got)
	}
	// A page that cannot look at all timers ends with none of what is wanted, and has a cursor.
	h.engine.slotsEach = 3
	slices.Sort(want)
	for _, perPage := range []int{1, 2, 5, 100} {
		if got := slices.Sorted(slices.Values(list("", root, perPage))); !slices.Equal(got, want) {
			t.Errorf("in parts, by %d:\n%v\n%v", perPage, got, want)
		}
	}
	if got := list("id=t-9&", shop, 7); len(got) != 2 {
		t.Errorf("in parts, one id: %v", got)
	}
	h.do("GET", "/v1/timers?id=t-1&id_prefix=t", "", root).problem(400, web.BadRequest)
	h.do("GET", "/v1/timers?id=%7B", "", root).problem(400, web.BadName).has("detail", `"query: id `+timers.IDRule+`"`)
	h.do("GET", "/v1/timers?cursor=x", "", root).problem(400, web.BadRequest)
	h.do("GET", "/v1/timers?topic=mail", "", root).problem(400, web.BadRequest)
}
