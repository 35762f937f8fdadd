package calls

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"carillon/internal/delivery"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/callback"

	"pgregory.net/rapid"
)

// TestBatchBodyFits: the body of a call of many is JSON that holds every timer, and none takes more
// of it than the scheduler has counted.
func TestBatchBodyFits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const most = 1<<63 - 1
		name := rapid.StringMatching(`[A-Za-z0-9]{1,128}`).Draw(rt, "topic")
		c := &scheduler.BatchCall{Topic: &timer.Topic{Name: name}, Shard: 1<<32 - 1}
		tbl := table.New(1, 0)
		counted, ids := 64, []string{}
		for i := range rapid.IntRange(1, 5).Draw(rt, "timers") {
			spec := &timer.Spec{DueMs: most, ContentType: rapid.StringOfN(rapid.RuneFrom([]rune(`a/"\<é&`)), 0, 40, -1).Draw(rt, "content type")}
			switch spec.PayloadKind = timer.PayloadKind(rapid.IntRange(0, 2).Draw(rt, "kind")); spec.PayloadKind {
			case timer.JSONPayload:
				spec.Payload = []byte(rapid.SampledFrom([]string{`1`, ` {"a": [1, 2]} `, `"\u0000<é"`}).Draw(rt, "JSON"))
			case timer.BinaryPayload:
				spec.Payload = rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(rt, "bytes")
			}
			id := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"", "{k}", "{" + strings.Repeat("k", 64) + "}" + strings.Repeat("x", 120)}).Draw(rt, "key"), i)
			var b table.Batch
			b.Reset(0, 1, 1)
			b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: id, Tag: 1<<32 - 1, Spec: spec})
			got, err := tbl.Apply(b.Bytes(), nil, nil)
			if err != nil || got[0].Code != timer.Created {
				rt.Fatal(got, err)
			}
			if spec.PayloadKind == timer.JSONPayload {
				for range rapid.IntRange(0, 3).Draw(rt, "collected") {
					b.Reset(0, 1, 1)
					b.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: id, Merge: timer.MergeCollect, Spec: &timer.Spec{
						DueMs: most, PayloadKind: timer.JSONPayload, Payload: []byte(`{"long": "` + strings.Repeat("x", 500) + `"}`), Collect: &timer.Collect{},
					}})
					if got, err := tbl.Apply(b.Bytes(), nil, nil); err != nil || got[0].Code != timer.Merged {
						rt.Fatal(got, err)
					}
				}
			}
			j := tbl.Job(got[0].Handle)
			j.Attempts, j.Fence, j.Seq, j.Version = 1<<31, 1<<64-1, 1<<64-1, 1<<32-1
			j.AskedMs = rapid.SampledFrom([]int64{0, 1, 1<<48 - 1}).Draw(rt, "asked")
			c.Jobs = append(c.Jobs, j)
			ids = append(ids, webhookID(c.Shard, &j))
			counted += tbl.BatchBytes(got[0].Handle) + len(name)
		}
		body := appendBatchBody(nil, c, ids)
		if len(body) > counted {
			rt.Fatalf("the body has %d bytes, %d are counted: %s", len(body), counted, body)
		}
		var got struct {
			Timers []struct {
				Topic, ID, Key string
				WebhookID      string `json:"webhook_id"`
				DueMs          int64  `json:"due_ms"`
				AskedMs        int64  `json:"asked_ms"`
				Attempt        int
				Fence          uint64
				Payload        json.RawMessage
				PayloadBase64  []byte `json:"payload_base64"`
				ContentType    string `json:"content_type"`
			}
		}
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil || len(got.Timers) != len(c.Jobs) {
			rt.Fatalf("%v: %s", err, body)
		}
		for i, one := range got.Timers {
			j := &c.Jobs[i]
			key, has := timer.KeyOf(j.ID)
			if one.Topic != name || one.ID != j.ID || one.WebhookID != ids[i] || one.DueMs != j.DueMs || one.AskedMs != j.AskedMs || one.Attempt != j.Attempts ||
				one.Fence != j.Fence || one.ContentType != strings.ToValidUTF8(j.ContentType, "\ufffd") || has && one.Key != key || !has && one.Key != "" ||
				j.PayloadKind == timer.JSONPayload && strings.TrimSpace(string(j.Payload)) != string(one.Payload) ||
				j.PayloadKind == timer.BinaryPayload && !slices.Equal(j.Payload, one.PayloadBase64) {
				rt.Fatalf("timer %d is %+v, want %+v", i, one, j)
			}
		}
	})
}

// TestBatchOutcomes: what an answer names has failed, everything else is as the call.
func TestBatchOutcomes(t *testing.T) {
	ids := []string{"a", "b", "c"}
	for _, test := range []struct {
		body, want string
		unknown    int
	}{
		{``, `"" "" ""`, 0},
		{`OK`, `"" "" ""`, 0},
		{`{}`, `"" "" ""`, 0},
		{`{"failed":0}`, `"" "" ""`, 1},
		{`{"failed":["a","b"]}`, `"" "" ""`, 2},
		{`[]`, `"" "" ""`, 0},
		{`{"failed":[]}`, `"" "" ""`, 0},
		{`{"failed":[{"webhook_id":"b"}]}`, `"" "failed" ""`, 0},
		{`{"failed":[{"webhook_id":"b","error":"card\ndeclined"},{"webhook_id":"other"},{"webhook_id":"c","error":" "}],"more":1}`, `"" "failed: card declined" "failed"`, 1},
		{`{"failed":[{"webhook_id":"a"},5,{"webhook_id":"c"}]}`, `"failed" "" "failed"`, 1},
		{`{"failed":[{"webhook_id":"a","error":"` + strings.Repeat("é", 300) + `"}]}`, `"failed: ` + strings.Repeat("é", 124) + `" "" ""`, 0},
		{`{"failed":[{"webhook_id":"a"`, `"" "" ""`, 0},
	} {
		out := callback.Outcome{Outcome: delivery.Outcome{Status: 200, EndedMs: 7}, Body: []byte(test.body)}
		var got []string
		list, unknown := outcomesOf(&out, ids, true)
		if unknown != test.unknown {
			t.Errorf("%s: %d name no timer of the call, want %d", test.body, unknown, test.unknown)
		}
		for _, o := range list {
			if o.Status != 200 || o.EndedMs != 7 {
				t.Fatalf("outcome %+v", o)
			}
			got = append(got, fmt.Sprintf("%q", o.Err))
		}
		if text := strings.Join(got, " "); text != test.want {
			t.Errorf("%s: outcomes are %s, want %s", test.body, text, test.want)
		}
	}
	broken := callback.Outcome{Outcome: delivery.Outcome{Status: 500, Err: "status 500"}, Body: []byte(`{"failed":[{"webhook_id":"a"}]}`)}
	list, _ := outcomesOf(&broken, ids, true)
	for _, o := range list {
		if o.Err != "status 500" {
			t.Errorf("outcome %+v of a call that failed", o)
		}
	}
}
