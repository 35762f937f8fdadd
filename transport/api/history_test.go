package api

import (
	"fmt"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/transport/api/web"
)

const historyPath = "/v1/topics/orders/history"

// ended puts a timer into the engine's history that is in its memory no more.
func (h *harness) ended(id string, index uint64, endMs int64, state timer.State) *timer.HistoryEntry {
	topic, _ := topicsOf(h.engine).Here("orders")
	e := &timer.HistoryEntry{
		Key: timer.HistoryKey{EndMs: endMs, Index: index, Shard: timer.ShardOf(&timer.Topic{Name: "orders"}, id, h.engine.shards)},
		Timer: &timer.Timer{Topic: topic.ID, ID: id, Seq: index, Tag: 7, Version: 2, State: state, CreatedMs: endMs - 5000, UpdatedMs: endMs - 5000,
			EndedMs: endMs, LatenessMs: -1, Attempts: 2, LastStatus: 200,
			Spec: timer.Spec{DueMs: endMs - 4000, Payload: []byte(`{"n":  1}`), PayloadKind: timer.JSONPayload}},
		Attempts: []timer.HistoryAttempt{{Attempt: 1, StartedMs: endMs - 4000, EndedMs: endMs - 3000, Err: "no answer \x1b"}, {Attempt: 2, StartedMs: endMs - 10, EndedMs: endMs, Status: 200}},
	}
	if state == timer.Dead {
		e.Timer.Reason = timer.Stopped
	}
	h.engine.past = append(h.engine.past, e)
	return e
}

func TestHistory(t *testing.T) {
	h := newHarness(t)
	h.do("GET", historyPath, "").problem(404, "unknown_topic")
	h.do("PUT", "/v1/topics/orders", `{"history":"1h"}`).want(201)
	h.do("GET", historyPath, "").want(200).has("entries", "[]")
	states := []timer.State{timer.Done, timer.Dead, timer.Cancelled}
	for i := range 30 {
		h.ended(fmt.Sprintf("t%02d", i%10), uint64(100+i), noonMs-int64(i)*1000, states[i%3])
	}
	h.ended("too-old", 1, noonMs-3_700_000, timer.Done)
	count := func(query string, want int) {
		t.Helper()
		var ends []float64
		cursor := ""
		for {
			r := h.do("GET", historyPath+"?limit=7"+query+cursor, "").want(200).json()
			for _, e := range r["entries"].([]any) {
				ends = append(ends, e.(map[string]any)["ended_ms"].(float64))
			}
			next, more := r["next_cursor"].(string)
			if !more {
				break
			}
			cursor = "&cursor=" + next
		}
		if len(ends) != want {
			t.Errorf("%s: %d entries, want %d", query, len(ends), want)
		}
		for i := 1; i < len(ends); i++ {
			if ends[i] < ends[i-1] {
				t.Errorf("%s: not in order: %v", query, ends)
			}
		}
	}
	count("", 30)
	count("&state=done", 10)
	count("&state=dead,cancelled", 20)
	count("&id=t03", 3)
	count("&id=t03&state=done", 1)
	count("&id=nobody", 0)
	count("&id=too-old", 0)
	count(fmt.Sprintf("&from=%d", noonMs-4000), 5)
	count(fmt.Sprintf("&from=%d&to=%d", noonMs-4000, noonMs-2000), 2)
	count("&to=0", 0)

	first := h.do("GET", historyPath+"?limit=1&state=dead&id=t01", "").want(200).json()["entries"].([]any)[0].(map[string]any)
	if first["id"] != "t01" || first["state"] != "dead" || first["reason"] != "stopped" || first["attempts"] != 2.0 || first["ended"] == nil || first["topic"] != "orders" {
		t.Errorf("%v", first)
	}
	log := fmt.Sprint(first["attempt_log"])
	if !strings.Contains(log, "error:no answer \x1b") || !strings.Contains(log, "status:200") || strings.Contains(log, "status:0") {
		t.Error(log)
	}
	for _, query := range []string{"state=scheduled", "state=done,leased", "state=", "id=a/b", "id=", "limit=0", "limit=1001", "from=soon", "cursor=x", "label=a", "id=a&id=a"} {
		if r := h.do("GET", historyPath+"?"+query, ""); r.status != 400 {
			t.Errorf("%s: %d", query, r.status)
		}
	}
	next := h.do("GET", historyPath+"?limit=1", "").want(200).json()["next_cursor"].(string)
	h.do("GET", historyPath+"?state=done&cursor="+next, "").problem(400, web.BadRequest).
		has("detail", `"query: cursor is not one of this listing with these filters; begin without a cursor"`)
	h.do("PUT", "/v1/topics/orders", `{"history":"0s"}`).want(200)
	count("", 0)
}

