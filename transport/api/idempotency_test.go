package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/web"
)

// An add that is repeated under its Idempotency-Key is the same timer, also with a delay, and when
// it has ended.
func TestIdempotencyKey(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"},"merge":"replace"}`).want(201)
	const key = `Idempotency-Key: "8e03978e-40d5"`
	add := func(body string, headers ...string) *reply {
		t.Helper()
		return h.do("POST", timersPath, body, headers...)
	}
	add(`{"delay":"30m","payload":1}`, key).want(201).has("id", `"idem-8e03978e-40d5"`, "version", "1")
	h.advance(time.Minute)
	add(`{"payload":1,"delay":"30m"}`, key).want(200).has("id", `"idem-8e03978e-40d5"`, "version", "1", "due_ms", fmt.Sprint(noonMs+1_800_000))
	add(`{"delay":"30m","payload":2}`, key).problem(422, "exists").has("existing.version", "1")
	// Without quotes, as many send it.
	add(`{"delay":"30m","payload":1}`, `Idempotency-Key: 8e03978e-40d5`).want(200).has("version", "1")
	h.engine.set("orders", "idem-8e03978e-40d5", func(t *timer.Timer) { t.State, t.EndedMs = timer.Done, noonMs+60_000 })
	add(`{"delay":"30m","payload":1}`, key).want(200).has("state", `"done"`)
	add(`{"delay":"30m","payload":2}`, key).problem(422, "exists").has("existing.version", "1", "existing.state", `"done"`) // it stands for the first
	h.advance(11 * time.Minute)
	add(`{"delay":"30m","payload":1,"key":"bob"}`, key).want(201)
	h.engine.set("orders", "idem-8e03978e-40d5", func(t *timer.Timer) { t.State = timer.Leased })
	add(`{"delay":"30m","payload":1}`, key).want(200).has("state", `"leased"`)

	add(`{"delay":"30m","key":"ann"}`, key).want(201).has("id", `"{ann}idem-8e03978e-40d5"`, "key", `"ann"`)
	long := "order 77"[:5] + "/" + strings.Repeat("x", 200)
	hashed := add(`{"delay":"30m"}`, "Idempotency-Key: "+long).want(201)
	again := add(`{"delay":"30m"}`, `Idempotency-Key: "`+long+`"`).want(200)
	if again.body != hashed.body || !strings.Contains(again.body, `"id":"idem.sha256-`) {
		t.Errorf("%s\n%s", hashed.body, again.body)
	}
	add(`{"delay":"30m"}`, "Idempotency-Key: "+long+"x").want(201)

	add(`{"delay":"30m","id":"a"}`, key).problem(400, web.BadRequest)
	add(`{"delay":"30m","merge":"keep"}`, `Idempotency-Key: other`).problem(400, web.BadRequest)
	add(`{"delay":"30m","merge":"reject"}`, `Idempotency-Key: other`).want(201)
	for _, bad := range []string{`""`, `"`, "a b", `a"b`, "é", strings.Repeat("x", 256), "a\r\nIdempotency-Key: b"} {
		add(`{"delay":"30m"}`, "Idempotency-Key: "+bad).problem(400, web.BadRequest)
	}
	for _, call := range [][3]string{{"PATCH", timersPath + "/{ann}idem-8e03978e-40d5", `{"priority":1}`}, {"POST", batches, `{"ops":[]}`}, {"POST", orders + "/pause", ""}} {
		h.do(call[0], call[1], call[2], key).problem(400, web.BadRequest)
	}
	h.do("GET", orders, "", key).want(200)
	h.do("DELETE", timersPath+"/{ann}idem-8e03978e-40d5", "", key).want(200)
}

// An answer without a body says which version of which timer it is.
func TestPreferMinimal(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"}}`).want(201)
	const minimal = "Prefer: return=minimal"
	check := func(r *reply, status int, etag, location string) {
		t.Helper()
		r.want(status)
		if r.body != "" || r.header.Get("ETag") != etag || r.header.Get("Location") != location || r.header.Get("Preference-Applied") != "return=minimal" {
			t.Errorf("%v %q", r.header, r.body)
		}
	}
	check(h.do("POST", timersPath, `{"id":"{k}a","delay":"1h"}`, minimal), 201, `"1"`, timersPath+"/%7Bk%7Da")
	check(h.do("POST", timersPath, `{"id":"{k}a","delay":"1h"}`, `Prefer: respond-async, Return="minimal"; foo`), 200, `"1"`, timersPath+"/%7Bk%7Da")
	check(h.do("PUT", timersPath+"/b", `{"delay":"1h"}`, minimal), 201, `"1"`, timersPath+"/b")
	check(h.do("PATCH", timersPath+"/b", `{"priority":1}`, minimal), 200, `"2"`, timersPath+"/b")
	check(h.do("POST", timersPath+"/b/fire", "", minimal), 200, `"2"`, timersPath+"/b")
	for _, other := range []string{"Prefer: return=representation", "Prefer: minimal", "Prefer: return=MINIMAL", "Prefer: wait=5"} {
		if r := h.do("PATCH", timersPath+"/b", `{"priority":2}`, other).want(200); r.body == "" || r.header.Get("Preference-Applied") != "" {
			t.Errorf("%s: %v %q", other, r.header, r.body)
		}
	}
	h.do("PATCH", timersPath+"/b", `{}`, minimal).problem(400, web.BadRequest)
	h.do("GET", timersPath+"/b", "", minimal).want(200).has("id", `"b"`)
}
