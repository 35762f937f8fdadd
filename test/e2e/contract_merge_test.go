package e2e

import (
	"fmt"
	"strings"
	"time"
)

var contractMerge = []contractCheck{{"keep", checkKeep}, {"replace", checkReplace}, {"debounce", checkDebounce}, {"successor", checkSuccessor}, {"collect", checkCollect}, {"repeat", checkRepeat}, {"overlap", checkOverlap}, {"cron", checkCron}, {"catchUp", checkCatchUp}}

func checkKeep(k *talk) {
	k.policy(`{` + nobody + `,"merge":"keep"}`)
	first := k.add(`{"id":"a","at":"2030-01-01T00:00:00Z","payload":1}`).is(201).has("merged", "")
	k.add(`{"id":"a","at":"2031-01-01T00:00:00Z","payload":2}`).is(200).has("merged", "true", "payload", "1", "due_ms", first.field("due_ms"))
	// The add's merge takes precedence over the topic's.
	k.add(`{"id":"a","at":"2031-01-01T00:00:00Z","payload":2,"merge":"reject"}`).refused(409, "exists")
	k.get("a").has("payload", "1")
}

func checkReplace(k *talk) {
	k.policy(`{` + nobody + `}`)
	first := k.add(`{"id":"a","at":"2030-01-01T00:00:00Z","payload":1,"priority":3,"merge":"replace"}`).is(201)
	k.add(`{"id":"a","at":"2029-01-01T00:00:00Z","payload":2,"merge":"replace"}`).is(200).has("merged", "true", "payload", "2", "due", `"2029-01-01T00:00:00.000Z"`, "version", "2", "attempts", "0", "created_ms", "*")
	if first.field("priority") == k.get("a").field("priority") {
		k.Error("a replacement keeps the priority")
	}
	// Attempts start at 0 again.
	r := k.callee(500)
	k.add(fmt.Sprintf(`{"id":"b","delay":"0s","callback":{"url":%q},"retry":{"min_backoff":"1h","max_backoff":"1h"}}`, r.url)).is(201)
	k.until("b", "last_status", "500").has("attempts", "1", "state", `"scheduled"`)
	k.add(`{"id":"b","delay":"1h",`+nobody+`,"merge":"replace"}`).is(200).has("attempts", "0", "version", "2")
}

