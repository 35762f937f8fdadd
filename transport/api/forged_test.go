package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"carillon/test/sim/forged"
	"carillon/transport/api/web"
)

// texts are the forms that JSON can say, in order.
func texts() (list []string) {
	all := forged.Texts()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if utf8.ValidString(all[name]) {
			list = append(list, all[name])
		}
	}
	return list
}

func quoted(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// TestUsersBytesAreData: a payload, as a text, as JSON and as bytes, that is an answer, an event, a
// line, a cursor, a receipt or a frame of ours comes back as it was, in an answer about it alone,
// in a listing, and in the lines of a batch.
func TestUsersBytesAreData(t *testing.T) {
	h := newHarness(t)
	want := map[string]string{} // id: the payload's field of an answer
	add := func(field, value string) {
		id := fmt.Sprint("t", len(want))
		want[id] = quoted(field) + ":" + value
		h.do("POST", timersPath, `{"id":"`+id+`","delay":"1h",`+cb+`,`+want[id]+`}`).want(201)
	}
	for _, text := range texts() {
		add("payload", quoted(text))
		add("payload", quoted(map[string]any{"id": text, text: []any{text}}))
		add("payload_base64", quoted(base64.StdEncoding.EncodeToString([]byte(text))))
	}
	for _, form := range forged.Forms() {
		add("payload_base64", quoted(base64.StdEncoding.EncodeToString(form)))
	}
	for _, text := range texts() { // a cursor or a receipt may be an id
		if web.ValidID(text) {
			want[text] = `"payload":1`
			h.do("POST", timersPath, `{"id":"`+text+`","delay":"1h",`+cb+`,"payload":1}`).want(201)
		}
	}
	check := func(v map[string]any) {
		t.Helper()
		var sent map[string]any
		if err := json.Unmarshal([]byte("{"+want[v["id"].(string)]+"}"), &sent); err != nil {
			t.Fatal(err)
		}
		for field, value := range sent {
			if quoted(v[field]) != quoted(value) || v["state"] != "scheduled" {
				t.Errorf("%v: %s is %s, want %s", v["id"], field, quoted(v[field]), quoted(value))
			}
		}
	}
	for id := range want {
		check(h.do("GET", timersPath+"/"+id, "").want(200).json())
	}
	ids := h.pages(timersPath, 7)
	if slices.Sort(ids); !slices.Equal(ids, slices.Sorted(maps.Keys(want))) {
		t.Errorf("listed %q", ids)
	}
	for _, v := range h.do("GET", timersPath+"?limit=1000", "").want(200).json()["timers"].([]any) {
		check(v.(map[string]any))
	}
	var lines strings.Builder
	for id, payload := range want {
		lines.WriteString(`{"op":"put","id":"` + id + `","delay":"2h",` + cb + `,` + payload + "}\n")
	}
	results := strings.Split(strings.TrimSuffix(h.do("POST", batches, lines.String(), "Content-Type: application/x-ndjson").want(200).body, "\n"), "\n")
	if len(results) != len(want) {
		t.Fatalf("%d results of %d lines", len(results), len(want))
	}
	for _, line := range results {
		var r struct {
			Status int
			Timer  map[string]any
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Status != 200 {
			t.Fatalf("%s: %v", line, err)
		}
		check(r.Timer)
	}
}

// TestUsersNamesAreData: what is no name is refused, in a problem of its own that quotes it at
// most, and not taken for a part of the answer, of another request, or of a header.
func TestUsersNamesAreData(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", "/v1/topics/orders", "{}").want(201)
	for _, text := range texts() {
		for field, code := range map[string]string{`"id":%s,` + cb: web.BadName, `"key":%s,` + cb: web.BadName, `"labels":[%s],` + cb: web.BadRequest, `"callback":{"url":%s}`: "bad_url",
			`"callback":{"url":"http://a/","headers":{%s:"a"}}`: "bad_header", `"callback":{"url":"http://a/","headers":{"X-A":%s}}`: "bad_header"} {
			value := text + "\n" // no name, no URL and no header has one
			r := h.do("POST", timersPath, `{"delay":"1h",`+fmt.Sprintf(field, quoted(value))+`}`).problem(400, code)
			if len(r.header) > 6 {
				t.Errorf("%q: %v", text, r.header)
			}
		}
		if r := h.do("GET", "/v1/topics/"+url.PathEscape(text+" ")+"/timers", ""); r.status < 400 || r.status >= 500 {
			t.Errorf("topic %q: %d", text, r.status)
		}
		h.do("GET", timersPath+"?cursor="+url.QueryEscape(text), "").problem(400, web.BadRequest)
	}
	if n := len(h.pages(timersPath, 7)); n != 0 {
		t.Errorf("%d timers were made", n)
	}
}
