package api

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/timer/duration"

	"github.com/valyala/fasthttp"
)

// fuzzServer is a server over a fake engine, to be called without a socket.
func fuzzServer(f *testing.F) (*Server, *fakeEngine) {
	e := newFakeEngine(func() time.Time { return noon })
	s, err := New(Config{Engine: e, Clock: func() time.Time { return noon }})
	if err != nil {
		f.Fatal(err)
	}
	return s, e
}

var documents = []string{
	``, `null`, `nul`, `-0`, `01`, `1e5`, `"a`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\x00\"", "\"\xff\"", `[1,]`, `{"a":{"b":[{}]}}`, `{"a":1]`, `{"a":1,"a":2}`, "\ufeff{}",
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat(`{"a":[`, 32) + strings.Repeat("]}", 32), strings.Repeat("[", 100_000),
}

// Any body as an add: it is 201 only when it is JSON, and then the answer is JSON with the payload
// as it was sent.
func FuzzAddBody(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(`{"delay":"1h",` + cb + `,"payload":` + doc + `}`))
	}
	f.Add([]byte(`{"id":"{k}a","key":"k","at":"2026-07-01T00:00:00.5+02:00","payload_base64":"AA==","content_type":"a/b","callback":{"url":"http://a/","method":"PUT","headers":{"X":"y"},"timeout":"1s"},"priority":1,"labels":["a"],"expires_after":"1m","merge":"reject","retry":{"max_attempts":3,"min_backoff":"1s","max_backoff":"2s","multiplier":2,"jitter":0.5}}`))
	f.Add([]byte(`{"delay_ms":1,"repeat":{"cron":"* * * * *","zone":"UTC","count":1}}`))
	s, e := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		clear(e.timers)
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.SetMethod("POST")
		ctx.Request.SetRequestURI(timers)
		ctx.Request.Header.SetContentType("application/json")
		ctx.Request.SetBodyStream(bytes.NewReader(body), len(body))
		s.serve(&ctx)
		status, answer := ctx.Response.StatusCode(), ctx.Response.Body()
		if !json.Valid(answer) {
			t.Fatalf("%d: answer is not JSON: %s", status, answer)
		}
		if (status == 201) != (len(e.timers) == 1) {
			t.Fatalf("%d, and there are %d timers", status, len(e.timers))
		}
		switch {
		case status == 201:
			if !json.Valid(body) {
				t.Fatalf("took what is not JSON: %q", body)
			}
			var in, out struct{ Payload json.RawMessage }
			if err := json.Unmarshal(body, &in); err == nil && json.Unmarshal(answer, &out) == nil && !bytes.Equal(in.Payload, out.Payload) {
				t.Fatalf("payload %s became %s", in.Payload, out.Payload)
			}
		case status != 400 && status != 413 && status != 422:
			t.Fatalf("%d: %s", status, answer)
		}
	})
}

// Times against the standard library, where it can say.
func FuzzTime(f *testing.F) {
	for _, s := range []string{"2026-06-01T12:00:00Z", "2026-06-01T12:00:00.1234567+05:30", "2024-02-29T23:59:59.999999999-00:01", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59.9999Z", "0000-02-29T00:00:00Z",
		"1h30m", "1.5s", "-1ms", "0", "+.5h", "1h1h1ns", "9223372036854775807ns", "2562047h47m16.854775807s", "99999999999999999999h", "1µs1μs1us", "1.00000000000000000000001h", "s", "1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ms, ok := parseInstant(s)
		upper := strings.ToUpper(s)
		want, err := time.Parse(time.RFC3339Nano, upper)
		// The library takes a comma for the point, one digit for the hour, and offsets beyond a
		// day; it takes only nine digits as they are.
		lenient := strings.Contains(s, ",") || len(s) > 12 && s[12] == ':'
		if err == nil && !ok && !lenient && !oddOffset(s) {
			t.Fatalf("refused %q", s)
		}
		if ok && err != nil {
			t.Fatalf("took %q: %v", s, err)
		}
		if ok {
			floor := want.UnixMilli()
			if ms != floor && ms != floor+1 || want.Nanosecond()%nsPerMs != 0 && ms == floor {
				t.Fatalf("%q: %d, want %v", s, ms, want)
			}
			if y := want.UTC().Year(); y >= 1 && y <= 9999 && time.UnixMilli(ms).UTC().Year() <= 9999 {
				if shown := string(appendInstant(nil, ms)); shown != time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") {
					t.Fatalf("%d is shown as %s", ms, shown)
				}
			}
		}

		span, ok := parseSpan(s)
		d, err := duration.Parse(s)
		if err == nil && !ok {
			t.Fatalf("refused duration %q", s)
		}
		if ok && err != nil && span != math.MaxInt64 && span != -math.MaxInt64 && math.Abs(float64(span)) < math.MaxInt64/nsPerMs {
			t.Fatalf("took duration %q as %d ms: %v", s, span, err)
		}
		if ok && err == nil {
			// Ours rounds away from zero: never early, never a millisecond late.
			if span < 0 != (d < 0) && d != 0 && span != 0 {
				t.Fatalf("%q: %d, want %v", s, span, d)
			}
			diff := time.Duration(span)*time.Millisecond - d
			if d >= 0 && (diff < 0 || diff > time.Millisecond+time.Microsecond) && d < math.MaxInt64-2*time.Millisecond {
				t.Fatalf("%q: %d ms, want %v", s, span, d)
			}
			// A longer one is held at the bound.
			if span > 0 && span <= int64(math.MaxInt64/time.Millisecond) {
				if back, ok := parseSpan(string(appendSpan(nil, span))); !ok || back != span {
					t.Fatalf("%d ms is shown as %s", span, appendSpan(nil, span))
				}
			}
		}
	})
}