// checkCollect: API.md section 9.5.
func checkCollect(k *talk) {
	r := k.holding(500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"merge":"collect","collect_max":3,"retry":{"min_backoff":"10ms","max_backoff":"10ms"}}`, r.url))
	first := k.add(`{"id":"a","delay":"1h","payload":{"n": 0}}`).is(201).has("payload", `[{"n":0}]`, "collected", "1", "merged", "")
	k.add(`{"id":"a","delay":"2h","payload":1,"part":"one"}`).is(200).has("payload", `[{"n":0},1]`, "collected", "2", "merged", "true", "due_ms", first.field("due_ms"))
	k.add(`{"id":"a","delay":"2h","payload":1,"part":"one"}`).is(200).has("collected", "2", "merged", "true", "version", "2")
	k.add(`{"id":"a","delay":"2h","payload":"x","max_wait":"90m"}`).is(200).has("collected", "3")
	if got := r.await(1); got.body != `[{"n": 0},1,"x"]` {
		k.Errorf("full, it is called with %s", got.body)
	}
	for n := 3; n < 8; n++ {
		k.add(fmt.Sprintf(`{"id":"a","delay":"1ms","payload":%d}`, n)).is(200).has("collected", fmt.Sprint((n-3)%3+1), "merged", "true")
	}
	k.get("a").has("state", `"leased"`, "successor", "true", "collected", "3")
	r.letGo()
	r.await(4) // the first one is retried before the others come
	calls := r.all()
	for i, want := range []string{`[{"n": 0},1,"x"]`, `[{"n": 0},1,"x"]`, `[3,4,5]`, `[6,7]`} {
		if calls[i].body != want {
			k.Errorf("call %d has %s, want %s", i+1, calls[i].body, want)
		}
	}
	if a, b := calls[1].header.Get("webhook-id"), calls[2].header.Get("webhook-id"); a == b || a != calls[0].header.Get("webhook-id") {
		k.Errorf("webhook-ids %s and %s", a, b)
	}
	k.until("a", "state", `"done"`).has("payload", `[6,7]`, "successor", "")
	// The longest wait, a pending timer of another rule, and what is refused.
	s := k.add(`{"id":"b","delay":"1h","payload":1,"max_wait":"90m"}`).is(201)
	k.add(`{"id":"b","delay":"80m","payload":2,"max_wait":"90m"}`).is(200)
	k.add(`{"id":"b","delay":"3h","payload":[3],"max_wait":"90m","collect_max":10}`).is(200).has("payload", `[1,2,[3]]`, "due_ms", fmt.Sprint(s.number("created_ms")+90*60_000))
	k.add(`{"id":"c","delay":"1h","payload":"other","merge":"reject"}`).is(201).has("payload", `"other"`, "collected", "")
	k.add(`{"id":"c","delay":"1h","payload":1}`).is(200).has("payload", `["other",1]`, "collected", "2")
	k.add(`{"id":"d","delay":"1h"}`).refused(422, "not_json")
	k.add(`{"id":"d","delay":"1h","payload_base64":"AA=="}`).refused(422, "not_json")
	k.add(`{"id":"d","delay":"1h","payload":"`+strings.Repeat("x", 256<<10-2)+`"}`).refused(413, "too_large")
	k.add(`{"id":"e","delay":"1h","payload_base64":"AA==","merge":"reject"}`).is(201)
	k.add(`{"id":"e","delay":"1h","payload":1}`).refused(409, "exists")
	k.ask("DELETE", "/timers/b", "").is(200).has("outcome", `"prevented"`)
	k.add(`{"id":"b","delay":"1h","payload":9}`).is(201).has("payload", `[9]`)
}

func checkDebounce(k *talk) {
	k.policy(`{` + nobody + `}`)
	first := k.add(`{"id":"a","delay":"1h","max_wait":"90m","merge":"debounce"}`).is(201)
	created := first.number("created_ms")
	if s := k.add(`{"id":"a","delay":"80m","max_wait":"90m","merge":"debounce"}`).is(200).has("merged", "true"); s.number("due_ms") < created+80*60_000 {
		k.Errorf("not later: %s", s.body)
	}
	k.add(`{"id":"a","delay":"5h","max_wait":"90m","merge":"debounce"}`).is(200).has("due_ms", fmt.Sprint(created+90*60_000))
	// The newest add's max_wait counts.
	k.add(`{"id":"a","delay":"5h","max_wait":"2h","merge":"debounce"}`).is(200).has("due_ms", fmt.Sprint(created+120*60_000))
	if s := k.add(`{"id":"a","delay":"5h","merge":"debounce"}`).is(200).has("version", "5"); s.number("due_ms") < created+5*3_600_000 {
		k.Errorf("not unbounded: %s", s.body)
	}
	// max_wait bounds the first add, too.
	s := k.add(`{"id":"b","delay":"5h","max_wait":"1h","merge":"debounce"}`).is(201)
	s.has("due_ms", fmt.Sprint(s.number("created_ms")+3_600_000))
}

// checkSuccessor: an add to a timer whose call runs becomes its successor, which starts after it.
func checkSuccessor(k *talk) {
	for _, merge := range []string{"keep", "replace", "debounce"} {
		r := k.holding(500)
		k.ask("PUT", "", fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"1h","max_backoff":"1h"}}`, r.url))
		k.add(fmt.Sprintf(`{"id":%q,"delay":"0s","payload":1}`, merge)).is(201)
		r.await(1)
		k.get(merge).has("successor", "")
		k.add(fmt.Sprintf(`{"id":%q,"delay":"0s","payload":2,"merge":%q}`, merge, merge)).is(200).has("merged", "true")
		k.get(merge).has("state", `"leased"`, "payload", "1", "successor", "true")
		r.letGo()
		if c := r.await(2); c.body != "2" || c.attempt() != "1" || c.fence() <= r.all()[0].fence() || c.header.Get("Webhook-Id") == r.all()[0].header.Get("Webhook-Id") {
			k.Errorf("%s: the second call is %+v", merge, c)
		}
		k.until(merge, "payload", "2")
	}
	// DELETE cancels the timer and its successor.
	r := k.holding(500)
	k.add(fmt.Sprintf(`{"id":"both","delay":"0s","payload":1,"callback":{"url":%q}}`, r.url)).is(201)
	r.await(1)
	k.add(fmt.Sprintf(`{"id":"both","delay":"0s","payload":2,"merge":"replace","callback":{"url":%q}}`, r.url)).is(200)
	k.ask("DELETE", "/timers/both", "").is(202).has("outcome", `"in_flight"`)
	r.letGo()
	k.until("both", "state", `"cancelled"`)
	if n := len(r.all()); n != 1 {
		k.Errorf("%d calls", n)
	}
}

