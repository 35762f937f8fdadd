package client

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// TestOutcomeTopicJSON: none is null, and is not the same as nothing.
func TestOutcomeTopicJSON(t *testing.T) {
	b, err := json.Marshal(Spec{Delay: time.Hour, OnDone: &OutcomeTopic{}, OnDead: &OutcomeTopic{Topic: "failed"}})
	if want := `{"delay":"1h0m0s","on_done":null,"on_dead":{"topic":"failed"}}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
	if b, err = json.Marshal(Patch{OnDead: &OutcomeTopic{}}); err != nil || string(b) != `{"on_dead":null}` {
		t.Errorf("%s, %v", b, err)
	}
	for text, want := range map[string]Timer{
		`{}`: {}, `{"on_done":null}`: {OnDone: &OutcomeTopic{}}, `{"on_dead":{"topic":"failed"}}`: {OnDead: &OutcomeTopic{Topic: "failed"}},
	} {
		var got Timer
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	var p OutcomePayload
	if err := json.Unmarshal([]byte(`{"outcome":"dead","reason":"expired","timer":{"id":"a","payload":{"order":7},"attempt_log":[{"attempt":3}]},"payload_left_out":true}`), &p); err != nil ||
		p.Outcome != Dead || p.Reason != "expired" || p.Timer.ID != "a" || len(p.Timer.AttemptLog) != 1 || !p.PayloadLeftOut {
		t.Errorf("%+v, %v", p, err)
	}
}