var hoursAndMinutes = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)

// oddOffset tells a zone that the library takes and the RFC does not have.
func oddOffset(s string) bool {
	i := strings.LastIndexAny(s, "+-")
	if i < len("2006-01-02T15:04:05") {
		return false
	}
	return !hoursAndMinutes.MatchString(s[i+1:])
}

// A cursor opens only if it was sealed for this listing, and then as it was.
func FuzzCursor(f *testing.F) {
	q := &timer.Query{Topic: 7, States: 6, Labels: []string{"a"}}
	listing := listingSum(q)
	f.Add("", int64(0), uint64(0), "a")
	f.Add(timerCursor(timer.SortKey{SortMs: noonMs, ID: "a", Seq: 3}, listing), int64(-1), uint64(math.MaxUint64), "{k}x")
	f.Add(nameCursor("orders", ""), int64(math.MaxInt64), uint64(1), "..")
	f.Fuzz(func(t *testing.T, s string, sortMs int64, seq uint64, id string) {
		if k, ok := parseTimerCursor(s, listing); ok && timerCursor(*k, listing) != s {
			t.Fatalf("%q opened as %+v", s, k)
		}
		if name, ok := parseNameCursor(s, "or"); ok && nameCursor(name, "or") != s {
			t.Fatalf("%q opened as %q", s, name)
		}
		if k, ok := parseHistoryCursor(s, listing); ok {
			if again, ok := parseHistoryCursor(historyCursor(*k, listing), listing); !ok || *again != *k {
				t.Fatalf("%q opened as %+v, then as %+v", s, k, again)
			}
		}
		was := timer.HistoryKey{EndMs: sortMs, Index: seq, Shard: timer.ShardID(seq >> 40), Item: uint32(seq)}
		if k, ok := parseHistoryCursor(historyCursor(was, listing), listing); !ok || *k != was {
			t.Fatalf("%+v came back as %+v %v", was, k, ok)
		}
		key := timer.SortKey{SortMs: sortMs, ID: id, Seq: seq}
		sealed := timerCursor(key, listing)
		k, ok := parseTimerCursor(sealed, listing)
		if ok != validID(id) && len(sealed) <= maxCursorBytes || ok && *k != key {
			t.Fatalf("%+v came back as %+v %v", key, k, ok)
		}
		if _, ok := parseTimerCursor(sealed, listing+1); ok {
			t.Fatal("opened for another listing")
		}
		if _, ok := parseNameCursor(sealed, ""); ok {
			t.Fatal("opened as a cursor of topics")
		}
	})
}

// Parameters are read as net/url reads them, or refused; none is there twice but a label.
func FuzzQuery(f *testing.F) {
	takes := []string{"limit", "cursor", "label", "state"}
	for _, s := range []string{"", "limit=10&cursor=abc", "label=a&label=b", "state=%64one", "limit=1&limit=2", "limit=+%2B%20", "x=1", "&", "limit", "limit=%zz", "limit=%ff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, p := parseQuery(raw, takes)
		if p != nil {
			if p.status != 400 {
				t.Fatal(p)
			}
			return
		}
		if bytes.ContainsRune(raw, ';') {
			return // the library refuses it, to us it is a letter
		}
		want, err := url.ParseQuery(string(raw))
		if err != nil {
			t.Fatalf("%q was read: %v", raw, err)
		}
		count := 0
		for _, name := range takes {
			values := want[name]
			count += len(values)
			if got, ok := q.value(name); ok != (len(values) > 0) || ok && got != values[0] || len(values) > 1 && name != "label" {
				t.Fatalf("%q: %s is %q, want %q", raw, name, got, values)
			}
		}
		if count != len(q) {
			t.Fatalf("%q: %d parameters, want %d", raw, len(q), count)
		}
	})
}

// The auth file gives tokens that hold, or a fault.
func FuzzAuth(f *testing.F) {
	f.Add([]byte("- name: a\n  sha256: " + strings.Repeat("0f", 32) + "\n  scopes: [add, read]\n  topics: [\"orders*\"]\n"))
	f.Add([]byte("- {}"))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseAuth(data)
		for i := range list {
			if p := &list[i]; err == nil && (p.name == "" || p.scopes == 0 || len(p.topics) == 0) {
				t.Fatalf("%q gives %s %v %v", data, p.name, p.scopes, p.topics)
			}
		}
	})
}

// A short run of the whole server on random streams: it answers or closes, and lives.
func TestServerLivesThroughNoise(t *testing.T) {
	h := newHarness(t)
	for i, c := range documents {
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, goodHead+"Content-Length: "+decLen(c)+"\r\nConnection: close\r\n\r\n"+c)
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	h.do("GET", "/healthz", "").want(200)
}

// Only that is taken for a host which others take for it, so that nobody on the way sends a request
// for another name here.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost", "127.0.0.1:7700", "[::1]:80", "a@b", "timers.example.", "[::ffff:127.0.0.1]", "127.1", "0x7f.1", "[fe80::1%25eth0]", "a:b:c", "ü", "a/b", "%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, address, port, ok := splitHost(s)
		if !ok {
			return
		}
		u, err := url.Parse("http://" + s + "/")
		if err != nil || u.Host != s || u.User != nil || u.Path != "/" || u.Port() != port {
			t.Fatalf("%q is no authority of a URL: %+v %v", s, u, err)
		}
		if other := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")); !address.IsValid() && other != name {
			t.Fatalf("%q is %q here and %q elsewhere", s, name, other)
		}
		if other, err := netip.ParseAddr(u.Hostname()); err == nil && other.Unmap().WithZone("") != address.Unmap() {
			t.Fatalf("%q is %v here and %v elsewhere", s, address, other)
		}
	})
}
