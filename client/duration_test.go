package client

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// Durations travel as text in all that has some, and come back the same.
func TestDurationsTravelAsText(t *testing.T) {
	for _, tt := range []struct {
		in, out any
		want    string
	}{
		{Callback{URL: "http://a/", Timeout: 90 * time.Second}, new(Callback), `{"url":"http://a/","timeout":"1m30s"}`},
		{Callback{}, new(Callback), `{}`},
		{Retry{MaxAttempts: 3, MinBackoff: time.Second}, new(Retry), `{"max_attempts":3,"min_backoff":"1s"}`},
		{Repeat{Cron: "0 8 * * *"}, new(Repeat), `{"cron":"0 8 * * *"}`},
		{Repeat{Every: time.Hour, Count: 2}, new(Repeat), `{"every":"1h0m0s","count":2}`},
		{Breaker{Failures: 5, Window: 10 * time.Second, Open: 5 * time.Second}, new(Breaker), `{"failures":5,"window":"10s","open":"5s"}`},
		{
			Policy{Lease: 30 * time.Second, Retry: &Retry{MaxBackoff: time.Hour}, MaxWait: 1, Spread: 2, History: 3, DeadRetention: 4}, new(Policy),
			`{"lease":"30s","retry":{"max_backoff":"1h0m0s"},"max_wait":"1ns","spread":"2ns","history":"3ns","dead_retention":"4ns"}`,
		},
	} {
		b, err := json.Marshal(tt.in)
		if err != nil || string(b) != tt.want {
			t.Errorf("%+v: %s, %v; want %s", tt.in, b, err, tt.want)
		}
		if err := json.Unmarshal(b, tt.out); err != nil || !reflect.DeepEqual(reflect.ValueOf(tt.out).Elem().Interface(), tt.in) {
			t.Errorf("%s: %+v, %v; want %+v", b, tt.out, err, tt.in)
		}
	}
	if err := json.Unmarshal([]byte(`{"timeout":30}`), new(Callback)); err == nil {
		t.Error("a number was taken for a duration")
	}
}

// A lease and an entry have the members of a timer, and their own.
func TestTimersWithin(t *testing.T) {
	const timer = `"id":"a","expires_after":"10m","due":"2030-01-01T00:00:00Z"`
	var l Lease
	var e Entry
	must(t, json.Unmarshal([]byte(`{`+timer+`,"receipt":"r","fence":7,"attempt":2,"lease_until":"2030-01-01T00:01:00Z"}`), &l))
	must(t, json.Unmarshal([]byte(`{`+timer+`,"ended":"2030-01-01T00:01:00Z","attempt_log":[{"attempt":1,"status":200},{"answer":"no","answer_base64":"/wA=","answer_type":"text/plain","location":"/x"}]}`), &e))
	minute := time.Date(2030, 1, 1, 0, 1, 0, 0, time.UTC)
	if l.ID != "a" || l.Receipt != "r" || l.Fence != 7 || l.Attempt != 2 || !l.LeaseUntil.Equal(minute) || *l.ExpiresAfter != 10*time.Minute {
		t.Errorf("%+v", l)
	}
	if a := e.AttemptLog[1]; a.Answer != "no" || string(a.AnswerBytes) != "\xff\x00" || a.AnswerType != "text/plain" || a.Location != "/x" {
		t.Errorf("%+v", a)
	}
	if e.ID != "a" || !e.Ended.Equal(minute) || len(e.AttemptLog) != 2 || e.AttemptLog[0].Status != 200 || *e.ExpiresAfter != 10*time.Minute {
		t.Errorf("%+v", e)
	}
}
