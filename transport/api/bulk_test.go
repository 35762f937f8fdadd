package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/timer"
	"carillon/timer/bulk"
	"carillon/transport/api/backend"
	"carillon/transport/api/bulkrun"
	"carillon/transport/api/web"
)

// fill adds n timers, t000 …, due from now + 1 h a minute apart, every third labelled, as one
// batch.
func (h *harness) fill(n int) {
	h.t.Helper()
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"}}`)
	var ops []string
	for i := range n {
		label := ""
		if i%3 == 0 {
			label = `,"labels":["third","n=` + fmt.Sprint(i%2) + `"]`
		}
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"t%03d","at_ms":%d%s}`, i, noonMs+3_600_000+60_000*int64(i), label))
	}
	h.do("POST", batches+"?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`).want(200)
}

func (h *harness) bulk(what, body string, matched, changed, skipped int) {
	h.t.Helper()
	h.do("POST", orders+"/"+what, body).want(200).has("matched", fmt.Sprint(matched), "changed", fmt.Sprint(changed), "skipped", fmt.Sprint(skipped))
}

func TestBulkCancel(t *testing.T) {
	h := newHarness(t)
	h.fill(60)
	h.engine.set("orders", "t003", func(t *timer.Timer) { t.State, t.Attempts = timer.Leased, 1 })
	h.engine.set("orders", "t004", func(t *timer.Timer) { t.State = timer.Done })
	h.engine.set("orders", "t005", func(t *timer.Timer) { t.State, t.Attempts = timer.Leased, 1 })
	h.bulk("cancel", `{"filter":{"label":"third"}}`, 20, 19, 1)
	// As DELETE: no further call starts.
	h.do("GET", timersPath+"/t003", "").has("state", `"leased"`, "cancel_requested", "true")
	h.do("GET", timersPath+"/t000", "").has("state", `"cancelled"`)
	// Again: only the one that is still running.
	h.bulk("cancel", `{"filter":{"label":["third","n=1"]}}`, 1, 0, 1)
	h.bulk("cancel", fmt.Sprintf(`{"filter":{"due_from":%d,"due_to":"2026-06-01T13:12:00.001Z","state":"scheduled"}}`, noonMs+3_600_000+10*60_000), 2, 2, 0)
	h.bulk("cancel", `{"filter":{"id_prefix":"t05"},"all":true}`, 7, 7, 0)
	h.bulk("cancel", `{"filter":{"due_to":0}}`, 0, 0, 0)
	h.bulk("cancel", `{"filter":{"state":["leased"]}}`, 2, 0, 2)
	h.bulk("cancel", `{"all":true}`, 31, 29, 2)
	h.bulk("cancel", `{"all":true,"filter":{}}`, 2, 0, 2)
	h.do("GET", orders, "").has("counts.scheduled", "0", "counts.leased", "2")
}

// A dry run counts as the change would, and changes nothing.
func TestBulkDryRun(t *testing.T) {
	h := newHarness(t)
	h.fill(30)
	h.engine.set("orders", "t003", func(t *timer.Timer) { t.State, t.Attempts = timer.Leased, 1 })
	try := func(what, body, want string) {
		t.Helper()
		if r := h.do("POST", orders+"/"+what+"?dry_run=true", body).want(200); r.body != want {
			t.Errorf("%s %s: %s, want %s", what, body, r.body, want)
		}
	}
	try("cancel", `{"filter":{"label":"third"}}`, `{"matched":10,"changed":9,"skipped":1,"dry_run":true,"first":"t000"}`)
	try("cancel", `{"filter":{"id_prefix":"t02"}}`, `{"matched":10,"changed":10,"skipped":0,"dry_run":true,"first":"t020"}`)
	try("reschedule", `{"all":true,"shift":"+1h"}`, `{"matched":30,"changed":29,"skipped":1,"dry_run":true,"first":"t000"}`)
	try("reschedule", fmt.Sprintf(`{"all":true,"not_before":%d}`, noonMs), `{"matched":30,"changed":0,"skipped":1,"dry_run":true}`)
	h.bulk("cancel?dry_run=false", `{"filter":{"id_prefix":"t029"}}`, 1, 1, 0)
	h.do("POST", orders+"/cancel?dry_run=perhaps", `{"all":true}`).problem(400, web.BadRequest)
	h.do("GET", orders, "").has("counts.scheduled", "28", "counts.leased", "1")
	h.do("GET", timersPath+"/t000", "").has("version", "1")

	for _, id := range []string{"t001", "t002"} {
		h.engine.set("orders", id, func(t *timer.Timer) { t.State, t.EndedMs = timer.Dead, noonMs })
	}
	try("dead/redrive", `{"all":true}`, `{"matched":2,"changed":2,"skipped":0,"dry_run":true,"first":"t001"}`)
	try("dead/purge", `{"ids":["t002","t001","t000","none"]}`, `{"matched":4,"changed":2,"skipped":2,"dry_run":true,"first":"t001","skips":[{"id":"t000","code":"not_found","detail":"there is no such dead letter"},{"id":"none","code":"not_found","detail":"there is no such dead letter"}]}`)
	h.do("GET", orders+"/dead", "").has("timers.1.id", `"t002"`)
}