// TestHistoryAnswersForTheForgotten: a timer that memory has forgotten is read from the history,
// and a change to it is too late.
func TestHistoryAnswersForTheForgotten(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/orders", `{"history":"1h"}`).want(201)
	h.ended("d", 1, noonMs-9000, timer.Cancelled)
	h.ended("d", 2, noonMs-5000, timer.Done)
	h.ended("x", 3, noonMs-5000, timer.Dead)
	h.ended("c", 4, noonMs-5000, timer.Cancelled)
	h.ended("old", 5, noonMs-3_700_000, timer.Done)
	r := h.do("GET", timersPath+"/d", "").want(200)
	r.has("state", `"done"`)
	r.has("last_status", "200")
	r.has("attempts", "2")
	h.do("DELETE", timersPath+"/d", "").problem(410, "over")
	h.do("PATCH", timersPath+"/x", `{"priority":1}`).problem(410, "over")
	h.do("POST", timersPath+"/x/fire", "").problem(410, "over")
	h.do("DELETE", timersPath+"/c", "").want(200).has("outcome", `"prevented"`)
	h.do("PATCH", timersPath+"/c", `{"priority":1}`).problem(410, "over")
	h.do("POST", batches, `{"ops":[{"op":"cancel","id":"d"},{"op":"patch","id":"x","priority":1},{"op":"fire","id":"x"},{"op":"cancel","id":"c"},
		{"op":"patch","id":"c","priority":1},{"op":"cancel","id":"nobody"},{"op":"add","id":"new","delay":"1h",`+cb+`}]}`).want(200).has(
		"results.0.status", "410", "results.0.error.outcome", `"already_fired"`, "results.1.status", "410", "results.2.error.outcome", `"dead"`,
		"results.3.status", "200", "results.3.outcome", `"prevented"`, "results.4.error.code", `"over"`, "results.5.status", "404", "results.6.status", "201")
	for _, id := range []string{"old", "nobody"} {
		h.do("GET", timersPath+"/"+id, "").problem(404, web.UnknownTimer)
		h.do("DELETE", timersPath+"/"+id, "").problem(404, web.UnknownTimer)
	}
	h.do("POST", timersPath, `{"id":"d","delay":"1h",`+cb+`}`).want(201) // the id is free
	h.do("GET", timersPath+"/d", "").want(200).has("state", `"scheduled"`)
	h.engine.err = timer.ErrNoLeader
	h.do("GET", historyPath, "").problem(503, "no_leader")
}

// TestNewestEndOfAnID: memory keeps a dead letter for longer than what ended after it. A read shows
// the last end of the id all the same, as far as the history reaches.
func TestNewestEndOfAnID(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/orders", `{"history":"1h"}`).want(201)
	const diedMs = noonMs - timer.KeptMs - 60_000
	for _, id := range []string{"again", "once", "silent"} {
		h.do("POST", timersPath, `{"id":"`+id+`","delay":"1h",`+cb+`}`).want(201)
		h.engine.set("orders", id, func(t *timer.Timer) { t.State, t.EndedMs = timer.Dead, diedMs })
		h.ended(id, 1, diedMs, timer.Dead)
	}
	h.ended("again", 2, diedMs+10_000, timer.Done)
	h.do("GET", timersPath+"/again", "").want(200).has("state", `"done"`).has("last_status", "200")
	h.do("GET", timersPath+"/once", "").want(200).has("state", `"dead"`)
	// A change is too late for the same reason that a read shows.
	for id, outcome := range map[string]string{"again": `"already_fired"`, "once": `"dead"`} {
		h.do("DELETE", timersPath+"/"+id, "").problem(410, "over").has("outcome", outcome)
		h.do("PATCH", timersPath+"/"+id, `{"priority":1}`).problem(410, "over").has("outcome", outcome)
	}
	h.do("POST", batches, `{"ops":[{"op":"cancel","id":"again"},{"op":"cancel","id":"once"}]}`).want(200).has(
		"results.0.error.outcome", `"already_fired"`, "results.1.error.outcome", `"dead"`)
	h.ended("again", 3, diedMs+20_000, timer.Cancelled)
	h.do("DELETE", timersPath+"/again", "").want(200).has("outcome", `"prevented"`)
	h.engine.pastErr = timer.ErrNoLeader
	h.do("GET", timersPath+"/silent", "").want(200).has("state", `"dead"`)
	h.do("DELETE", timersPath+"/silent", "").problem(410, "over").has("outcome", `"dead"`)
	h.do("POST", batches, `{"ops":[{"op":"cancel","id":"silent"},{"op":"cancel","id":"nobody"}]}`).want(200).has(
		"results.0.error.outcome", `"dead"`, "results.1.status", "503")
}
