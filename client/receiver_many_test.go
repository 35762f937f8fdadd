package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReceiverOfMany: a call of many timers is checked, taken apart and answered with what failed;
// a retry comes alone, and has the status of its error.
func TestReceiverOfMany(t *testing.T) {
	now := time.Unix(1_893_456_000, 0)
	receiver, err := NewReceiver(ReceiverOptions{Secrets: []string{secret}, Now: func() time.Time { return now }})
	must(t, err)
	var got []*Delivery
	h := receiver.HandleMany(func(_ context.Context, list []*Delivery) (errs []error) {
		got = list
		for _, d := range list {
			var err error
			if strings.Contains(string(d.Body), "bad") {
				err = errors.New("card declined")
			}
			errs = append(errs, err)
		}
		return errs
	})
	part := func(id string, fence int, payload string) string {
		return fmt.Sprintf(`{"topic":"orders","id":%q,"webhook_id":"msg_%s","due_ms":1893456000250,"attempt":1,"fence":%d,"key":"k",%s}`, id, id, fence, payload)
	}
	send := func(body string, edit func(http.Header)) *httptest.ResponseRecorder {
		got = nil
		return post(h, func(h http.Header) {
			for _, name := range []string{"Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence"} {
				h.Del(name)
			}
			key, _ := parseSecret(secret)
			h.Set("Carillon-Signature", sign(key, signedValues(h)))
			if edit != nil {
				edit(h)
			}
		}, body, secret, now)
	}
	body := `{"timers":[` + part("a", 7, `"asked_ms":1893455000000,"payload":{"n": 1}`) + `,` + part("b", 8, `"payload_base64":"YmFk"`) + `,` + part("c", 9, `"payload_base64":"AA==","content_type":"image/png"`) + `,` + part("d", 9, `"content_type":""`) + `]}`
	w := send(body, nil)
	if w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"failed":[{"webhook_id":"msg_b","error":"card declined"}]}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if len(got) != 4 || got[0].Timer != "a" || got[0].ID != "msg_a" || got[0].Fence != 7 || got[0].Attempt != 1 || got[0].Due.UnixMilli() != 1_893_456_000_250 ||
		string(got[0].Body) != `{"n": 1}` || string(got[1].Body) != "bad" || len(got[3].Body) != 0 {
		t.Fatalf("%+v", got)
	}
	if got[0].Asked.UnixMilli() != 1_893_455_000_000 || !got[1].Asked.IsZero() {
		t.Errorf("asked for at %s and %s", got[0].Asked, got[1].Asked)
	}
	// As a call for one has it, which a retry of each is.
	for i, want := range []string{"application/json", "application/octet-stream", "image/png", ""} {
		if got[i].ContentType != want {
			t.Errorf("%s: %q, want %q", got[i].Timer, got[i].ContentType, want)
		}
	}
	// A copy of the call, from a proxy: the handler of the first may fail yet.
	stale := func(id string) string {
		return fmt.Sprintf(`{"failed":[{"webhook_id":"msg_%s","error":"a later attempt of this timer has been here"}]}`, id)
	}
	w = send(`{"timers":[`+part("a", 7, `"payload":1`)+`,`+part("b", 10, `"payload":1`)+`]}`, nil)
	if w.Code != 200 || len(got) != 1 || got[0].Timer != "b" || strings.TrimSpace(w.Body.String()) != stale("a") {
		t.Fatalf("with a lease that is over: %d %s, %d timers", w.Code, w.Body, len(got))
	}
	if w = send(`{"timers":[`+part("a", 7, `"payload":1`)+`]}`, nil); w.Code != 200 || got != nil || strings.TrimSpace(w.Body.String()) != stale("a") {
		t.Fatalf("with no other: %d %s, %d timers", w.Code, w.Body, len(got))
	}
	for _, bad := range []string{``, `{}`, `{"timers":[]}`, `{"timers":[{}]}`, `[]`} {
		if w = send(bad, nil); w.Code != 400 || got != nil {
			t.Errorf("%q: %d", bad, w.Code)
		}
	}
	// A payload that looks like a call of many, in a call whose headers were taken away.
	if w = send(body, func(h http.Header) { h.Set("Carillon-Signature", "v1,AAAA") }); w.Code != 401 || got != nil {
		t.Errorf("headers that are not signed: %d", w.Code)
	}
	if w = post(h, nil, `"good"`, secret, now); w.Code != 204 || len(got) != 1 {
		t.Errorf("a call for one: %d, %d timers", w.Code, len(got))
	}
	w = post(h, func(h http.Header) {
		h.Set("Carillon-Fence", "70")
		key, _ := parseSecret(secret)
		h.Set("Carillon-Signature", sign(key, signedValues(h)))
	}, `"bad"`, secret, now)
	if w.Code != 500 {
		t.Errorf("a call for one that fails: %d", w.Code)
	}
}