// TestDryRunOfOneDeadLetterByTwoIDs: in a topic with a key a plain and a whole id are of one dead
// letter. A dry run counts it once, as the call does.
func TestDryRunOfOneDeadLetterByTwoIDs(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"key":"all"}`).want(201)
	h.do("POST", timersPath, `{"id":"x","delay":"1h",`+cb+`}`).want(201)
	for _, what := range []string{"redrive", "purge"} {
		h.engine.set("orders", "{all}x", func(t *timer.Timer) { t.State, t.EndedMs = timer.Dead, noonMs })
		dry := h.do("POST", orders+"/dead/"+what+"?dry_run=true", `{"ids":["x","{all}x"]}`).want(200)
		done := h.do("POST", orders+"/dead/"+what, `{"ids":["x","{all}x"]}`).want(200).has("matched", "2", "changed", "1", "skipped", "1")
		dry.has("matched", "2", "changed", "1", "skipped", "1", "skips", pick(done.json(), "skips"))
	}
}

func TestBulkReschedule(t *testing.T) {
	h := newHarness(t)
	h.fill(30)
	due := func(id string, ms int64) {
		t.Helper()
		h.do("GET", timersPath+"/"+id, "").has("due_ms", fmt.Sprint(ms), "next_attempt_ms", fmt.Sprint(ms))
	}
	const first = noonMs + 3_600_000
	h.engine.set("orders", "t001", func(t *timer.Timer) { t.State = timer.Leased })
	h.bulk("reschedule", `{"all":true,"shift":"+1h"}`, 30, 29, 1)
	due("t000", first+3_600_000)
	due("t029", first+3_600_000+29*60_000)
	h.do("GET", timersPath+"/t001", "").has("due_ms", fmt.Sprint(first+60_000), "version", "1")
	h.bulk("reschedule", `{"filter":{"id_prefix":"t02"},"shift":"-90m"}`, 10, 10, 0)
	due("t020", first-1_800_000+20*60_000)
	// A timer that has failed waits for its next attempt: its due time is moved, the attempt no
	// earlier.
	h.engine.set("orders", "t002", func(t *timer.Timer) { t.Attempts, t.NextMs = 1, noonMs+7_200_000_0 })
	h.bulk("reschedule", `{"filter":{"id_prefix":"t002"},"shift":"1h"}`, 1, 1, 0)
	h.do("GET", timersPath+"/t002", "").has("due_ms", fmt.Sprint(first+2*3_600_000+2*60_000), "next_attempt_ms", fmt.Sprint(noonMs+7_200_000_0))

	const target = first + 40*3_600_000
	h.bulk("reschedule", fmt.Sprintf(`{"filter":{"label":"third"},"at_ms":%d}`, target), 10, 10, 0)
	h.bulk("reschedule", fmt.Sprintf(`{"filter":{"label":"third"},"at":"%s"}`, time.UnixMilli(target).UTC().Format("2006-01-02T15:04:05.000Z")), 10, 0, 0)
	h.do("GET", timersPath+"/t003", "").has("version", "3") // repeating changed nothing
	h.bulk("reschedule", fmt.Sprintf(`{"filter":{"state":"scheduled"},"not_before":%d}`, target-1), 29, 19, 0)
	due("t004", target-1)
	due("t003", target)
	// A timer that would pass the horizon stays; one that would come before 1970 is due at once.
	h.do("PUT", timersPath+"/far", `{"at":"2036-05-30T00:00:00Z"}`).want(201)
	h.bulk("reschedule", `{"filter":{"id_prefix":"far"},"shift":"1000h"}`, 1, 0, 1)
	h.bulk("reschedule", `{"filter":{"id_prefix":"t004"},"shift":"-1000000h"}`, 1, 1, 0)
	h.do("GET", timersPath+"/t004", "").has("due_ms", "0")
}

// Between the walk and the command a timer changes, ends, or begins: it is judged as it is then.
func TestBulkJudgesAnew(t *testing.T) {
	h := newHarness(t)
	h.fill(4)
	var once sync.Once // shards are at it side by side: the second waits until it has happened
	h.engine.beforeDo = func() {
		once.Do(func() {
			h.engine.set("orders", "t000", func(t *timer.Timer) { t.Version++; t.Labels = append(t.Labels, "kept") })
			h.engine.set("orders", "t001", func(t *timer.Timer) { t.Version++; t.DueMs, t.NextMs = noonMs+9_000_000, noonMs+9_000_000 })
			h.engine.set("orders", "t002", func(t *timer.Timer) { t.State = timer.Done })
			h.engine.set("orders", "t003", func(t *timer.Timer) { t.State = timer.Leased })
		})
	}
	h.bulk("reschedule", fmt.Sprintf(`{"filter":{"due_to":%d},"shift":"1m"}`, noonMs+5_000_000), 2, 1, 1)
	h.do("GET", timersPath+"/t000", "").has("version", "3", "due_ms", fmt.Sprint(noonMs+3_660_000), "labels.2", `"kept"`)
	h.do("GET", timersPath+"/t001", "").has("version", "2")
}

// A bulk change ends with its token, and says how far it came.
func TestBulkOfARevokedToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	const root, shop = `root add,read,admin "*"`, `shop add,cancel "*"`
	for name, tt := range map[string]struct {
		then   string // the token's line
		status int
		code   string
	}{
		"its line is gone":     {`someone add "*"`, 401, web.Unauthorized},
		"it reaches others":    {`shop add,cancel "others"`, 404, web.UnknownTopic},
		"it may not cancel":    {`shop add "*"`, 403, web.Forbidden},
		"it may do other more": {`shop add,cancel,read "*"`, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			authFile(t, path, root, shop)
			auth, err := LoadAuth(path)
			if err != nil {
				t.Fatal(err)
			}
			h := newHarness(t, func(c *Config) { c.Auth = auth })
			h.do("PUT", orders, `{}`, "Authorization: Bearer root").want(201)
			for i := range 4 {
				h.do("PUT", fmt.Sprint(timersPath, "/", i), `{"delay":"1h",`+cb+`}`, "Authorization: Bearer root").want(201)
			}
			h.engine.beforeDo = func() {
				authFile(t, path, root, tt.then)
				if err := auth.Reload(); err != nil {
					t.Error(err)
				}
			}
			r := h.do("POST", orders+"/cancel", `{"all":true}`, "Authorization: Bearer shop")
			if tt.status == 200 {
				r.want(200).has("changed", "4")
				return
			}
			if r.problem(tt.status, tt.code); !strings.Contains(r.body, "; 1 timers have been changed so far, and stay so") {
				t.Error(r.body)
			}
		})
	}
}

// A bulk change that does not come to its end says why, and how far it came.
func TestBulkGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endlessEngine{fakeEngine: newFakeEngine(time.Now)}
		limits := web.DefaultLimits()
		limits.BulkTime = 3 * time.Second
		s, err := New(Config{Settings: web.Settings{Engine: e, Clock: time.Now, Limits: limits}})
		if err != nil {
			t.Fatal(err)
		}
		topic, _, _ := topicsOf(e.fakeEngine).Put(t.Context(), "orders", &timer.Policy{}, timer.TopicChange{})
		core, _ := e.Core()
		rq := &web.Request{Node: &s.node, Core: core}
		run := func() *web.Problem {
			return bulkrun.Run(rq, &bulk.Update{Query: timer.Query{Topic: topic.ID}, Plan: bulk.CancelEach(topic.ID)}, nil)
		}
		if p := run(); p == nil || p.Status != 503 || !strings.Contains(p.Detail, "time for one bulk change") || !strings.Contains(p.Detail, "7 timers") {
			t.Errorf("%+v", p)
		}
		s.node.Limits.BulkTime = time.Hour
		e.fails = timer.ErrNoLeader
		if p := run(); p == nil || p.Code != "no_leader" {
			t.Errorf("%+v", p)
		}
		e.fails = errors.New("something else")
		if p := run(); p == nil || p.Code != web.Unavailable || p.Cause == nil {
			t.Errorf("%+v", p)
		}
		e.fails = nil
		time.AfterFunc(time.Second, s.end)
		begin := time.Now()
		if p := run(); p == nil || !strings.Contains(p.Detail, "stopping") || time.Since(begin) > 2*time.Second {
			t.Errorf("%+v after %s", p, time.Since(begin))
		}
		for range bulkrun.AtOnce {
			_, _ = s.bulks.Take(nil)
		}
		if p := run(); p == nil || p.Code != "overloaded" {
			t.Errorf("%+v", p)
		}
		s.stop()
	})
}

// endlessEngine has changed seven timers of a bulk change and then fails, or goes on until it is
// told to stop.
type endlessEngine struct {
	*fakeEngine
	fails error
}

func (e *endlessEngine) Core() (*backend.Core, error) { return e.with(e, fakeTopics{e.fakeEngine}) }

func (e *endlessEngine) Bulk(ctx context.Context, b *bulk.Update) error {
	b.Changed.Add(7)
	if e.fails != nil {
		return e.fails
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestBulkStrictness(t *testing.T) {
	h := newHarness(t)
	h.fill(3)
	const cancel, reschedule = orders + "/cancel", orders + "/reschedule"
	var cases []refused
	for body, code := range map[string]string{
		``: web.BadJSON, `{}`: web.BadRequest, `{"all":false}`: web.BadRequest, `{"filter":{}}`: web.BadRequest, `{"filter":{"label":[]}}`: web.BadRequest, `{"filter":{"id_prefix":""}}`: web.BadRequest,
		`{"filter":{"state":"done"}}`: web.BadRequest, `{"filter":{"state":[]}}`: web.BadRequest, `{"filter":{"state":""}}`: web.BadRequest, `{"filter":{"state":1}}`: web.BadRequest,
		`{"filter":{"label":"a b"}}`: web.BadRequest, `{"filter":{"id_prefix":"a/b"}}`: web.BadName, `{"filter":{"due_to":"x"}}`: web.BadTime, `{"filter":{"due_from":-1}}`: web.BadTime,
		`{"filter":{"due_to":9223372036854775808}}`: web.BadTime, `{"filter":{"due_from":99999999999999999999}}`: web.BadTime, `{"filter":{"due_to":1780315200}}`: web.BadTime, `{"filter":{"due_from":1}}`: web.BadTime,
		`{"filter":{"due":1}}`: web.UnknownField, `{"filter":{"limit":1}}`: web.UnknownField, `{"filter":{"label":"a","label":"b"}}`: web.BadJSON, `{"filter":null}`: web.BadRequest, `{"filter":[]}`: web.BadRequest,
		`{"all":null}`: web.BadRequest, `{"All":true}`: web.UnknownField, `{"all":true,"all":true}`: web.BadJSON, `{"all":true} x`: web.BadJSON, `{"ids":["a"]}`: web.UnknownField,
	} {
		cases = append(cases, refused{method: "POST", target: cancel, body: body, status: 400, code: code})
	}
	cases = append(cases, refused{method: "POST", target: cancel, body: `{"all":true,"shift":"1h"}`, status: 400, code: web.UnknownField})
	for body, code := range map[string]string{
		`{"all":true}`: web.BadTime, `{"all":true,"shift":"1h","at_ms":1}`: web.BadTime, `{"all":true,"shift":"0s"}`: web.BadTime, `{"all":true,"shift":"x"}`: web.BadTime, `{"all":true,"shift":3600}`: web.BadTime,
		`{"all":true,"at":"noon"}`: web.BadTime, `{"all":true,"at_ms":"1"}`: web.BadTime, `{"all":true,"at_ms":-1}`: web.BadTime, `{"all":true,"not_before":"later"}`: web.BadTime, `{"all":true,"delay":"1h"}`: web.UnknownField,
		`{"all":true,"at_ms":1780315200}`: web.BadTime, `{"all":true,"at_ms":0}`: web.BadTime, `{"all":true,"not_before":1780315200}`: web.BadTime, `{"all":true,"not_before":9223372036854775808}`: web.BadTime,
		`{"shift":"1h"}`: web.BadRequest, `{"all":true,"shift":"1h","shift":"1h"}`: web.BadJSON, `{"all":true,"at":null}`: web.BadTime,
	} {
		cases = append(cases, refused{method: "POST", target: reschedule, body: body, status: 400, code: code})
	}
	cases = append(cases,
		refused{method: "POST", target: reschedule, body: `{"all":true,"shift":"900000h"}`, status: 422, code: "beyond_horizon"},
		refused{method: "POST", target: reschedule, body: `{"all":true,"at":"2100-01-01T00:00:00Z"}`, status: 422, code: "beyond_horizon"},
		refused{method: "POST", target: "/v1/topics/nosuch/cancel", body: `{"all":true}`, status: 404, code: web.UnknownTopic},
		refused{method: "POST", target: cancel + "?all=true", body: `{}`, status: 400, code: web.BadRequest},
		refused{method: "POST", target: cancel, body: `{"all":true}`, headers: []string{"Content-Type: text/plain"}, status: 415, code: "unsupported_media_type"},
		refused{method: "PUT", target: cancel, body: `{}`, status: 405, code: "method_not_allowed"})
	checkRefused(t, h, cases)
}

func TestBulkScopes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, "adder add '*'", "canceller cancel '*'", "reader read '*'")
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	for target, may := range map[string]string{"/cancel": "canceller", "/reschedule": "adder"} {
		for _, who := range []string{"adder", "canceller", "reader"} {
			want := http.StatusForbidden
			if who == may {
				want = http.StatusBadRequest // it got as far as the body
			}
			h.do("POST", orders+target, `{}`, "Authorization: Bearer "+who).want(want)
		}
	}
}

// leaderlessEngine has no leader for the shard of one timer.
type leaderlessEngine struct {
	*fakeEngine
	id string
}

func (e *leaderlessEngine) Core() (*backend.Core, error) {
	c, err := e.with(e, fakeTopics{e.fakeEngine})
	c.Consumers = e
	return c, err
}

func (e *leaderlessEngine) UpdateLease(ctx context.Context, c backend.LeaseUpdate) ([]bool, error) {
	held, _ := e.fakeEngine.UpdateLease(ctx, c)
	return held, timer.ErrNoLeader
}

func (e *leaderlessEngine) DoAll(ctx context.Context, ops []timer.Op) {
	for i := range ops {
		if ops[i].Command.ID == e.id {
			ops[i].Err = timer.ErrNoLeader
		} else {
			e.fakeEngine.DoAll(ctx, ops[i:i+1])
		}
	}
}

// TestNamedDeadLettersWithoutALeader: of those that are named some were changed, and the answer and
// the audit log have how many.
func TestNamedDeadLettersWithoutALeader(t *testing.T) {
	var tr trail
	h := newHarness(t, func(c *Config) {
		c.Audit, c.Engine = tr.record, &leaderlessEngine{c.Engine.(*fakeEngine), "t001"}
	})
	h.fill(3)
	h.engine.set("orders", "t000", func(t *timer.Timer) { t.State = timer.Dead })
	h.engine.set("orders", "t002", func(t *timer.Timer) { t.State = timer.Dead })
	tr.since()
	r := h.do("POST", orders+"/dead/purge", `{"ids":["t000","t001","t002"]}`).problem(503, "no_leader")
	if !strings.Contains(r.body, "2 timers have been changed so far") {
		t.Error(r.body)
	}
	if got := tr.since(); len(got) != 1 || got[0] != "- dead.purge topics/orders 503 ×2" {
		t.Errorf("recorded %q", got)
	}
}

// cutOffTopics delete topics by force up to a point.
type cutOffTopics struct {
	fakeTopics
	err error
}

func (c cutOffTopics) Delete(context.Context, string, timer.TopicChange) (int, error) {
	return 2, c.err
}

type cutOffEngine struct {
	*fakeEngine
	err error
}

func (e *cutOffEngine) Core() (*backend.Core, error) {
	return e.with(e, cutOffTopics{fakeTopics{e.fakeEngine}, e.err})
}

// TestDeletionThatIsCutOff: the answer and the audit log have what it has done, and the answer
// whether it goes on.
func TestDeletionThatIsCutOff(t *testing.T) {
	for _, tt := range []struct {
		err          error
		status       int
		code, detail string
	}{
		{timer.DeletingError{Cause: timer.ErrNoLeader}, 503, "no_leader", "the shard has no leader now; 2 timers have been cancelled so far; the topic is closed, and its deletion goes on by itself"},
		{timer.DeletingError{Cause: timer.ErrUnknown}, 503, "unavailable", timer.ErrUnknown.Error() + "; 2 timers have been cancelled so far; the topic is closed, and its deletion goes on by itself"},
		{timer.ErrTopicVersion, 412, "version_mismatch", "the topic has changed or is gone: it is not at that version; read it again; 2 timers have been cancelled so far"},
	} {
		var tr trail
		h := newHarness(t, func(c *Config) { c.Audit, c.Engine = tr.record, &cutOffEngine{c.Engine.(*fakeEngine), tt.err} })
		h.fill(1)
		tr.since()
		if r := h.do("DELETE", orders+"?force=true", "").problem(tt.status, tt.code); !strings.Contains(r.body, `"`+tt.detail+`"`) {
			t.Error(r.body)
		}
		if got := tr.since(); len(got) != 1 || got[0] != fmt.Sprintf("- topic.delete topics/orders %d ×2", tt.status) {
			t.Errorf("recorded %q", got)
		}
	}
}

// TestReceiptsWithoutALeader: the same of leases.
func TestReceiptsWithoutALeader(t *testing.T) {
	var tr trail
	h := newHarness(t, func(c *Config) {
		c.Audit, c.Engine = tr.record, &leaderlessEngine{c.Engine.(*fakeEngine), "-"}
	})
	h.do("PUT", "/v1/topics/p1", `{"delivery":"pull"}`).want(201)
	h.do("POST", "/v1/topics/p1/timers", `{"id":"j","delay_ms":0}`).want(201)
	h.advance(time.Second)
	h.do("POST", "/v1/topics/p1/pull", `{"lease":"30s"}`).want(200)
	tr.since()
	for _, path := range []string{"nack", "ack"} {
		r := h.do("POST", "/v1/"+path, `{"receipts":["p1/j/1","p1/k/1"]}`).problem(503, "no_leader")
		if !strings.Contains(r.body, "1 timers have been changed so far") {
			t.Error(r.body)
		}
		if got := tr.since(); len(got) != 1 || got[0] != "- lease."+path+" leases 503 ×1" {
			t.Errorf("recorded %q", got)
		}
	}
	if r := h.do("POST", "/v1/ack", `{"receipts":["p1/k/1"]}`).problem(503, "no_leader"); strings.Contains(r.body, "changed") {
		t.Error(r.body)
	}
}