// checkRepeat: occurrences share the id, each has its own attempts and webhook-id, and each is due
// one interval after the previous one's due time.
func checkRepeat(k *talk) {
	r := k.callee(500, 200)
	k.policy(fmt.Sprintf(`{"callback":{"url":%q},"retry":{"min_backoff":"1ms","max_backoff":"1ms"}}`, r.url))
	k.add(`{"id":"a","delay":"0s","payload":1,"repeat":{"every":"1s","count":2}}`).is(201)
	r.await(3)
	k.until("a", "state", `"done"`)
	calls := r.all()
	for i, attempt := range []string{"1", "2", "1"} {
		if len(calls) != 3 || calls[i].attempt() != attempt {
			k.Fatalf("%+v", calls)
		}
	}
	ids := []string{calls[0].header.Get("Webhook-Id"), calls[1].header.Get("Webhook-Id"), calls[2].header.Get("Webhook-Id")}
	if ids[0] != ids[1] || ids[1] == ids[2] {
		k.Errorf("webhook-ids %v", ids)
	}
	due := func(i int) (ms int64) { _, _ = fmt.Sscan(calls[i].header.Get("Carillon-Due"), &ms); return ms }
	if due(1) != due(0) || due(2) != due(0)+1000 {
		k.Errorf("due %d, %d, %d", due(0), due(1), due(2))
	}
}

func checkCron(k *talk) {
	k.policy(`{` + nobody + `}`)
	// A time beside cron is the earliest start, by default now.
	k.add(`{"id":"cron","repeat":{"cron":"0 8 * * *","zone":"Asia/Shanghai"}}`).is(201)
	if at := time.UnixMilli(k.get("cron").number("due_ms")).UTC(); at.Hour() != 0 || at.Minute() != 0 || at.Before(time.Now()) {
		k.Errorf("eight in Shanghai is %v", at)
	}
	k.add(`{"id":"start","at":"2030-03-01T00:00:01Z","repeat":{"cron":"0 0 * * *"}}`).is(201).has("due", `"2030-03-02T00:00:00.000Z"`)
	if s := k.add(`{"id":"every","repeat":{"every":"1h"}}`); s.status != 201 && s.status != 400 {
		k.Errorf("every without a time: %d %s", s.status, s.body)
	}
	if s := k.get("cron"); !strings.Contains(s.field("repeat/zone"), "Shanghai") {
		k.Errorf("%s", s.body)
	}
}

// checkCatchUp: the occurrences missed while the topic was paused, by catch_up.
func checkCatchUp(k *talk) {
	k.policy(`{}`)
	k.ask("POST", "/pause", "").is(200)
	begin := time.Now().Add(-270 * time.Minute).UnixMilli()
	callees := map[string]*callee{}
	for _, catchUp := range []string{"skip", "one", "all"} {
		callees[catchUp] = k.callee(200)
		k.add(fmt.Sprintf(`{"id":%q,"at_ms":%d,"callback":{"url":%q},"repeat":{"every":"1h","catch_up":%q}}`, catchUp, begin, callees[catchUp].url, catchUp)).is(201)
	}
	k.ask("POST", "/resume", "").is(200)
	for catchUp, want := range map[string]int{"skip": 0, "one": 1, "all": 5} {
		k.until(catchUp, "due_ms", fmt.Sprint(begin+5*3_600_000)).has("state", `"scheduled"`)
		if n := len(callees[catchUp].all()); n != want {
			k.Errorf("%s: %d calls, not %d", catchUp, n, want)
		}
	}
}

// checkOverlap: the next occurrence waits for the end of the previous one. With overlap it starts
// at its due time.
func checkOverlap(k *talk) {
	k.policy(`{}`)
	over, after := k.holding(200), k.holding(200)
	k.add(fmt.Sprintf(`{"id":"over","delay":"0s","callback":{"url":%q},"repeat":{"every":"1s","count":2,"overlap":true}}`, over.url)).is(201)
	k.add(fmt.Sprintf(`{"id":"after","delay":"0s","callback":{"url":%q},"repeat":{"every":"1s","count":2}}`, after.url)).is(201)
	over.await(2)
	if calls := over.all(); calls[0].header.Get("Webhook-Id") == calls[1].header.Get("Webhook-Id") || calls[1].attempt() != "1" {
		k.Errorf("%+v", calls)
	}
	<-time.After(50 * time.Millisecond)
	if n := len(after.all()); n != 1 {
		k.Errorf("%d calls while the first one runs", n)
	}
	after.letGo()
	after.await(2)
	over.letGo()
	k.until("over", "state", `"done"`)
	k.until("after", "state", `"done"`)
}
